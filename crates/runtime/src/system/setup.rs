//! Parts of a session that its opener (the caller that opens the session) chooses instead of the configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_agent::{Hook, SubAgentKind, SubAgentToolForm};
use allstop_core::Timestamp;
use allstop_core::turn::{CallTexts, StopPolicy};
use allstop_model::{Model, ReasoningEffort};
use allstop_session::{CompactionLimits, FollowUp, SessionOptions};
use allstop_tools::external::LateAnswer;
use allstop_tools::mcp::McpServers;
use allstop_tools::permission::ModeSwitch;
use allstop_tools::{Tool, ToolSource};

use crate::config::Config;
use crate::definitions::SkillDefinition;
use crate::prompt::{ComposedPrompt, PromptTools};

/// Recipient of permission questions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuestionRecipient {
    /// Subscribers of the session.
    Subscribers,
    /// The prompter of the system.
    #[default]
    Prompter,
}

/// Parts of a session that its opener chooses. The configuration supplies all other parts.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
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
    /// Hooks, called before the hooks of the configuration.
    pub hooks: Vec<Arc<dyn Hook>>,
    /// Policy for a message that arrives while a turn runs.
    pub follow_up: Option<FollowUp>,
    /// Automatic compaction.
    pub compaction: AutoCompaction,
    /// Part of a stopped turn that stays in the conversation, if the configuration does not choose it.
    pub stop_policy: Option<StopPolicy>,
    /// Wording for the model about calls without a result.
    pub call_texts: Option<Arc<CallTexts>>,
    /// Mode of the session's permissions, which the opener may change.
    pub mode: Option<ModeSwitch>,
    /// Effort of reasoning, if the opener chooses it.
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Further MCP servers. Their opener starts and closes them.
    pub servers: Option<Arc<McpServers>>,
    /// Skills of a session whose opener chooses the tools or the folder. Such a session has no configured skills.
    pub skills: BTreeMap<String, SkillDefinition>,
    /// Kinds of sub-agents of a session whose opener chooses the tools or the folder.
    pub sub_agents: Arc<[SubAgentKind]>,
}

/// Choice of the automatic compaction of a session, which replaces old turns by a summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AutoCompaction {
    /// As configured.
    #[default]
    Configured,
    /// No compaction between turns. A turn still shortens a request that is too long for the model.
    Off,
    /// With these limits.
    Limits(CompactionLimits),
}

impl AutoCompaction {
    /// Returns the options with this choice.
    pub(super) fn apply(self, options: SessionOptions) -> SessionOptions {
        match self {
            Self::Configured => options,
            Self::Off => options.compaction(None),
            Self::Limits(limits) => options.compaction(limits),
        }
    }
}

/// Choice of a system prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SystemPrompt {
    /// The configured or default prompt, with the project's instructions.
    #[default]
    Configured,
    /// The configured or default prompt with the project's instructions, followed by this text.
    Appended(Arc<str>),
    /// Only this text.
    Replaced(Arc<str>),
    /// A prompt that the opener has composed with [`System::compose_prompt`](super::System::compose_prompt) and changed.
    Composed(Arc<ComposedPrompt>),
}

impl SessionSetup {
    /// Sets the recipient of permission questions.
    #[must_use]
    pub fn recipient(mut self, recipient: QuestionRecipient) -> Self {
        self.recipient = recipient;
        self
    }

    /// Sets the model.
    #[must_use]
    pub fn model(mut self, model: impl Into<Option<Arc<dyn Model>>>) -> Self {
        self.model = model.into();
        self
    }

    /// Sets the working directory of the tools, which must exist.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<Option<PathBuf>>) -> Self {
        self.folder = folder.into();
        self
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn system_prompt(mut self, system_prompt: SystemPrompt) -> Self {
        self.system_prompt = system_prompt;
        self
    }

    /// Sets the tools.
    #[must_use]
    pub fn tools(mut self, tools: Arc<dyn SessionTools>) -> Self {
        self.tools = Some(tools);
        self
    }

    /// Sets the hooks, called before the hooks of the configuration.
    #[must_use]
    pub fn hooks(mut self, hooks: Vec<Arc<dyn Hook>>) -> Self {
        self.hooks = hooks;
        self
    }

    /// Sets the policy for a message that arrives while a turn runs.
    #[must_use]
    pub fn follow_up(mut self, follow_up: impl Into<Option<FollowUp>>) -> Self {
        self.follow_up = follow_up.into();
        self
    }

    /// Sets the automatic compaction.
    #[must_use]
    pub fn compaction(mut self, compaction: AutoCompaction) -> Self {
        self.compaction = compaction;
        self
    }

    /// Sets the part of a stopped turn that stays in the conversation, if the configuration does not choose it.
    #[must_use]
    pub fn stop_policy(mut self, stop_policy: impl Into<Option<StopPolicy>>) -> Self {
        self.stop_policy = stop_policy.into();
        self
    }

    /// Sets the wording for the model about calls without a result.
    #[must_use]
    pub fn call_texts(mut self, call_texts: impl Into<Option<Arc<CallTexts>>>) -> Self {
        self.call_texts = call_texts.into();
        self
    }

    /// Sets the mode of the session's permissions, which the opener may change.
    #[must_use]
    pub fn mode(mut self, mode: impl Into<Option<ModeSwitch>>) -> Self {
        self.mode = mode.into();
        self
    }

    /// Sets the effort of reasoning.
    #[must_use]
    pub fn reasoning_effort(mut self, effort: impl Into<Option<ReasoningEffort>>) -> Self {
        self.reasoning_effort = effort.into();
        self
    }

    /// Sets the further MCP servers, which their opener starts and closes.
    #[must_use]
    pub fn servers(mut self, servers: impl Into<Option<Arc<McpServers>>>) -> Self {
        self.servers = servers.into();
        self
    }

    /// Sets the skills, for a session whose opener chooses the tools or the folder.
    #[must_use]
    pub fn skills(mut self, skills: BTreeMap<String, SkillDefinition>) -> Self {
        self.skills = skills;
        self
    }

    /// Sets the kinds of sub-agents, for a session whose opener chooses the tools or the folder.
    #[must_use]
    pub fn sub_agents(mut self, sub_agents: impl Into<Arc<[SubAgentKind]>>) -> Self {
        self.sub_agents = sub_agents.into();
        self
    }

    /// Composes the system prompt of a session in this folder. Reads files, so call it on a thread that may block.
    pub(super) fn prompt(&self, config: &Config, folder: &Path, now: Timestamp) -> ComposedPrompt {
        let tools = match &self.tools {
            Some(_) => PromptTools::Chosen,
            None => PromptTools::Builtin,
        };
        let composed = || ComposedPrompt::compose(config, folder, tools, now);
        match &self.system_prompt {
            SystemPrompt::Configured => composed(),
            SystemPrompt::Appended(text) => composed().with_additions(text),
            SystemPrompt::Replaced(text) => ComposedPrompt::default().with_additions(text),
            SystemPrompt::Composed(prompt) => ComposedPrompt::clone(prompt),
        }
    }
}

/// Chooses the tools of one session.
pub trait SessionTools: Send + Sync + fmt::Debug {
    /// Returns the built-in tools that the session offers, possibly under other names.
    fn builtin(&self, tools: Vec<Arc<dyn Tool>>) -> Vec<Arc<dyn Tool>>;

    /// True if the session offers sub-agents.
    fn has_sub_agents(&self) -> bool;

    /// Form of the tool for sub-agents; `None` for the tool `agent` itself.
    fn sub_agent_form(&self) -> Option<SubAgentToolForm> {
        None
    }

    /// Further tools, in addition to the built-in tools and the tools of the MCP servers (`servers`). The further tools
    /// may change while the session is open. The implementation must call `on_late_answer` for an answer that arrives
    /// after the end of its call.
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
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("AGENTS.md"), "be exact").unwrap();
        let file = Path::new("test.toml");
        let config = Config::parse(file, "system_prompt = 'be brief'").unwrap();
        let text = || Arc::<str>::from("be kind");
        let of = |choice: SystemPrompt| {
            let setup = SessionSetup {
                system_prompt: choice,
                ..SessionSetup::default()
            };
            let prompt = setup.prompt(&config, place.path(), Timestamp::from_unix_ms(0));
            (prompt.text().unwrap(), prompt.instructions.files.len())
        };
        let (configured, files) = of(SystemPrompt::Configured);
        assert!(configured.starts_with("be brief\n\n") && configured.ends_with("be exact"));
        assert_eq!(files, 1);
        let (appended, files) = of(SystemPrompt::Appended(text()));
        assert_eq!(
            (&*appended, files),
            (&*format!("{configured}\n\nbe kind"), 1)
        );
        assert_eq!(of(SystemPrompt::Replaced(text())), (text(), 0));
    }
}
