//! The permissions of one session: the policy, and the grants of a person.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use super::grant::SessionGrant;
use super::mode::ModeSwitch;
use super::policy::{PermissionDecision, PermissionPolicy};
use super::prompter::PermissionQuestion;
use crate::tool::{ToolInvocation, ToolSpec};

/// The permissions of one session. Sessions do not share permissions: a grant in one session does not apply to other
/// sessions.
#[derive(Debug, Default)]
pub struct Permissions {
    policy: Arc<PermissionPolicy>,
    mode: ModeSwitch,
    folder: Option<PathBuf>,
    granted: watch::Sender<HashSet<SessionGrant>>,
}

impl Permissions {
    /// Creates the permissions of a new session under this policy, in the mode `ask`.
    pub fn new(policy: Arc<PermissionPolicy>) -> Self {
        Self {
            policy,
            mode: ModeSwitch::default(),
            folder: None,
            granted: watch::Sender::default(),
        }
    }

    /// Returns these permissions with the mode of this switch.
    #[must_use]
    pub fn in_mode(mut self, mode: ModeSwitch) -> Self {
        self.mode = mode;
        self
    }

    /// Returns these permissions for commands with this working directory.
    #[must_use]
    pub fn in_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Decides on a call with validated arguments. A grant does not override a denial.
    pub fn decide(&self, spec: &ToolSpec, invocation: &ToolInvocation) -> PermissionDecision {
        let folder = self.folder.as_deref();
        match self
            .policy
            .decide_in(folder, spec, invocation, self.mode.get())
        {
            PermissionDecision::Ask(question)
                if self.granted.borrow().contains(&question.grant) =>
            {
                PermissionDecision::Allow
            }
            decision => decision,
        }
    }

    /// Records [`super::PermissionAnswer::AllowForSession`] for this question.
    pub fn allow_for_session(&self, question: &PermissionQuestion) {
        self.granted
            .send_if_modified(|granted| granted.insert(question.grant.clone()));
    }

    /// Waits until the answer to another question also allows the call of this question. Never completes if only an
    /// answer to this question can allow the call ([`PermissionQuestion::doubt`]).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn granted(&self, question: &PermissionQuestion) {
        let mut granted = self.granted.subscribe();
        if question.doubt.is_none()
            && let Ok(_granted) = granted
                .wait_for(|granted| granted.contains(&question.grant))
                .await
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl From<Arc<PermissionPolicy>> for Permissions {
    fn from(policy: Arc<PermissionPolicy>) -> Self {
        Self::new(policy)
    }
}
