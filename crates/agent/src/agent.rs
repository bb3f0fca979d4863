//! The agent: a model, tools, settings, hooks, guardrails.

use std::sync::Arc;
use std::time::SystemTime;

use allstop_core::Timestamp;
use allstop_core::process::ProcessIdentity;
use allstop_core::turn::Budget;
use allstop_model::{Model, RequestSettings};
use allstop_scope::{Scope, catch_panic};
use allstop_tools::permission::FixedAnswer;
use allstop_tools::{
    PermissionAnswer, Permissions, Prompter, RegistryError, Tool, ToolRegistry, ToolSource,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::answer::{Answer, RunError, RunFailure};
use crate::answer_schema::AnswerSchema;
use crate::event::EventSink;
use crate::guardrail::Guardrail;
use crate::history::RunHistory;
use crate::home_scope::HomeScope;
use crate::hook::{Hook, HookCx, HookEvent};
use crate::hook_calls;
use crate::parts::AgentParts;
use crate::prompt::Prompt;
use crate::run::{Run, RunRequest};
use crate::run_events::{EventsEnd, RunEvents};
use crate::settings::{Deadlines, Settings, without_tool_choice};
use crate::span_links::SpanLinks;
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
    /// Begins an agent with this model, no tools and no limits. Without [`AgentBuilder::permissions`] every tool call is
    /// allowed, because a program that registers a tool intends it to be called. The loop detector is on:
    /// [`LoopLimits::default`](allstop_core::turn::LoopLimits) ends a run that repeats its calls.
    ///
    /// A receipt covers the futures and threads of the tools, and the work that they start through a scope. Await each stop
    /// before `main` returns; otherwise processes can stay.
    #[expect(
        clippy::new_ret_no_self,
        reason = "an agent without a builder would have nothing to configure"
    )]
    pub fn new(model: impl Model + 'static) -> AgentBuilder {
        let model: Arc<dyn Model> = Arc::new(model);
        AgentBuilder {
            parts: AgentParts {
                name: None,
                model,
                tools: Toolbox::default(),
                settings: Settings::default(),
                hooks: Vec::new(),
                guardrails: Vec::new(),
                permissions: None,
                prompter: Arc::new(FixedAnswer(PermissionAnswer::deny())),
                now: Arc::new(|| SystemTime::now().into()),
                owner: None,
                home: Arc::default(),
                spans: None,
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
            request: without_tool_choice(&self.parts.settings.request),
            answer: None,
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

    /// Returns a copy of the agent with more tools.
    ///
    /// # Errors
    /// If the name of a tool is not valid or taken, or the schema of its arguments is invalid.
    pub fn with_tools(
        &self,
        more: impl IntoIterator<Item = Arc<dyn Tool>>,
    ) -> Result<Self, RegistryError> {
        let mut tools = self.parts.tools.filtered(|_| true);
        for tool in more {
            tools.add(tool)?;
        }
        Ok(self.with(tools, self.parts.settings.clone()))
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

    /// Returns a copy of the agent with this name.
    pub(crate) fn named(&self, name: Arc<str>) -> Self {
        let parts = &self.parts;
        Self {
            parts: Arc::new(AgentParts {
                name: Some(name),
                ..parts.with(parts.tools.filtered(|_| true), parts.settings.clone())
            }),
        }
    }

    /// Returns a copy of the agent with this model.
    pub(crate) fn with_model(&self, model: Arc<dyn Model>) -> Self {
        let parts = &self.parts;
        Self {
            parts: Arc::new(AgentParts {
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
        drop(hook_calls::call_hooks(&self.parts, cx, event).await);
    }

    /// True if at least one hook wants this event.
    pub fn has_hook_for(&self, event: &HookEvent) -> bool {
        hook_calls::is_wanted(&self.parts.hooks, event)
    }

    /// Runs a prompt as one turn of a new conversation, in memory. The run starts at once. Works in every program, also
    /// without a runtime of tokio: the loop and the stops run on a thread of the agent, and tools run on the current
    /// runtime if it has several threads ([`RootOptions::for_any_runtime`](allstop_scope::RootOptions::for_any_runtime)).
    ///
    /// Dropping the [`Run`] stops it with cause `disconnect`.
    pub fn run(&self, prompt: impl Into<Prompt>) -> Run {
        let (sink, events, end) = RunEvents::channel();
        self.run_bare(prompt.into(), sink, Some(end))
            .with_events(events)
    }

    /// Like [`Agent::run`], and waits for the answer.
    ///
    /// # Errors
    /// If the run was stopped or failed.
    ///
    /// # Cancel safety
    /// Dropping the future stops the run with cause `disconnect`.
    pub async fn ask(&self, prompt: impl Into<Prompt>) -> Result<Answer, RunError> {
        let run = self.run_bare(prompt.into(), EventSink::none(), None);
        run.await.into_result()
    }

    /// Like [`Agent::ask`], and returns the answer as a value of the type `T`. The provider gets the JSON schema of `T`. After
    /// the first answer that is no `T`, the model answers once more, in the same turn.
    ///
    /// ```
    /// use allstop_agent::Agent;
    /// use allstop_model::ScriptedModel;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct City {
    ///     name: String,
    ///     inhabitants: u32,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let answer = r#"{"name": "Bern", "inhabitants": 137_000}"#.replace('_', "");
    /// let model = ScriptedModel::in_order_of_calls(vec!["Bern".into(), answer.as_str().into()]);
    /// let city: City = Agent::new(model).build().ask_as("The capital of Switzerland").await?;
    /// assert_eq!((&*city.name, city.inhabitants), ("Bern", 137_000));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the run was stopped or failed. The kind is [`AnswerMismatch`](crate::TurnErrorKind::AnswerMismatch) if the second answer is no
    /// `T` either.
    ///
    /// # Cancel safety
    /// Dropping the future stops the run with cause `disconnect`.
    pub async fn ask_as<T: DeserializeOwned + JsonSchema + 'static>(
        &self,
        prompt: impl Into<Prompt>,
    ) -> Result<T, RunError> {
        let settings = Settings {
            answer: Some(AnswerSchema::of_type::<T>()),
            ..self.parts.settings.clone()
        };
        let agent = self.with(self.parts.tools.filtered(|_| true), settings);
        let answer = agent.ask(prompt).await?;
        answer.parse().map_err(|error| {
            // The answer has passed the check with this type.
            RunError::Failed(Box::new(RunFailure::bug(&error.to_string())))
        })
    }

    fn run_bare(&self, prompt: Prompt, events: EventSink, end: Option<EventsEnd>) -> Run {
        let home = &self.parts.home;
        let history = RunHistory::bare(home.next_run(), Arc::default());
        let request = RunRequest::new(history, prompt);
        Run::start(
            Arc::clone(&self.parts),
            home.scope(),
            request,
            (events, end),
        )
    }

    /// Scope of the runs of [`Agent::run`]: created at the first use, unless the builder got one.
    pub fn scope(&self) -> &Scope {
        self.parts.home.scope()
    }

    /// Starts a run below `scope`, in a task that the scope owns. Must be called in a Tokio runtime.
    ///
    /// Dropping the [`Run`] stops the run with cause `disconnect`. If the scope is already stopped, the first turn ends
    /// at its start.
    pub fn start(&self, scope: &Scope, request: RunRequest, events: EventSink) -> Run {
        Run::start(Arc::clone(&self.parts), scope, request, (events, None))
    }
}

impl AgentBuilder {
    /// Sets the tools.
    pub fn tools(mut self, tools: ToolRegistry) -> Self {
        self.parts.tools.set_own(tools);
        self
    }

    /// Adds a tool. A process, task or thread that the tool does not start through the scope of its call is in no receipt.
    ///
    /// # Panics
    /// If the name of the tool is not valid or taken, or if the schema of its arguments is invalid or no object: a mistake in
    /// the program. [`AgentBuilder::tools`] takes a registry, which returns these errors.
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        if let Err(error) = self.parts.tools.add(Arc::new(tool)) {
            panic!("{error}");
        }
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

    /// Sets sampling, reasoning, the choice of tools and other settings of the requests to the model.
    ///
    /// ```
    /// use allstop_agent::Agent;
    /// use allstop_model::{RequestSettings, ScriptedModel};
    ///
    /// let model = ScriptedModel::in_order_of_calls(vec!["Hello!".into()]);
    /// let agent = Agent::new(model).request(RequestSettings::default().temperature(0.2)).build();
    /// # let _ = agent;
    /// ```
    pub fn request(mut self, settings: RequestSettings) -> Self {
        self.parts.settings.request = Arc::new(settings);
        self
    }

    /// Sets the format of the final answer of each turn. [`Answer::parse`] reads the answer.
    pub fn answer_schema(mut self, format: AnswerSchema) -> Self {
        self.parts.settings.answer = Some(format);
        self
    }

    /// Sets the system prompt.
    pub fn system(mut self, prompt: impl Into<Arc<str>>) -> Self {
        self.parts.settings.system = Some(prompt.into());
        self
    }

    /// Sets the maximum steps per turn. A step is one model call with its tool calls.
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.parts.settings.steps_max = Some(steps);
        self
    }

    /// Sets the budget, which several agents may share. Amounts are reserved before they are spent.
    pub fn budget(mut self, budget: Arc<Budget>) -> Self {
        self.parts.settings.budget = Some(budget);
        self
    }

    /// Sets the time limits.
    pub fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.parts.settings.deadlines = deadlines;
        self
    }

    /// Sets the scope below which [`Agent::run`] works, such as a scope of the program that a shutdown stops.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.parts.home = Arc::new(HomeScope::of(scope));
        self
    }

    /// Adds a hook. Hooks are called in the order in which they were added.
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.parts.hooks.push(Arc::new(hook));
        self
    }

    /// Adds a guardrail.
    pub fn guardrail(mut self, guardrail: impl Guardrail + 'static) -> Self {
        self.parts.guardrails.push(Arc::new(guardrail));
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

    /// Sets the name of the agent in traces.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.parts.name = Some(name.into());
        self
    }

    /// Connects the spans of the agent with a tracer.
    pub fn spans(mut self, spans: Arc<dyn SpanLinks>) -> Self {
        self.parts.spans = Some(spans);
        self
    }

    /// Builds the agent.
    pub fn build(self) -> Agent {
        Agent {
            parts: Arc::new(self.parts),
        }
    }
}
