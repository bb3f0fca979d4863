//! The permissions of one session: the policy, and the grants of a person.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::policy::{Decision, PermissionPolicy};
use super::prompter::Question;
use crate::tool::{ToolInvocation, ToolSpec};

/// A permission that a person granted until the session ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Grant {
    /// Every call of a tool.
    Tool(Arc<str>),
    /// One shell command, word for word.
    Command(Arc<str>),
}

/// The permissions of one session. Not shared: a grant in one session does not apply to others.
#[derive(Debug, Default)]
pub struct Permissions {
    policy: Arc<PermissionPolicy>,
    granted: Mutex<HashSet<Grant>>,
}

impl Permissions {
    /// Creates the permissions of a new session under this policy.
    pub fn new(policy: Arc<PermissionPolicy>) -> Self {
        Self {
            policy,
            granted: Mutex::default(),
        }
    }

    /// Decides on a call with validated arguments. A grant does not override a denial.
    pub fn decide(&self, spec: &ToolSpec, invocation: &ToolInvocation) -> Decision {
        match self.policy.decide(spec, invocation) {
            Decision::Ask(question) if self.granted.lock().contains(&question.grant) => {
                Decision::Allow
            }
            decision => decision,
        }
    }

    /// Records [`super::Answer::AllowForSession`] for this question.
    pub fn allow_for_session(&self, question: &Question) {
        self.granted.lock().insert(question.grant.clone());
    }
}
