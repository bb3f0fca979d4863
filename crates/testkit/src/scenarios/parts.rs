//! Agents and tools of the scenarios.

use std::time::Duration;

use allstop_agent::{Agent, AgentBuilder};
use allstop_model::Reply;
use tokio::time::sleep;

use crate::ToolFn;
use crate::explore::RunStage;

/// An agent with these tools, whose model gives these replies, one for each step.
pub(super) fn agent<const N: usize>(
    stage: &RunStage,
    replies: Vec<Reply>,
    tools: [ToolFn; N],
) -> AgentBuilder {
    let tools = tools.map(|tool| stage.tool(tool));
    Agent::new(stage.model(replies)).tools(stage.tools(tools))
}

/// A tool that answers at once.
pub(super) fn answering(name: &str, answer: &'static str) -> ToolFn {
    ToolFn::new(name, move |_| async move { answer.to_owned() })
}

/// A tool that takes this time and ignores a stop.
pub(crate) fn deaf(name: &str, takes: Duration, answer: &'static str) -> ToolFn {
    ToolFn::new(name, move |_| async move {
        sleep(takes).await;
        answer.to_owned()
    })
}

/// A tool that takes this time and reacts to a stop.
pub(crate) fn listening(name: &str, takes: Duration, answer: &'static str) -> ToolFn {
    ToolFn::new(name, move |call| async move {
        tokio::select! {
            biased;
            cause = call.scope.stopped_at("working") => format!("stopped: {cause}"),
            () = sleep(takes) => answer.to_owned(),
        }
    })
}
