//! The way out of a session, the same for `run` and `chat`: background work is detached, the session is closed, the
//! recording is saved and the store is closed. Each wait has what is left until the exit.

use std::path::PathBuf;

use allstop_core::{Cause, CauseKind};
use allstop_runtime::System;
use allstop_session::{Detached, Session, StopTarget};

use crate::supervise::Supervisor;

/// Detaches all background work that runs. The answer for each piece, or why none was detached.
pub(crate) async fn detach_background(
    session: &Session,
    supervisor: &mut Supervisor,
) -> Result<Vec<Detached>, String> {
    let works = session.background();
    if !works.iter().any(|work| work.is_running()) {
        return Ok(Vec::new());
    }
    match supervisor
        .wait_to_exit(session.detach_background(), || {})
        .await
    {
        Some(Ok(answers)) => Ok(answers),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("the store does not answer".to_owned()),
    }
}

/// What became of one piece of background work that was to be detached, in one line.
pub(crate) fn detached_in_words(answer: &Detached) -> String {
    let (id, name) = (&answer.work.id, &answer.work.name);
    if let Some(why) = &answer.refused {
        return format!("{id} is not kept: {name} · {why}");
    }
    let runs = Some(format!("{id} runs on: {name}")).into_iter();
    let keeper = answer.work.keeper.as_ref();
    let end = keeper.map(|keeper| format!("end it: kill {}", keeper.pid));
    let output = answer.work.output.as_ref();
    let output = output.map(|output| format!("output: {output}"));
    runs.chain(end)
        .chain(output)
        .collect::<Vec<_>>()
        .join(" · ")
}

/// What is closed at the end.
pub(crate) struct Closing<'a> {
    pub(crate) session: &'a Session,
    pub(crate) system: &'a System,
    /// A store that has failed is not waited for.
    pub(crate) store_failed: bool,
    /// Whether what still runs is forced at once.
    pub(crate) force: bool,
}

impl Closing<'_> {
    /// Closes all of it, as far as the time allows. Says where a recording was saved, or why it was not.
    pub(crate) async fn close(
        &self,
        supervisor: &mut Supervisor,
    ) -> Option<Result<PathBuf, String>> {
        let cause = Cause::new(CauseKind::Shutdown).detail("the session was closed");
        let stopping = self.session.stop(&StopTarget::Session, cause);
        if self.force {
            stopping.force();
        }
        let close = async {
            if !self.store_failed {
                self.session.close().await;
                self.system.close().await;
            }
        };
        let mut recorded = None;
        let save = async { recorded = self.system.save_recording().await };
        let both = async { tokio::join!(close, save) };
        let closed = supervisor.wait_to_exit(both, || stopping.force()).await;
        let path = self.system.recording_path();
        let not_written = |why: &str| {
            path.map(|path| format!("the recording {} is not written{why}", path.display()))
        };
        match (recorded, closed) {
            (Some(Ok(path)), _) => Some(Ok(path)),
            (Some(Err(why)), _) => not_written(&format!(": {why}")).map(Err),
            (None, None) => not_written("").map(Err),
            (None, Some(_)) => None,
        }
    }
}
