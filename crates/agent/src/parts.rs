//! Parts of an agent, for its runs and turns.

use std::sync::Arc;

use allstop_core::Timestamp;
use allstop_core::process::ProcessIdentity;
use allstop_model::Model;
use allstop_tools::{Permissions, Prompter};

use crate::guardrail::Guardrail;
use crate::home_scope::HomeScope;
use crate::hook::Hook;
use crate::settings::Settings;
use crate::span_links::SpanLinks;
use crate::toolbox::Toolbox;

pub(crate) struct AgentParts {
    /// Name of the agent in traces.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) tools: Toolbox,
    pub(crate) settings: Settings,
    pub(crate) hooks: Vec<Arc<dyn Hook>>,
    pub(crate) guardrails: Vec<Arc<dyn Guardrail>>,
    pub(crate) permissions: Option<Arc<Permissions>>,
    pub(crate) prompter: Arc<dyn Prompter>,
    pub(crate) now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    pub(crate) owner: Option<ProcessIdentity>,
    pub(crate) home: Arc<HomeScope>,
    pub(crate) spans: Option<Arc<dyn SpanLinks>>,
}

impl AgentParts {
    /// Name of the model for its next call.
    pub(crate) fn model_name(&self) -> Arc<str> {
        self.model.name().into()
    }

    /// Copies the parts, with these tools and settings.
    pub(crate) fn with(&self, tools: Toolbox, settings: Settings) -> Self {
        Self {
            name: self.name.clone(),
            model: Arc::clone(&self.model),
            tools,
            settings,
            hooks: self.hooks.clone(),
            guardrails: self.guardrails.clone(),
            permissions: self.permissions.clone(),
            prompter: Arc::clone(&self.prompter),
            now: Arc::clone(&self.now),
            owner: self.owner.clone(),
            home: Arc::clone(&self.home),
            spans: self.spans.clone(),
        }
    }
}

impl std::fmt::Debug for AgentParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("model", &self.model.name())
            .field("tools", &self.tools.now().declarations.len())
            .finish_non_exhaustive()
    }
}
