//! Tool that starts sub-agents.

use allstop_core::Effect;
use allstop_core::record::Attachment;
use allstop_tools::schema::schema_of;
use allstop_tools::{
    BackgroundWork, BoundedOutput, CallLink, OutputLimits, TaskCx, TaskSpec, Tool, ToolError,
    ToolInvocation, ToolOutput, ToolSpec, start_task,
};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::child::Child;
use super::limits::{Running, SubAgentLimits};
use super::lines::one_line;
use super::{AGENT_TOOL, SubAgentBackground, promotion};
use crate::agent::Agent;

const DESCRIPTION: &str = "Gives a task to an agent of its own, with tools like yours, and answers with its last \
    message. It knows nothing of this conversation: say all that it needs. Several calls at once run side by side.";

const IN_BACKGROUND: &str =
    " In the background it runs on while you go on, and you are told when it has ended.";

/// Arguments of `agent`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The task.
    #[schemars(length(min = 1))]
    prompt: String,
    /// True to return at once and let the agent run in the background.
    background: Option<bool>,
}

/// Arguments of `agent` if sub-agents cannot run in the background.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "the schema is what it is for")]
struct WaitedFor {
    /// The task.
    #[schemars(length(min = 1))]
    prompt: String,
}

/// Shared parts of the sub-agents of one agent.
#[derive(Debug)]
pub(super) struct Level {
    /// Agent without this tool: with the tools of its sub-agents, and the parent of their budgets.
    pub(super) base: Agent,
    pub(super) limits: SubAgentLimits,
    pub(super) running: Running,
    /// Depth of the sub-agents, from 1.
    pub(super) depth: u32,
    /// Calls that wait for the agent that has the tool.
    pub(super) above: Vec<CallLink>,
}

#[derive(Debug)]
pub(super) struct AgentTool {
    spec: ToolSpec,
    level: Level,
    background: Option<SubAgentBackground>,
}

impl AgentTool {
    pub(super) fn new(level: Level, background: Option<SubAgentBackground>) -> Self {
        let (description, input_schema) = match &background {
            Some(_) => (
                format!("{DESCRIPTION}{IN_BACKGROUND}"),
                schema_of::<Arguments>(),
            ),
            None => (DESCRIPTION.to_owned(), schema_of::<WaitedFor>()),
        };
        let spec = ToolSpec {
            name: AGENT_TOOL.into(),
            description: description.into(),
            input_schema,
            // A sub-agent may call any tool.
            effect: Effect::Irreversible,
            timeout: None,
            parallel: true,
        };
        Self {
            spec,
            level,
            background,
        }
    }

    async fn run(&self, invocation: ToolInvocation) -> Result<String, ToolError> {
        let arguments = Arguments::deserialize(&*invocation.arguments).map_err(|error| {
            ToolError::new(format!("wrong arguments for `{AGENT_TOOL}`: {error}"))
        })?;
        match &self.background {
            Some(place) if arguments.background == Some(true) => {
                self.in_background(place, &invocation, arguments.prompt)
            }
            _ => self.in_front(invocation, arguments.prompt).await,
        }
        .map_err(ToolError::new)
    }

    async fn in_front(&self, invocation: ToolInvocation, prompt: String) -> Result<String, String> {
        let name = one_line(&prompt);
        let mut calls = self.level.above.clone();
        calls.push(invocation.link.clone());
        let child = Child::make(&self.level, &invocation, prompt, calls)?;
        if let Some(place) = &self.background {
            return promotion::run(place, invocation, name, child).await;
        }
        let link = invocation.link;
        let running = child.start(&invocation.scope, move |line| link.output(line));
        running.finish(&invocation.scope).await
    }

    fn in_background(
        &self,
        place: &SubAgentBackground,
        invocation: &ToolInvocation,
        prompt: String,
    ) -> Result<String, String> {
        let link = CallLink::unwatched(invocation.call_id.clone());
        let spec = place.task(invocation, one_line(&prompt), link.clone());
        spec.output.open_file();
        let child = Child::make(&self.level, invocation, prompt, vec![link])?;
        let task = async move |cx: TaskCx| {
            let running = child.start(&cx.scope, move |line| cx.output.push(line));
            running.finish(&cx.scope).await
        };
        let work = start_task(&*place.host, spec, task)
            .map_err(|refused| format!("the agent did not start: {refused}"))?;
        Ok(runs_in_background(&work))
    }
}

impl SubAgentBackground {
    /// Describes a sub-agent as background work.
    pub(super) fn task(
        &self,
        invocation: &ToolInvocation,
        name: String,
        link: CallLink,
    ) -> TaskSpec {
        let folder = std::sync::Arc::clone(&self.output_folder);
        TaskSpec {
            call_id: invocation.call_id.clone(),
            call: invocation.scope.clone(),
            name: name.into(),
            attachment: Attachment::Attached,
            output: BoundedOutput::new(OutputLimits::default(), folder).into(),
            link,
        }
    }
}

/// Result for the model when a sub-agent runs in the background.
pub(super) fn runs_in_background(work: &BackgroundWork) -> String {
    let file = work.output_file.as_ref();
    let file = file.map(|file| format!("; what it does is written to {}", file.display()));
    format!(
        "{} runs in the background{}",
        work.id,
        file.unwrap_or_default()
    )
}

impl Tool for AgentTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            Ok(ToolOutput {
                content: self.run(invocation).await?.into(),
            })
        })
    }
}
