//! What to do: a model, tools, settings, hooks, guardrails.

use std::sync::Arc;
use std::time::SystemTime;

use allstop_core::Timestamp;
use allstop_core::process::ProcessIdentity;
use allstop_model::Model;
use allstop_scope::Scope;
use allstop_tools::permission::FixedAnswer;
use allstop_tools::{Answer, PermissionPolicy, Permissions, Prompter, ToolRegistry, ToolSource};

use crate::event::EventSink;
use crate::guardrail::Guardrail;
use crate::hook::{self, Hook, HookCx, HookEvent};
use crate::parts::Parts;
use crate::run::{Run, RunRequest};
use crate::settings::Settings;
use crate::toolbox::Toolbox;

/// An agent. Clones are the same agent; it holds no session's state, so one serves any number of them at once.
#[derive(Debug, Clone)]
pub struct Agent {
    parts: Arc<Parts>,
}

/// Makes an [`Agent`].
#[must_use = "call build"]
pub struct AgentBuilder {
    parts: Parts,
}

impl std::fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.parts.fmt(f)
    }
}

impl Agent {
    /// An agent with this model, no tools, and no limits. Every tool call is allowed until
    /// [`AgentBuilder::permissions`] says otherwise: a program that registers a tool means it to be called.
    pub fn builder(model: Arc<dyn Model>) -> AgentBuilder {
        let model_name = model.name().into();
        AgentBuilder {
            parts: Parts {
                model,
                model_name,
                tools: Toolbox::default(),
                settings: Settings::default(),
                hooks: Vec::new(),
                guardrails: Vec::new(),
                permissions: None,
                prompter: Arc::new(FixedAnswer(Answer::Deny)),
                now: Arc::new(|| SystemTime::now().into()),
                owner: None,
            },
        }
    }

    /// How it runs.
    pub fn settings(&self) -> &Settings {
        &self.parts.settings
    }

    /// The same model and limits and nothing else: no tools, no hooks, no guardrails, no system prompt. For what is asked
    /// of the model beside the conversation.
    #[must_use]
    pub fn plain(&self) -> Self {
        let settings = Settings {
            system: None,
            turns_max: None,
            ..self.parts.settings.clone()
        };
        Self {
            parts: Arc::new(Parts {
                hooks: Vec::new(),
                guardrails: Vec::new(),
                permissions: None,
                ..self.parts.with(Toolbox::default(), settings)
            }),
        }
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The same agent with these tools and settings.
    pub(crate) fn with(&self, tools: Toolbox, settings: Settings) -> Self {
        Self {
            parts: Arc::new(self.parts.with(tools, settings)),
        }
    }

    /// Tells the hooks of something that is not of a turn under way. Their verdict changes nothing.
    ///
    /// # Cancel safety
    /// Dropping it does not end a hook that has begun: the scope of `cx` owns it.
    pub async fn tell(&self, cx: &HookCx, event: &HookEvent) {
        drop(hook::tell(&self.parts.hooks, cx, event).await);
    }

    /// Whether a hook would hear of this.
    pub fn is_heard(&self, event: &HookEvent) -> bool {
        self.parts.hooks.iter().any(|hook| hook.wants(event))
    }

    /// Starts a run below `scope`, in a task that the scope owns. Must be called in a tokio runtime.
    ///
    /// Dropping the [`Run`] stops it with cause `disconnect`. A scope that is stopped already gives a run whose first
    /// turn ends at its entry.
    pub fn start(&self, scope: &Scope, request: RunRequest, events: EventSink) -> Run {
        Run::start(Arc::clone(&self.parts), scope, request, events)
    }
}

impl AgentBuilder {
    /// The tools.
    pub fn tools(mut self, tools: ToolRegistry) -> Self {
        self.parts.tools.set_own(tools);
        self
    }

    /// Tools that come and go, beside those.
    pub fn tool_source(mut self, source: Arc<dyn ToolSource>) -> Self {
        self.parts.tools.set_source(source);
        self
    }

    /// Limits, deadlines, policies.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.parts.settings = settings;
        self
    }

    /// Adds a hook; hooks hear in the order in which they were added.
    pub fn hook(mut self, hook: Arc<dyn Hook>) -> Self {
        self.parts.hooks.push(hook);
        self
    }

    /// Adds a guardrail.
    pub fn guardrail(mut self, guardrail: Arc<dyn Guardrail>) -> Self {
        self.parts.guardrails.push(guardrail);
        self
    }

    /// Which calls run, and who is asked about the others. What a person allows for the session is kept in the agent,
    /// so an agent with permissions serves one session.
    pub fn permissions(
        mut self,
        policy: Arc<PermissionPolicy>,
        prompter: Arc<dyn Prompter>,
    ) -> Self {
        self.parts.permissions = Some(Arc::new(Permissions::new(policy)));
        self.parts.prompter = prompter;
        self
    }

    /// Wall-clock time for records.
    pub fn clock(mut self, now: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        self.parts.now = now;
        self
    }

    /// The process that the log names as the one that runs the turns.
    pub fn owner(mut self, owner: ProcessIdentity) -> Self {
        self.parts.owner = Some(owner);
        self
    }

    /// The agent.
    pub fn build(self) -> Agent {
        Agent {
            parts: Arc::new(self.parts),
        }
    }
}
