//! Tool that starts sub-agents.

use std::sync::Arc;

use allstop_core::Effect;
use allstop_tools::schema::schema_of;
use allstop_tools::{
    TaskCx, Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec, names, start_task,
};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::background::{SubAgentBackground, runs_in_background};
use super::kind::{self, SubAgentKind};
use super::level::SubAgentLevel;
use super::promotion;
use super::sub_agent::{SubAgent, SubAgentTask};

const DESCRIPTION: &str = "Gives a task to a separate agent with tools like yours, and returns its last message. \
    The agent does not see this conversation: include everything that it needs. Several calls run in parallel.";

const IN_BACKGROUND: &str =
    " In the background it runs while you continue, and you get a note when it has ended.";

/// Arguments of `agent`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentArguments {
    /// The task.
    #[schemars(length(min = 1))]
    prompt: String,
    /// True to return at once and let the agent run in the background.
    background: Option<bool>,
    // In the schema only if kinds of agents exist.
    #[schemars(skip)]
    agent: Option<String>,
}

/// Arguments of `agent` if sub-agents cannot run in the background.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the schema is what it is for")]
struct ForegroundArguments {
    /// The task.
    #[schemars(length(min = 1))]
    prompt: String,
}

#[derive(Debug)]
pub(super) struct AgentTool {
    spec: ToolSpec,
    level: SubAgentLevel,
    background: Option<SubAgentBackground>,
}

impl AgentTool {
    /// Creates the tool in the form that its level chooses.
    pub(super) fn formed(
        level: SubAgentLevel,
        background: Option<SubAgentBackground>,
    ) -> Arc<dyn Tool> {
        let form = level.form;
        let tool: Arc<dyn Tool> = Arc::new(Self::new(level, background));
        form.map_or(Arc::clone(&tool), |form| form(tool))
    }

    fn new(level: SubAgentLevel, background: Option<SubAgentBackground>) -> Self {
        let (description, input_schema) = match &background {
            Some(_) => (
                format!("{DESCRIPTION}{IN_BACKGROUND}"),
                schema_of::<AgentArguments>(),
            ),
            None => (DESCRIPTION.to_owned(), schema_of::<ForegroundArguments>()),
        };
        let description = description + &kind::describe(&level.kinds);
        let spec = ToolSpec::new(
            names::AGENT,
            description,
            kind::with_argument(input_schema, &level.kinds),
        )
        // A sub-agent may call any tool.
        .effect(Effect::Irreversible)
        .parallel(true);
        Self {
            spec,
            level,
            background,
        }
    }

    async fn run(&self, invocation: ToolInvocation) -> Result<String, ToolError> {
        let arguments = AgentArguments::deserialize(&*invocation.arguments).map_err(|error| {
            ToolError::new(format!("wrong arguments for `{}`: {error}", names::AGENT))
        })?;
        let kind = arguments.agent.as_deref();
        let kind = kind.map(|name| SubAgentKind::find(&self.level.kinds, name));
        let kind = kind.transpose().map_err(ToolError::new)?;
        let task = SubAgentTask {
            prompt: arguments.prompt,
            kind,
        };
        match &self.background {
            Some(place) if arguments.background == Some(true) => {
                self.in_background(place, &invocation, task)
            }
            _ => self.in_front(invocation, task).await,
        }
        .map_err(ToolError::new)
    }

    async fn in_front(
        &self,
        invocation: ToolInvocation,
        task: SubAgentTask<'_>,
    ) -> Result<String, String> {
        let name = task.name();
        let mut calls = self.level.enclosing_calls.clone();
        calls.push(invocation.link.clone());
        let sub_agent = SubAgent::make(&self.level, &invocation, task, calls)?;
        if let Some(place) = &self.background {
            return promotion::run(place, invocation, name, sub_agent).await;
        }
        let link = invocation.link;
        let running = sub_agent.start(&invocation.scope, move |line| link.output(line));
        let ended = running.finish(&invocation.scope).await;
        ended.map_err(String::from)
    }

    fn in_background(
        &self,
        place: &SubAgentBackground,
        invocation: &ToolInvocation,
        task: SubAgentTask<'_>,
    ) -> Result<String, String> {
        let (spec, background_calls) = place.task_spec(invocation, task.name());
        spec.output.open_file();
        let calls = vec![spec.link.clone()];
        let sub_agent = SubAgent::make(&self.level, invocation, task, calls)?;
        let run = async move |cx: TaskCx| {
            let running = sub_agent.start(&cx.scope, move |line| cx.output.push(line));
            let ended = running.finish(&cx.scope).await;
            ended.map_err(|failure| background_calls.after(&failure.reason))
        };
        let work = start_task(&*place.host, spec, run)
            .map_err(|refused| format!("the agent did not start: {refused}"))?;
        Ok(runs_in_background(&work))
    }
}

impl Tool for AgentTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move { Ok(self.run(invocation).await?.into()) })
    }
}
