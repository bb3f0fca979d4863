//! What a command prints, on its way to the answer and to whoever watches.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_scope::process::OutputReader;
use allstop_scope::{Scope, StopOrder};
use tokio::time::Instant;

use crate::background::PIPE_BYTES;
use crate::call_link::CallLink;
use crate::output::{BoundedOutput, without_cut_end};

/// A command's time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub(super) time: Duration,
    pub(super) until: Instant,
}

/// The output of a command that the model waits for.
pub(super) struct Printing {
    pub(super) reader: OutputReader,
    pub(super) output: BoundedOutput,
    link: CallLink,
    /// The first bytes of a character, whose rest is not there yet: not shown so far.
    cut: Vec<u8>,
}

impl Printing {
    pub(super) fn new(reader: OutputReader, output: BoundedOutput, link: CallLink) -> Self {
        Self {
            reader,
            output,
            link,
            cut: Vec::new(),
        }
    }

    /// Reads until the shell itself has ended. With a limit, stops the command when it takes too long; then the receipt
    /// says what became of it.
    ///
    /// # Cancel safety
    /// Cancel safe: called again it goes on. A stop that was begun goes on too.
    pub(super) async fn read(
        &mut self,
        limit: Option<Limit>,
        scope: &Scope,
    ) -> io::Result<Option<Arc<Receipt>>> {
        match limit {
            None => self.read_to_exit().await.map(|()| None),
            Some(limit) => self.read_within(limit, scope).await,
        }
    }

    async fn read_to_exit(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; PIPE_BYTES];
        loop {
            match self.reader.read(&mut buffer).await? {
                0 => return Ok(()),
                len => self.take(buffer.get(..len).unwrap_or_default()),
            }
        }
    }

    /// Reads on while the command is being stopped, so that what it prints about that is seen and it never hangs on a
    /// full pipe.
    async fn read_within(
        &mut self,
        limit: Limit,
        scope: &Scope,
    ) -> io::Result<Option<Arc<Receipt>>> {
        let mut reading = std::pin::pin!(self.read_to_exit());
        // Not a `select!` with the output first: output without end would use up the task's budget, and a timer without
        // budget never fires.
        if let Ok(read) = tokio::time::timeout_at(limit.until, &mut reading).await {
            return read.map(|()| None);
        }
        let detail = format!("timeout_s of {}", limit.time.as_secs_f64());
        let cause = Cause::new(CauseKind::Deadline).detail(detail);
        let stop = scope.stop(StopOrder::new(Extent::Call, cause));
        let mut read = false;
        loop {
            tokio::select! {
                // The receipt first: output without end must not keep it. What is left of the output is read below.
                biased;
                receipt = stop.receipt() => {
                    if receipt.quiet() && !read {
                        reading.await?;
                    }
                    return Ok(Some(receipt));
                }
                end = &mut reading, if !read => {
                    end?;
                    read = true;
                }
            }
        }
    }

    fn take(&mut self, piece: &[u8]) {
        self.output.push(piece);
        self.cut.extend_from_slice(piece);
        let whole = without_cut_end(&self.cut).len();
        self.link.output(&String::from_utf8_lossy(
            self.cut.get(..whole).unwrap_or_default(),
        ));
        self.cut.drain(..whole);
    }
}
