//! The permissions of one session: the policy, and what a person has allowed on top of it.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::policy::{Decision, PermissionPolicy};
use super::prompter::Question;
use crate::tool::{ToolInvocation, ToolSpec};

/// What a person allowed until the session ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Grant {
    /// Every call of a tool.
    Tool(Arc<str>),
    /// One shell command, word for word.
    Command(Arc<str>),
}

/// The permissions of one session. Never shared between sessions: a yes in one is none in another.
#[derive(Debug, Default)]
pub struct Permissions {
    policy: Arc<PermissionPolicy>,
    granted: Mutex<HashSet<Grant>>,
}

impl Permissions {
    /// Those of a new session under this policy.
    pub fn new(policy: Arc<PermissionPolicy>) -> Self {
        Self {
            policy,
            granted: Mutex::default(),
        }
    }

    /// Decides about a call whose arguments were checked. What the policy denies stays denied.
    pub fn decide(&self, spec: &ToolSpec, invocation: &ToolInvocation) -> Decision {
        match self.policy.decide(spec, invocation) {
            Decision::Ask(question) if self.granted.lock().contains(&question.grant) => {
                Decision::Allow
            }
            decision => decision,
        }
    }

    /// Keeps [`super::Answer::AllowForSession`] to this question.
    pub fn allow_for_session(&self, question: &Question) {
        self.granted.lock().insert(question.grant.clone());
    }
}
