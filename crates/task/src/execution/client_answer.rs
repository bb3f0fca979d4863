//! Answer for the client whose message is not accepted yet.

use std::sync::Arc;

use allstop_core::MessageId;
use allstop_log::Version;
use tokio::sync::oneshot;

use crate::error::ExecuteError;
use crate::model::Task;

/// Receiver of the answer for the client whose message started the execution: the task after the message, and its
/// version.
pub(crate) type Acceptance = oneshot::Receiver<AcceptanceResult>;

type AcceptanceResult = Result<(Version, Arc<Task>), ExecuteError>;

pub(super) type AcceptanceSender = oneshot::Sender<AcceptanceResult>;

/// Answer for the client whose message is not accepted yet.
pub(super) struct ClientAnswer {
    sender: Option<AcceptanceSender>,
    /// Owner and id of the message. `None` if the message creates the task.
    pub(super) follow_up: Option<(Arc<str>, MessageId)>,
}

impl ClientAnswer {
    /// Creates the answer for a client. `follow_up` contains owner and id of the message if the task already exists.
    pub(super) fn new(sender: AcceptanceSender, follow_up: Option<(Arc<str>, MessageId)>) -> Self {
        Self {
            sender: Some(sender),
            follow_up,
        }
    }

    /// True if the client has received its answer.
    pub(super) fn is_answered(&self) -> bool {
        self.sender.is_none()
    }

    /// Sends the answer. Later calls have no effect.
    pub(super) fn answer(&mut self, result: AcceptanceResult) {
        if let Some(sender) = self.sender.take() {
            // The client may have disconnected.
            let _unheard = sender.send(result);
        }
    }
}
