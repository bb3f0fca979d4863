//! Parts of a session that its clients choose.

use std::path::PathBuf;
use std::sync::Arc;

use allstop_model::{Model, ReasoningEffort};
use allstop_runtime::{AutoCompaction, System, SystemPrompt};
use serde_json::Value;

use super::attached_clients::ClientOptions;
use super::canvases::ClientCanvases;
use super::client_tools::{DeclaredTool, ToolSelection};
use super::credit_limit::SessionLimits;
use super::fixed_settings::FixedSettings;
use crate::client_parts::{ClientAgent, ClientParts};
use crate::connection::Client;
use crate::provider::ClientProviders;
use crate::text_only_model::TextOnlyModel;

/// Parts of a session, as chosen by the client that opens the session.
#[derive(Debug, Clone)]
pub(crate) struct SessionChoice {
    pub model: Option<Arc<dyn Model>>,
    pub model_name: Option<Arc<str>>,
    /// False if the model gets no images.
    pub sees_images: bool,
    /// Limits of the cost.
    pub limits: SessionLimits,
    pub providers: ClientProviders,
    pub reasoning_effort: Option<ReasoningEffort>,
    pub parts: ClientParts,
    pub folder: Option<PathBuf>,
    pub system_prompt: SystemPrompt,
    /// The client that has requested these parts.
    pub client: Arc<Client>,
    pub filter: ToolSelection,
    /// `None` if the client declares no tools, which leaves the tools of other clients unchanged.
    pub declared: Option<Vec<DeclaredTool>>,
    pub client_options: ClientOptions,
    pub streaming: bool,
    /// Context window of the model in tokens.
    pub context_window: u64,
    /// Automatic compaction between two turns.
    pub compaction: AutoCompaction,
    pub resume: ResumeChoice,
    /// Slash commands of the client; null if it declares none.
    pub commands: Value,
    pub canvases: ClientCanvases,
    /// The settings among these parts that an open session does not change, as far as the client requests them.
    pub requested: FixedSettings,
    /// Warnings about requested parts that the server does not offer.
    pub not_offered: Vec<Arc<str>>,
}

/// Parameters of a resume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ResumeChoice {
    /// True if the work of the session should continue, and false if it should be stopped before the resume. `None` if the
    /// client makes no choice; the work then continues.
    pub continues_work: Option<bool>,
    /// True if no event reports the resume.
    pub is_silent: bool,
}

impl SessionChoice {
    /// Returns this choice, with the parts that it does not request from the earlier choice.
    pub(crate) fn over(&self, before: Self) -> Self {
        let mut choice = self.clone();
        let requested = &mut choice.requested;
        if requested.model.is_none() && requested.provider.is_none() {
            (choice.model, choice.model_name) = (before.model, before.model_name);
            requested.provider = before.requested.provider;
            choice.providers = before.providers;
        }
        if !requested.further.contains_key("reasoningEffort") {
            choice.reasoning_effort = before.reasoning_effort;
        }
        let (parts, earlier) = (&mut choice.parts, before.parts);
        parts.sub_agent_settings = earlier.sub_agent_settings;
        if !requested.further.contains_key("mcpServers") {
            (parts.servers, parts.disabled_servers) = (earlier.servers, earlier.disabled_servers);
            parts.env_value_mode = earlier.env_value_mode;
        }
        if !requested.further.contains_key("modelCapabilities") {
            choice.sees_images = before.sees_images;
        }
        if !requested.further.contains_key("sessionLimits") {
            choice.limits = before.limits;
        }
        if !requested.further.contains_key("infiniteSessions") {
            choice.compaction = before.compaction;
        }
        if !requested.further.contains_key("pluginDirectories") {
            parts.plugin_folders = earlier.plugin_folders;
        }
        if !requested.further.contains_key("customAgents") {
            parts.agents = earlier.agents;
        }
        if !requested.further.contains_key("excludedBuiltinAgents") {
            parts.excluded_agents = earlier.excluded_agents;
        }
        if !requested.further.contains_key("agent") {
            parts.agent = earlier.agent;
        }
        if !requested.further.contains_key("skillDirectories") {
            parts.skill_folders = earlier.skill_folders;
            parts.disabled_skills = earlier.disabled_skills;
            parts.searches_folder = earlier.searches_folder;
        }
        for (name, value) in before.requested.further {
            requested.further.entry(name).or_insert(value);
        }
        if requested.system_message.is_none() {
            choice.system_prompt = before.system_prompt;
            requested.system_message = before.requested.system_message;
        }
        if requested.available_tools.is_none() {
            choice.filter.available = before.filter.available;
        }
        if requested.excluded_tools.is_none() {
            choice.filter.excluded = before.filter.excluded;
        }
        choice.folder = choice.folder.or(before.folder);
        choice.declared = choice.declared.or(before.declared);
        choice
    }
}

impl SessionChoice {
    /// Model for the session; `None` for the configured model with images.
    pub(super) fn session_model(&self, system: &System) -> Option<Arc<dyn Model>> {
        if self.sees_images {
            return self.model.clone();
        }
        let model = self.model.as_ref().unwrap_or_else(|| system.model());
        Some(self.as_shown(Arc::clone(model)))
    }

    /// Returns the model without images, if the client has switched off the vision of its model.
    pub(super) fn as_shown(&self, model: Arc<dyn Model>) -> Arc<dyn Model> {
        if self.sees_images {
            model
        } else {
            Arc::new(TextOnlyModel::new(model))
        }
    }

    /// System prompt with the instructions of the selected agent.
    pub(super) fn prompt_of_agent(&self) -> SystemPrompt {
        let Some(agent) = self.parts.selected() else {
            return self.system_prompt.clone();
        };
        let with = |before: &str| Arc::from(format!("{before}\n\n{}", agent.prompt).trim_start());
        match &self.system_prompt {
            SystemPrompt::Replaced(before) => SystemPrompt::Replaced(with(before)),
            SystemPrompt::Appended(before) => SystemPrompt::Appended(with(before)),
            _ => SystemPrompt::Appended(with("")),
        }
    }

    /// Selection of the tools, without the tools that the selected agent does not have.
    pub(super) fn filter_of_agent(&self) -> ToolSelection {
        let of_agent = self.parts.selected().and_then(ClientAgent::chosen_tools);
        ToolSelection {
            of_agent,
            ..self.filter.clone()
        }
    }
}
