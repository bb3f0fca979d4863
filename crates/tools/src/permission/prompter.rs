//! The question to a person, and the prompter that asks it.

use std::fmt;
use std::sync::Arc;

use allstop_core::{CallId, SessionId};
use futures::future::BoxFuture;

use super::rule::Rule;

/// Question whether a call may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Session of the calling agent; that of a sub-agent is `PARENT/CALL`.
    pub session_id: SessionId,
    /// Id of the call.
    pub call_id: CallId,
    /// Name of the tool.
    pub tool: Arc<str>,
    /// The call in one line for people. Characters that control a terminal or are invisible on it are escaped.
    pub text: String,
    /// Description of the calls that [`Answer::AllowForSession`] would allow.
    pub session_scope: String,
    /// Denying rule that may cover the call, if any. Then only a person can allow it: see [`Question::unasked`].
    pub doubt: Option<Rule>,
    /// Calls that [`Answer::AllowForSession`] would allow, for [`super::Permissions`].
    pub(super) grant: super::session::Grant,
}

impl Question {
    /// Restricts an answer that was given in advance for all questions: it cannot allow a call that a rule may deny.
    #[must_use]
    pub fn unasked(&self, answer: Answer) -> Answer {
        if self.doubt.is_some() && answer.allows() {
            Answer::Unanswered
        } else {
            answer
        }
    }

    /// Reason of the denial without an answer, for the model and for the list of denials.
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

/// Answer of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Allow this call.
    AllowOnce,
    /// Allow this call and similar calls until the session ends.
    AllowForSession,
    /// Deny this call. The model gets the reason, and the turn continues.
    Deny,
    /// No person can answer. The call does not run, and the model gets the reason.
    Unanswered,
}

impl Answer {
    /// True if the call may run.
    #[must_use]
    pub fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowForSession)
    }
}

/// Interface for questions to a person.
pub trait Prompter: Send + Sync + fmt::Debug {
    /// Asks, and waits for the answer without a time limit.
    ///
    /// # Cancel safety
    /// A stop drops the future; the prompter must then remove the question from all displays.
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer>;
}

/// A prompter with one answer to every question: an approval given in advance, or a denial if nobody can be asked. An
/// approval does not allow a call that a rule may deny ([`Question::unasked`]).
#[derive(Debug, Clone, Copy)]
pub struct FixedAnswer(pub Answer);

impl Prompter for FixedAnswer {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(std::future::ready(question.unasked(self.0)))
    }
}
