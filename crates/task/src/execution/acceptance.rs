//! Acceptance of a message. The result is one of three: the message is durable, or refused, or the outcome is unknown
//! until the store answers.

use std::sync::Arc;

use allstop_scope::EngineGuard;
use tokio::time::sleep;

use super::client_answer::ClientAnswer;
use super::repeat_pause::RepeatPause;
use super::{ExecutionEngine, ExecutionResult};
use crate::error::{ExecuteError, TaskStoreError};
use crate::model::TaskRecord;

impl ExecutionEngine {
    /// Ends an execution whose message was not accepted.
    pub(super) fn refuse(&self, error: ExecuteError, mut client: ClientAnswer) {
        if let Some((owner, message)) = &client.follow_up {
            self.host.forget_message(owner, message, self.stream.id());
        }
        self.execution
            .finish(ExecutionResult::NotStarted(error.clone()));
        client.answer(Err(error));
    }

    /// Stores the message and answers its client. `None` if the store refuses the message, or if the manager shuts down
    /// before the store answers.
    pub(super) async fn accept(
        &mut self,
        records: Vec<TaskRecord>,
        mut client: ClientAnswer,
        guard: &EngineGuard,
    ) -> Option<()> {
        let (execution, host) = (Arc::clone(&self.execution), Arc::clone(&self.host));
        let not_confirmed = || ExecutionResult::NotConfirmed(TaskStoreError::Indeterminate);
        let written = {
            let stream = &mut self.stream;
            let mut write = std::pin::pin!(async {
                let mut written = stream.append(records).await;
                let mut pause = RepeatPause::default();
                while matches!(written, Err(TaskStoreError::Indeterminate)) {
                    // The message may be durable. The id of the message stays reserved until the store answers.
                    execution.finish(not_confirmed());
                    pause.wait().await;
                    written = stream.settle().await;
                }
                written
            });
            let mut late = std::pin::pin!(sleep(host.options().ending_write_max));
            let (mut is_late, mut is_stopped) = (false, false);
            loop {
                tokio::select! {
                    biased;
                    written = &mut write => break written,
                    () = &mut late, if !is_late => {
                        is_late = true;
                        execution.finish(not_confirmed());
                    }
                    () = execution.scope.stopped(), if !is_stopped => {
                        // The execution has not started any work, and will not start any from now on.
                        is_stopped = true;
                        guard.acknowledge();
                    }
                    _result = execution.result(), if !client.is_answered() => {
                        client.answer(Err(TaskStoreError::Indeterminate.into()));
                    }
                    () = host.shut_down() => return None,
                }
            }
        };
        if let Err(error) = written {
            self.refuse(error.into(), client);
            return None;
        }
        execution.withdraw_result();
        self.host.note(&self.stream);
        self.observe();
        execution.is_accepted.send_replace(true);
        let task = Arc::clone(self.stream.task()?);
        client.answer(Ok((self.stream.version(), task)));
        Some(())
    }
}
