//! Handover of a command's processes from their call to the background.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::CallId;
use allstop_core::receipt::ItemKind;
use allstop_core::record::Attachment;
use allstop_process::OutputReader;
use allstop_scope::{NotStarted, WorkSpec};
use tokio::sync::oneshot;

use super::host::BackgroundHost;
use super::work::{BackgroundWork, WorkBody, WorkInfo, WorkSlot};
use crate::command::{RunningCommand, read_to_end};
use crate::output::{BoundedOutput, OutputWriter};

/// Time limit for writing the last output after the last process has ended. At that time, at most the content of one
/// full pipe is unwritten. A disk that needs more time is blocked and must not delay the end.
const LAST_OUTPUT_MAX: Duration = Duration::from_secs(1);

/// All parts that the host takes over.
pub(crate) struct Handover {
    pub(crate) call_id: CallId,
    pub(crate) name: Arc<str>,
    pub(crate) attachment: Attachment,
    pub(crate) running: RunningCommand,
    pub(crate) output: BoundedOutput,
}

/// Refusal of the host: all parts still belong to the call.
pub(crate) struct NotHandedOver {
    pub(crate) why: NotStarted,
    pub(crate) running: RunningCommand,
    pub(crate) output: BoundedOutput,
}

/// Moves processes from their call to the host.
///
/// # Errors
/// If a stop covers the call, or the host's scope accepts no more work.
pub(crate) fn hand_over(
    host: &dyn BackgroundHost,
    handed: Handover,
) -> Result<Arc<BackgroundWork>, Box<NotHandedOver>> {
    let Handover {
        call_id,
        name,
        attachment,
        running: RunningCommand { process, reader },
        mut output,
    } = handed;
    // The task that reads the output (`drain`) is started first, because no step may fail after the background host has
    // taken over the processes. `drain` begins to read after the hand-over.
    let (begin, begins) = oneshot::channel();
    let prepared = WorkSlot::create(host, &name).and_then(|slot| {
        let spec = WorkSpec::new(ItemKind::Future, "output");
        let drain = slot.scope.spawn(spec, |_| async move {
            if let Ok((reader, writer)) = begins.await {
                drain(reader, writer).await;
            }
        })?;
        let adopted = WorkSpec::new(ItemKind::Process, Arc::clone(&name));
        if let Err(refused) = process.adopt(&slot.scope, adopted) {
            slot.scope.close();
            return Err(refused);
        }
        Ok((slot, drain))
    });
    let (slot, drain) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            return Err(Box::new(NotHandedOver {
                why,
                running: RunningCommand { process, reader },
                output,
            }));
        }
    };
    output.open_file();
    let writer = OutputWriter::from(output);
    let output = writer.reader();
    // The send fails if a forced stop came first. No more output is read then.
    drop(begin.send((reader, writer)));
    let info = WorkInfo {
        call_id,
        name,
        attachment,
    };
    let handle = process.handle().clone();
    let work = BackgroundWork::new(slot, info, WorkBody::Process(process), output);
    work.run(host, async move {
        // The result is not needed: the status shows whether the process tree is empty or unwatched.
        drop(handle.wait_empty().await);
        drop(tokio::time::timeout(LAST_OUTPUT_MAX, drain).await);
    });
    Ok(work)
}

/// Reads until no process remains that could print. A stop does not end the reading, because output that processes
/// print before they end is also kept. Then closes the output file. If the work was detached, its keeper has opened the
/// file before.
async fn drain(reader: OutputReader, writer: OutputWriter) {
    if let Err(error) = read_to_end(reader, |piece| writer.push(piece)).await {
        tracing::warn!(%error, "the output of background work could not be read to its end");
    }
}
