//! The commands of the server, for `allstop ps` and `allstop stop` in another terminal.

use allstop_core::{Cause, Receipt, TaskId};
use allstop_remote::{OwnedCommandReport, OwnedCommands, WorkReport};
use allstop_task::TaskManager;
use futures::FutureExt as _;
use futures::future::BoxFuture;

/// The manager of the tasks of the commands.
#[derive(Debug)]
pub(super) struct ServedCommands {
    pub(super) manager: TaskManager,
}

impl OwnedCommands for ServedCommands {
    fn report(&self) -> Vec<OwnedCommandReport> {
        let running = self.manager.running_here().into_iter();
        let reports = running.map(|command| {
            let age_ms = u64::try_from(command.age.as_millis()).unwrap_or(u64::MAX);
            let work = command.work.into_iter().map(|item| WorkReport {
                item,
                age_ms: Some(age_ms),
            });
            OwnedCommandReport {
                command_id: command.id,
                age_ms,
                work: work.collect(),
            }
        });
        reports.collect()
    }

    fn preview(&self, command: TaskId, cause: Cause) -> BoxFuture<'static, Option<Receipt>> {
        let manager = self.manager.clone();
        async move {
            if !manager.runs_here(&command) {
                return None;
            }
            manager.preview(&command, cause).await.ok()
        }
        .boxed()
    }

    fn stop(
        &self,
        command: TaskId,
        cause: Cause,
        now: bool,
    ) -> BoxFuture<'static, Option<Receipt>> {
        let manager = self.manager.clone();
        async move {
            let stopping = manager.cancel(&command, cause);
            // The stop begins with the first poll.
            let (stopped, ()) = tokio::join!(stopping, async {
                if now {
                    manager.force(&command);
                }
            });
            let outcome = stopped.ok()?;
            Some(Receipt::clone(&outcome.receipt))
        }
        .boxed()
    }
}
