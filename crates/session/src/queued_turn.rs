//! Queued turn of one message. A stop covers the turn even before it begins.

use std::sync::Arc;

use allstop_agent::{Prompt, RunControls};
use allstop_core::decision::CommitDecision;
use allstop_core::record::TurnOrigin;
use allstop_core::turn::StopPolicy;
use allstop_core::{Cause, CauseKind, Extent, MessageId};
use allstop_scope::{Deadline, NotStarted, Scope, ScopeOptions, StopRequest};

use crate::message::MessageState;

/// Queued turn of one message. The scope of the turn exists from the moment when the message is accepted. If a stop
/// comes before the turn begins, the turn therefore ends at its start.
#[derive(Debug)]
pub(crate) struct QueuedTurn {
    pub(crate) prompt: Prompt,
    pub(crate) scope: Scope,
    pub(crate) decision: Arc<CommitDecision>,
    pub(crate) controls: Arc<RunControls>,
    pub(crate) state: Arc<MessageState>,
}

impl QueuedTurn {
    pub(crate) fn open(
        above: &Scope,
        label: String,
        prompt: Prompt,
        deadline: Option<Deadline>,
    ) -> Result<Arc<Self>, NotStarted> {
        let decision = Arc::new(CommitDecision::new());
        let options = ScopeOptions::default()
            .decision(Arc::clone(&decision))
            .deadline(deadline);
        let controls = Arc::<RunControls>::default();
        Ok(Arc::new(Self {
            scope: above.child(label, options)?,
            prompt,
            state: Arc::new(MessageState::new(
                Arc::clone(&decision),
                Arc::clone(&controls),
            )),
            decision,
            controls,
        }))
    }

    pub(crate) fn message(&self) -> Option<&MessageId> {
        self.prompt.message.as_ref()
    }

    /// True if a message caused the turn; false if ended background work caused it.
    pub(crate) fn is_from_user(&self) -> bool {
        self.prompt.origin == TurnOrigin::User
    }

    /// True for a command that calls the model outside the conversation, such as a compaction. It is no turn.
    pub(crate) fn is_command(&self) -> bool {
        self.is_from_user() && self.message().is_none()
    }

    /// Stops the turn, running or waiting. If the turn is already committed, stops the hooks that run at its end. The
    /// outcome of the message contains the receipt of the stop, unless only hooks were stopped.
    pub(crate) fn stop(&self, cause: Cause, background: &Scope) {
        let order = StopRequest::new(Extent::Turn, cause).bystander(background);
        let mut scopes = vec![self.scope.clone()];
        scopes.extend(self.controls.forbid_hooks_after_turn());
        let _its_receipt = self.scope.accept_stop_of(&scopes, order).begin();
    }

    /// Stops the turn because a newer message replaces it.
    pub(crate) fn supersede(&self, by: &MessageId, keep: StopPolicy, background: &Scope) {
        self.controls.supersede_with(keep);
        let cause = Cause::new(CauseKind::Superseded).detail(format!("by message {by}"));
        self.stop(cause, background);
    }
}
