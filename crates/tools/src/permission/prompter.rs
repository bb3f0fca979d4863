//! The permission question to a person, and the prompter that asks the question.

use std::fmt;
use std::sync::Arc;

use allstop_core::{CallId, SessionId};
use futures::future::BoxFuture;
use serde_json::Value;

use super::grant::SessionGrant;
use super::question_text::argument_lines;
use super::rule::PermissionRule;
use crate::effect::EffectPreview;
use crate::server_question::{FormAnswer, ServerQuestion};

/// Reason why only a person can allow a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// This rule, which denies calls, may cover the call.
    Rule(PermissionRule),
    /// The call repeats a call of an earlier turn, and may have had its effect already.
    Repetition {
        /// Description of the earlier call.
        before: Arc<str>,
        /// A rule that denies calls and may also cover this call.
        rule: Option<PermissionRule>,
    },
}

/// Question whether a call may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionQuestion {
    /// Session of the calling agent. The session of a sub-agent is `PARENT/CALL`.
    pub session_id: SessionId,
    /// Id of the call.
    pub call_id: CallId,
    /// Name of the tool.
    pub tool: Arc<str>,
    /// Arguments of the call.
    pub arguments: Arc<Value>,
    /// The call in one line for people. Characters that control a terminal, or that are invisible on a terminal, are
    /// escaped.
    pub text: String,
    /// The beginning of `text`, without the command or the other arguments, for displays with several lines. The
    /// arguments follow as [`PermissionQuestion::argument_lines`].
    pub subject: String,
    /// Preview of the call's effect, if its tool provides one.
    pub preview: Option<Arc<EffectPreview>>,
    /// Description of the calls that [`PermissionAnswer::AllowForSession`] would allow.
    pub session_scope: String,
    /// Reason why only a person can allow the call, if there is one; see
    /// [`PermissionQuestion::restrict_advance_answer`].
    pub doubt: Option<Doubt>,
    /// Calls that [`PermissionAnswer::AllowForSession`] would allow, in the form that [`super::Permissions`] stores.
    pub(super) grant: SessionGrant,
}

impl PermissionQuestion {
    /// Restricts an answer that was given in advance for all questions. Such an answer cannot allow a call if
    /// [`doubt`](Self::doubt) names a denying rule that may cover the call.
    #[must_use]
    pub fn restrict_advance_answer(&self, answer: PermissionAnswer) -> PermissionAnswer {
        if self.doubt.is_some() && answer.allows() {
            PermissionAnswer::Unanswered
        } else {
            answer
        }
    }

    /// True if [`PermissionAnswer::AllowForSession`] to `other` also allows the call of this question.
    pub fn is_covered_by(&self, other: &Self) -> bool {
        self.doubt.is_none() && self.grant == other.grant
    }

    /// Returns the whole command, or all arguments of another tool, in lines that are escaped like `text`. If the call
    /// has a [`preview`](Self::preview) of a change, displays show the change instead of these lines.
    pub fn argument_lines(&self) -> Vec<String> {
        let is_command = matches!(self.grant, SessionGrant::Command { .. });
        argument_lines(&self.arguments, is_command)
    }

    /// Reason of the denial if no person answers the question, for the model and for the list of denials.
    pub fn unanswered(&self) -> String {
        match &self.doubt {
            Some(Doubt::Repetition { before, .. }) => format!(
                "denied: the same call of an earlier turn may have had its effect ({before}), and no person has allowed it. \
                 Check whether it has; do not repeat the call without being asked to (setting `repeat_unknown` of the \
                 permissions)"
            ),
            Some(Doubt::Rule(rule)) => format!(
                "denied: this command may do what the permission rule `{rule}` denies, and no person has allowed it. Write plain \
                 commands: each program by its name, without another program that starts it, substitutions, \
                 assignments, or options before a subcommand"
            ),
            None => "denied: no terminal or client to ask".to_owned(),
        }
    }
}

/// Answer of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionAnswer {
    /// Allow this call.
    AllowOnce,
    /// Allow this call and similar calls until the session ends.
    AllowForSession,
    /// Deny this call. The turn continues.
    Deny {
        /// Reason in the person's own words, which the model reads in the result of the call.
        reason: Option<Arc<str>>,
    },
    /// No person can answer. The call does not run, and the model gets the reason.
    Unanswered,
}

/// Maximum length of a reason for a denial, in bytes: a page. The model reads the reason in each later step.
const REASON_BYTES_MAX: usize = 4 * 1024;

impl PermissionAnswer {
    /// Denies without a reason.
    #[must_use]
    pub const fn deny() -> Self {
        Self::Deny { reason: None }
    }

    /// Denies with a reason, which is cut after 4 KiB. A blank reason counts as no reason.
    #[must_use]
    pub fn deny_because(reason: &str) -> Self {
        let reason = reason.trim();
        let reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
        Self::Deny {
            reason: (!reason.is_empty()).then(|| reason.into()),
        }
    }

    /// True if the call may run.
    #[must_use]
    pub fn allows(&self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowForSession)
    }
}

/// Interface for questions to a person.
pub trait Prompter: Send + Sync + fmt::Debug {
    /// Asks, and waits for the answer without a time limit. Several questions may be open at the same time: those of
    /// the calls of one step, and those of sub-agents.
    ///
    /// # Cancel safety
    /// A stop drops the future; the prompter must then remove the question from all displays.
    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer>;

    /// Asks the question of a tool's server, and waits for the answer without a time limit. The default answers that no
    /// person can be asked.
    ///
    /// # Cancel safety
    /// A stop drops the future; the prompter must then remove the question from all displays.
    fn answer_server(&self, question: ServerQuestion) -> BoxFuture<'_, FormAnswer> {
        drop(question);
        Box::pin(std::future::ready(FormAnswer::Unanswered))
    }

    /// True if a person may see the next question. If false, no [`preview`](PermissionQuestion::preview) is computed.
    fn shows_questions(&self) -> bool {
        true
    }
}

/// A prompter that gives the same answer to every question: an approval that was given in advance, or a denial because
/// no person can be asked. An approval does not allow a call that a denying rule may cover
/// ([`PermissionQuestion::restrict_advance_answer`]).
#[derive(Debug, Clone)]
pub struct FixedAnswer(pub PermissionAnswer);

impl Prompter for FixedAnswer {
    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        let answer = question.restrict_advance_answer(self.0.clone());
        Box::pin(std::future::ready(answer))
    }

    fn shows_questions(&self) -> bool {
        false
    }
}
