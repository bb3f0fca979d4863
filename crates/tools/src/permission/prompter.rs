//! The question to a person, and who asks it.

use std::fmt;
use std::sync::Arc;

use allstop_core::{CallId, SessionId};
use futures::future::BoxFuture;

use super::rule::Rule;

/// May this call run?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The session of the agent that wants it; a sub-agent's is called `PARENT/CALL`.
    pub session_id: SessionId,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: Arc<str>,
    /// The call, in one line for people: what could drive the terminal that asks, or is invisible on it, is
    /// escaped.
    pub text: String,
    /// What [`Answer::AllowForSession`] would allow from then on, in words.
    pub session_scope: String,
    /// The denying rule that may be meant, if one is. Only a person can then say yes: see [`Question::unasked`].
    pub doubt: Option<Rule>,
    /// What [`Answer::AllowForSession`] would allow, for [`super::Permissions`].
    pub(super) grant: super::session::Grant,
}

impl Question {
    /// The answer that was given beforehand to all questions, made fit for this one: a yes does not cover a call that a
    /// rule may deny.
    #[must_use]
    pub fn unasked(&self, answer: Answer) -> Answer {
        if self.doubt.is_some() && answer.allows() {
            Answer::Unanswered
        } else {
            answer
        }
    }

    /// The reason for the model and for the list of denials, where nobody could be asked.
    pub fn unanswered(&self) -> String {
        match &self.doubt {
            Some(rule) => format!(
                "denied, as nobody was asked: it cannot be told that this command does nothing that the permission rule \
                 `{rule}` denies. Write plain commands: each program by its name, without another program that starts it, \
                 substitutions, assignments, or options before a subcommand"
            ),
            None => "permission was denied: nobody was there to answer".to_owned(),
        }
    }
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

/// Answers every question alike: with a yes for people who said so beforehand, with a no where nobody can be asked. A
/// yes does not cover what a rule may deny ([`Question::unasked`]).
#[derive(Debug, Clone, Copy)]
pub struct FixedAnswer(pub Answer);

impl Prompter for FixedAnswer {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(std::future::ready(question.unasked(self.0)))
    }
}
