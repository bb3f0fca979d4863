//! The question to a person, and the prompter that asks it.

use std::fmt;
use std::sync::Arc;

use allstop_core::{CallId, SessionId};
use futures::future::BoxFuture;
use serde_json::Value;

use super::rule::PermissionRule;

/// Question whether a call may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionQuestion {
    /// Session of the calling agent; that of a sub-agent is `PARENT/CALL`.
    pub session_id: SessionId,
    /// Id of the call.
    pub call_id: CallId,
    /// Name of the tool.
    pub tool: Arc<str>,
    /// Arguments of the call.
    pub arguments: Arc<Value>,
    /// The call in one line for people. Characters that control a terminal or are invisible on it are escaped.
    pub text: String,
    /// Description of the calls that [`PermissionAnswer::AllowForSession`] would allow.
    pub session_scope: String,
    /// Denying rule that may cover the call, if any. Then only a person can allow it: see
    /// [`PermissionQuestion::restrict_advance_answer`].
    pub doubt: Option<PermissionRule>,
    /// Calls that [`PermissionAnswer::AllowForSession`] would allow, for [`super::Permissions`].
    pub(super) grant: super::session::SessionGrant,
}

impl PermissionQuestion {
    /// Restricts an answer that was given in advance for all questions: it cannot allow a call that a rule may deny.
    #[must_use]
    pub fn restrict_advance_answer(&self, answer: PermissionAnswer) -> PermissionAnswer {
        if self.doubt.is_some() && answer.allows() {
            PermissionAnswer::Unanswered
        } else {
            answer
        }
    }

    /// Reason of the denial without an answer, for the model and for the list of denials.
    pub fn unanswered(&self) -> String {
        match &self.doubt {
            Some(rule) => format!(
                "denied: this command may do what the permission rule `{rule}` denies, and no person was asked. Write plain \
                 commands: each program by its name, without another program that starts it, substitutions, \
                 assignments, or options before a subcommand"
            ),
            None => "denied: no terminal or client to ask".to_owned(),
        }
    }
}

/// Answer of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionAnswer {
    /// Allow this call.
    AllowOnce,
    /// Allow this call and similar calls until the session ends.
    AllowForSession,
    /// Deny this call. The model gets the reason, and the turn continues.
    Deny,
    /// No person can answer. The call does not run, and the model gets the reason.
    Unanswered,
}

impl PermissionAnswer {
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
    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer>;
}

/// A prompter with one answer to every question: an approval given in advance, or a denial if nobody can be asked. An
/// approval does not allow a call that a rule may deny ([`PermissionQuestion::restrict_advance_answer`]).
#[derive(Debug, Clone, Copy)]
pub struct FixedAnswer(pub PermissionAnswer);

impl Prompter for FixedAnswer {
    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(std::future::ready(question.restrict_advance_answer(self.0)))
    }
}
