//! Parts of a session that its opener chooses in the place of the configuration.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use allstop_agent::Hook;
use allstop_model::Model;
use allstop_session::FollowUp;
use allstop_tools::external::LateAnswer;
use allstop_tools::{Tool, ToolSource};

/// Recipient of permission questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionRecipient {
    /// Subscribers of the session.
    Subscribers,
    /// The prompter of the system.
    Prompter,
}

/// Parts of a session that its opener chooses. What it leaves out comes from the configuration.
#[derive(Debug, Clone)]
pub struct SessionSetup {
    /// Recipient of permission questions.
    pub recipient: QuestionRecipient,
    /// The model.
    pub model: Option<Arc<dyn Model>>,
    /// Working directory of the tools, which must exist.
    pub folder: Option<PathBuf>,
    /// The system prompt.
    pub system_prompt: SystemPrompt,
    /// The tools.
    pub tools: Option<Arc<dyn SessionTools>>,
    /// Hooks, called before those of the configuration.
    pub hooks: Vec<Arc<dyn Hook>>,
    /// Policy for a message that arrives while a turn runs.
    pub follow_up: Option<FollowUp>,
}

impl SessionSetup {
    /// A session as the configuration has it.
    pub fn configured(recipient: QuestionRecipient) -> Self {
        Self {
            recipient,
            model: None,
            folder: None,
            system_prompt: SystemPrompt::default(),
            tools: None,
            hooks: Vec::new(),
            follow_up: None,
        }
    }
}

/// Choice of a system prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SystemPrompt {
    /// The one of the configuration.
    #[default]
    Configured,
    /// The one of the configuration, then this text.
    Appended(Arc<str>),
    /// This text.
    Replaced(Arc<str>),
}

impl SystemPrompt {
    pub(super) fn of(&self, configured: Option<Arc<str>>) -> Option<Arc<str>> {
        match (self, configured) {
            (Self::Configured, configured) => configured,
            (Self::Appended(text), Some(configured)) => {
                Some(format!("{configured}\n\n{text}").into())
            }
            (Self::Appended(text) | Self::Replaced(text), _) => Some(Arc::clone(text)),
        }
    }
}

/// Chooses the tools of one session.
pub trait SessionTools: Send + Sync + fmt::Debug {
    /// The tools that the session offers of these built-in ones, also under other names.
    fn builtin(&self, tools: Vec<Arc<dyn Tool>>) -> Vec<Arc<dyn Tool>>;

    /// True if the session offers sub-agents.
    fn has_sub_agents(&self) -> bool;

    /// Tools beside the built-in ones and those of `servers`, the MCP servers; they may change while the session is open.
    /// `on_late_answer` is to be called for an answer that comes after the end of its call.
    fn source(
        &self,
        servers: Arc<dyn ToolSource>,
        on_late_answer: Arc<dyn Fn(LateAnswer) + Send + Sync>,
    ) -> Arc<dyn ToolSource>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_prompt_is_appended_or_replaced() {
        let configured = || Some(Arc::<str>::from("be brief"));
        let text = || Arc::<str>::from("be kind");
        let of =
            |choice: SystemPrompt, configured| choice.of(configured).map(|text| text.to_string());
        assert_eq!(
            of(SystemPrompt::Configured, configured()).unwrap(),
            "be brief"
        );
        assert_eq!(
            of(SystemPrompt::Appended(text()), configured()).unwrap(),
            "be brief\n\nbe kind"
        );
        assert_eq!(of(SystemPrompt::Appended(text()), None).unwrap(), "be kind");
        assert_eq!(
            of(SystemPrompt::Replaced(text()), configured()).unwrap(),
            "be kind"
        );
    }
}
