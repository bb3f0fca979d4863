//! The question to a person, and who asks it.

use std::fmt;
use std::sync::Arc;

use allstop_core::{CallId, SessionId};
use futures::future::BoxFuture;

/// May this call run?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The session of the agent that wants it; a sub-agent's is called `PARENT/CALL`.
    pub session_id: SessionId,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: Arc<str>,
    /// What would run, in one line for people: what could drive the terminal that asks, or is invisible on it, is
    /// escaped.
    pub text: String,
    /// What [`Answer::AllowForSession`] would allow from then on, in words.
    pub session_scope: String,
    /// What [`Answer::AllowForSession`] would allow, for [`super::Permissions`].
    pub(super) grant: super::session::Grant,
}

/// What the person said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// This once.
    AllowOnce,
    /// This, and its like until the session ends.
    AllowForSession,
    /// No. The model is told, and the turn goes on.
    Deny,
    /// Nobody is there who could say. The call does not run, and the model is told why.
    Unanswered,
}

impl Answer {
    /// Whether the call may run.
    #[must_use]
    pub fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowForSession)
    }
}

/// Asks a person.
pub trait Prompter: Send + Sync + fmt::Debug {
    /// Asks, and waits for the answer as long as it takes.
    ///
    /// # Cancel safety
    /// The loop drops the future when a stop comes first; the question must then vanish from wherever it was shown.
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer>;
}

/// Answers every question alike: with a yes for people who said so beforehand, with a no where nobody can be asked.
#[derive(Debug, Clone, Copy)]
pub struct FixedAnswer(pub Answer);

impl Prompter for FixedAnswer {
    fn ask(&self, _question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(std::future::ready(self.0))
    }
}
