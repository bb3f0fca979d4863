//! The agent: a model, tools, settings, hooks, guardrails.

use std::sync::Arc;
use std::time::SystemTime;

use allstop_core::Timestamp;
use allstop_core::process::ProcessIdentity;
use allstop_model::Model;
use allstop_scope::{Scope, catch_panic};
use allstop_tools::permission::FixedAnswer;
use allstop_tools::{PermissionAnswer, Permissions, Prompter, ToolRegistry, ToolSource};

use crate::event::EventSink;
use crate::guardrail::Guardrail;
use crate::hook::{self, Hook, HookCx, HookEvent};
use crate::parts::AgentParts;
use crate::run::{Run, RunRequest};
use crate::settings::Settings;
use crate::toolbox::Toolbox;

/// An agent. Clones share the same parts. An agent holds no conversation. An agent without permissions and sub-agents
/// can serve many sessions at once; see [`AgentBuilder::permissions`] and [`Agent::with_sub_agents`].
#[derive(Debug, Clone)]
pub struct Agent {
    parts: Arc<AgentParts>,
}

/// Builder of an [`Agent`].
#[must_use = "call build"]
pub struct AgentBuilder {
    parts: AgentParts,
}

impl std::fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.parts.fmt(f)
    }
}

impl Agent {
    /// Creates the builder of an agent with this model, no tools and no limits. Without [`AgentBuilder::permissions`]
    /// every tool call is allowed, because a program that registers a tool intends it to be called.
    pub fn builder(model: Arc<dyn Model>) -> AgentBuilder {
        let model_name = model.name().into();
        AgentBuilder {
            parts: AgentParts {
                model,
                model_name,
                tools: Toolbox::default(),
                settings: Settings::default(),
                hooks: Vec::new(),
                guardrails: Vec::new(),
                permissions: None,
                prompter: Arc::new(FixedAnswer(PermissionAnswer::deny())),
                now: Arc::new(|| SystemTime::now().into()),
                owner: None,
            },
        }
    }

    /// Limits, deadlines and policies of the agent.
    pub fn settings(&self) -> &Settings {
        &self.parts.settings
    }

    /// Returns an agent with the same model and limits, except `turns_max`, and without tools, hooks, guardrails,
    /// permissions and system prompt. Suitable for questions to the model outside the conversation.
    #[must_use]
    pub fn plain(&self) -> Self {
        let settings = Settings {
            system: None,
            turns_max: None,
            context: None,
            ..self.parts.settings.clone()
        };
        Self {
            parts: Arc::new(AgentParts {
                hooks: Vec::new(),
                guardrails: Vec::new(),
                permissions: None,
                ..self.parts.with(Toolbox::default(), settings)
            }),
        }
    }

    /// The agent that has these parts.
    pub(crate) fn of_parts(parts: Arc<AgentParts>) -> Self {
        Self { parts }
    }

    pub(crate) fn parts(&self) -> &AgentParts {
        &self.parts
    }

    /// Returns a copy of the agent with these tools and settings.
    pub(crate) fn with(&self, tools: Toolbox, settings: Settings) -> Self {
        Self {
            parts: Arc::new(self.parts.with(tools, settings)),
        }
    }

    /// Returns a copy of the agent with this model.
    pub(crate) fn with_model(&self, model: Arc<dyn Model>) -> Self {
        let parts = &self.parts;
        Self {
            parts: Arc::new(AgentParts {
                model_name: model.name().into(),
                model,
                ..parts.with(parts.tools.filtered(|_| true), parts.settings.clone())
            }),
        }
    }

    /// Notifies the hooks of an event outside a running turn. The verdicts of the hooks are ignored.
    ///
    /// # Cancel safety
    /// Dropping the future does not end a hook that has begun, because the scope of `cx` owns the hook.
    pub async fn notify_hooks(&self, cx: &HookCx, event: &HookEvent) {
        drop(hook::call_hooks(&self.parts.hooks, cx, event).await);
    }

    /// True if at least one hook wants this event.
    pub fn has_hook_for(&self, event: &HookEvent) -> bool {
        hook::is_wanted(&self.parts.hooks, event)
    }

    /// Starts a run below `scope`, in a task that the scope owns. Must be called in a Tokio runtime.
    ///
    /// Dropping the [`Run`] stops the run with cause `disconnect`. If the scope is already stopped, the first turn ends
    /// at its start.
    pub fn start(&self, scope: &Scope, request: RunRequest, events: EventSink) -> Run {
        Run::start(Arc::clone(&self.parts), scope, request, events)
    }
}

impl AgentBuilder {
    /// Sets the tools.
    pub fn tools(mut self, tools: ToolRegistry) -> Self {
        self.parts.tools.set_own(tools);
        self
    }

    /// Adds a source of tools that may change while the agent runs.
    pub fn tool_source(mut self, source: Arc<dyn ToolSource>) -> Self {
        self.parts.tools.set_source(source);
        self
    }

    /// Sets limits, deadlines and policies.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.parts.settings = settings;
        self
    }

    /// Adds a hook. Hooks are called in the order in which they were added.
    pub fn hook(mut self, hook: Arc<dyn Hook>) -> Self {
        self.parts.hooks.push(hook);
        self
    }

    /// Adds a guardrail.
    pub fn guardrail(mut self, guardrail: Arc<dyn Guardrail>) -> Self {
        self.parts.guardrails.push(guardrail);
        self
    }

    /// Sets the permissions, and the prompter, which asks a person permission questions. If a policy is passed, the
    /// permissions are built from the policy. The agent stores the approvals for the session, so an agent with
    /// permissions serves one session.
    pub fn permissions(
        mut self,
        permissions: impl Into<Permissions>,
        prompter: Arc<dyn Prompter>,
    ) -> Self {
        self.parts.permissions = Some(Arc::new(permissions.into()));
        self.parts.prompter = prompter;
        self
    }

    /// Sets the wall clock for the times in records. If the clock panics, the time of the system is used.
    pub fn clock(mut self, now: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        self.parts.now = Arc::new(move || {
            catch_panic("AgentBuilder::clock", || now()).unwrap_or_else(|| SystemTime::now().into())
        });
        self
    }

    /// Sets the process that the log names as the owner of the turns.
    pub fn owner(mut self, owner: ProcessIdentity) -> Self {
        self.parts.owner = Some(owner);
        self
    }

    /// Builds the agent.
    pub fn build(self) -> Agent {
        Agent {
            parts: Arc::new(self.parts),
        }
    }
}
