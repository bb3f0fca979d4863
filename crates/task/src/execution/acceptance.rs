//! Acceptance of a message: it is durable, refused, or in doubt until the store tells.

use std::sync::Arc;

use allstop_core::MessageId;
use allstop_log::Version;
use allstop_scope::EngineGuard;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::ending::{REPEAT_MAX, REPEAT_MIN};
use super::{ExecutionEngine, ExecutionJob, ExecutionResult};
use crate::error::{ExecuteError, TaskStoreError};
use crate::model::{Task, TaskRecord};

/// Answer for the client whose message started the execution: the task behind the message, and its version.
pub(crate) type Acceptance = oneshot::Receiver<AcceptanceResult>;

type AcceptanceResult = Result<(Version, Arc<Task>), ExecuteError>;

pub(super) type AcceptanceSender = oneshot::Sender<AcceptanceResult>;

/// The client's side of a message that is not accepted yet.
pub(super) struct ClientAnswer {
    sender: Option<AcceptanceSender>,
    /// Owner and id of a message to an existing task.
    follow_up: Option<(Arc<str>, MessageId)>,
}

impl ClientAnswer {
    pub(super) fn of(sender: AcceptanceSender, job: &ExecutionJob) -> Self {
        let follow_up = match job {
            ExecutionJob::Message { owner, message } => {
                Some((Arc::clone(owner), message.id.clone()))
            }
            _ => None,
        };
        Self {
            sender: Some(sender),
            follow_up,
        }
    }

    fn is_answered(&self) -> bool {
        self.sender.is_none()
    }

    /// Answers once.
    fn answer(&mut self, result: AcceptanceResult) {
        if let Some(sender) = self.sender.take() {
            // The client may be gone.
            let _unheard = sender.send(result);
        }
    }
}

impl ExecutionEngine {
    /// Ends an execution whose message was not accepted.
    pub(super) fn refuse(&self, error: ExecuteError, mut client: ClientAnswer) {
        if let Some((owner, message)) = &client.follow_up {
            self.manager.forget_message(owner, message);
        }
        self.execution
            .finish(ExecutionResult::NotStarted(error.clone()));
        client.answer(Err(error));
    }

    /// Stores the message and answers its client. `None`: it is refused, or the store does not tell.
    pub(super) async fn accept(
        &mut self,
        records: Vec<TaskRecord>,
        mut client: ClientAnswer,
        guard: &EngineGuard,
    ) -> Option<()> {
        let (execution, manager) = (Arc::clone(&self.execution), Arc::clone(&self.manager));
        let not_confirmed = || ExecutionResult::NotConfirmed(TaskStoreError::Indeterminate);
        let written = {
            let stream = &mut self.stream;
            let mut write = std::pin::pin!(async {
                let mut written = stream.append(records).await;
                let mut pause = REPEAT_MIN;
                while matches!(written, Err(TaskStoreError::Indeterminate)) {
                    // The message may be durable: its id stays taken until the store tells.
                    execution.finish(not_confirmed());
                    sleep(pause).await;
                    pause = REPEAT_MAX.min(pause * 2);
                    written = stream.settle().await;
                }
                written
            });
            let mut late = std::pin::pin!(sleep(manager.options.ending_write_max));
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
                        // Nothing runs yet, and nothing starts any more.
                        is_stopped = true;
                        guard.acknowledge();
                    }
                    _result = execution.result(), if !client.is_answered() => {
                        client.answer(Err(TaskStoreError::Indeterminate.into()));
                    }
                    () = manager.shut_down() => return None,
                }
            }
        };
        if let Err(error) = written {
            self.refuse(error.into(), client);
            return None;
        }
        execution.withdraw_result();
        self.manager.note(&self.stream);
        execution.is_accepted.send_replace(true);
        let task = Arc::clone(self.stream.task()?);
        client.answer(Ok((self.stream.version(), task)));
        Some(())
    }
}
