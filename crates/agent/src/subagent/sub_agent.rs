//! One sub-agent, from its start to its answer.

use std::sync::Arc;

use allstop_core::turn::{Conversation, StopPolicy, TurnEffects};
use allstop_core::{SessionId, StopReason};
use allstop_scope::{Scope, WorkLost};
use allstop_tools::{CallLink, ToolInvocation};

use super::background_calls::with_calls;
use super::kind::SubAgentKind;
use super::level::{SubAgentLevel, conversation_before};
use super::limits::RunningGuard;
use super::lines::{line_of, one_line};
use super::tool::AgentTool;
use crate::agent::Agent;
use crate::controls::{EnclosingCalls, RunControls};
use crate::event::EventSink;
use crate::history::RunHistory;
use crate::outcome::{RunOutcome, TurnOutcome};
use crate::prompt::Prompt;
use crate::run::{Run, RunRequest};
use crate::settings::{Settings, without_tool_choice};

/// Context that a sub-agent receives with its prompt.
const CONTEXT: &str = "Another agent gave you this task. It sees only your last message: include everything that it \
    needs to know.";

/// Checkpoint in receipts of a stopped sub-agent.
const CHECKPOINT: &str = "sub_agent";

/// Task of a sub-agent.
pub(super) struct SubAgentTask<'a> {
    pub(super) prompt: String,
    /// Kind of the sub-agent, if the call chose one.
    pub(super) kind: Option<&'a SubAgentKind>,
}

impl SubAgentTask<'_> {
    /// Name of the work: the beginning of the prompt, after the name of the kind.
    pub(super) fn name(&self) -> String {
        match self.kind {
            Some(kind) => one_line(&format!("{}: {}", kind.name, self.prompt)),
            None => one_line(&self.prompt),
        }
    }
}

/// A sub-agent that is ready to run: it is counted, and its budget is reserved.
pub(super) struct SubAgent {
    agent: Agent,
    session_id: SessionId,
    prompt: Prompt,
    /// Calls that wait for the sub-agent: the call that runs the sub-agent, and the calls that enclose this call. All
    /// of them receive the activity and the usage of the sub-agent.
    calls: Vec<CallLink>,
    /// Conversation of the outermost agent.
    conversation: Arc<Conversation>,
    running: RunningGuard,
}

impl SubAgent {
    /// Creates a sub-agent. `calls` contains the calls that wait for the sub-agent. If the sub-agent runs in the
    /// background, no call waits, and `calls` only counts the usage.
    pub(super) fn make(
        level: &SubAgentLevel,
        invocation: &ToolInvocation,
        task: SubAgentTask<'_>,
        calls: Vec<CallLink>,
    ) -> Result<Self, String> {
        let running = level.running.acquire(level.limits.running_max);
        let running = running.ok_or_else(|| {
            format!(
                "{} agents are running, which is the limit: wait for one to end, or do the work yourself",
                level.limits.running_max
            )
        })?;
        let own = &level.base.parts().settings;
        let budget_tokens = level.limits.budget_tokens;
        let budget = match &own.budget {
            Some(above) => Some(above.child(budget_tokens)),
            None => budget_tokens.map(|tokens| Ok(allstop_core::turn::Budget::of_tokens(tokens))),
        };
        let budget = budget.transpose();
        let settings = Settings {
            steps_max: Some(
                own.steps_max
                    .unwrap_or(u32::MAX)
                    .min(level.limits.steps_max),
            ),
            turns_max: None,
            budget: budget.map_err(|exceeded| format!("the agent did not start: {exceeded}"))?,
            stop_policy: StopPolicy::Rollback,
            request: without_tool_choice(&own.request),
            answer: None,
            ..own.clone()
        };
        // The session id of the starting agent already contains the ids of the enclosing calls, so only the last id is
        // added.
        let path = invocation.call_id.as_str();
        let id = path.rsplit_once('/').map_or(path, |(_, id)| id);
        let conversation = level.conversation.clone();
        let conversation = conversation.unwrap_or_else(|| conversation_before(&invocation.link));
        let agent = agent(level, task.kind, settings, &calls, &conversation)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            agent,
            session_id: format!("{}/{id}", invocation.session_id).into(),
            prompt: Prompt {
                trace: invocation.trace.clone(),
                ..Prompt::from(task.prompt)
            },
            calls,
            conversation,
            running,
        })
    }

    /// Starts the sub-agent below `scope`. `show_line` receives the sub-agent's output line by line.
    pub(super) fn start(
        self,
        scope: &Scope,
        show_line: impl Fn(&str) + Send + Sync + 'static,
    ) -> RunningSubAgent {
        let controls = RunControls::of_sub_agent(EnclosingCalls {
            calls: self.calls.clone(),
            conversation: self.conversation,
        });
        let request = RunRequest {
            context: Some(CONTEXT.into()),
            controls: Arc::new(controls),
            ..RunRequest::new(
                RunHistory::bare(self.session_id, Arc::default()),
                self.prompt,
            )
        };
        let observed_calls = self.calls;
        let events = EventSink::observer(move |event| {
            for call in &observed_calls {
                call.heartbeat();
            }
            if let Some(mut line) = line_of(event) {
                line.push('\n');
                show_line(&line);
            }
        });
        RunningSubAgent {
            run: self.agent.start(scope, request, events),
            running: self.running,
        }
    }
}

/// A running sub-agent. Dropping it stops the sub-agent.
pub(super) struct RunningSubAgent {
    run: Run,
    running: RunningGuard,
}

impl RunningSubAgent {
    /// Waits for the answer. May complete only once.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future stops nothing.
    pub(super) async fn answer(&mut self) -> Result<String, SubAgentFailure> {
        answer(self.run.wait().await)
    }

    /// Waits for the answer. If the sub-agent was stopped, acknowledges the stop in `scope`.
    ///
    /// # Cancel safety
    /// Dropping the future stops the sub-agent.
    pub(super) async fn finish(mut self, scope: &Scope) -> Result<String, SubAgentFailure> {
        let answer = self.answer().await;
        self.finish_with(answer, scope).await
    }

    /// Finishes with an answer that has already arrived.
    pub(super) async fn finish_with(
        self,
        answer: Result<String, SubAgentFailure>,
        scope: &Scope,
    ) -> Result<String, SubAgentFailure> {
        drop(self.running);
        if answer.is_err() && scope.is_stopped() {
            scope.stopped_at(CHECKPOINT).await;
        }
        answer
    }
}

/// Builds the sub-agent, with the tool `agent` unless the depth limit is reached or its kind excludes the tool.
fn agent(
    level: &SubAgentLevel,
    kind: Option<&SubAgentKind>,
    settings: Settings,
    calls: &[CallLink],
    conversation: &Arc<Conversation>,
) -> Result<Agent, allstop_tools::RegistryError> {
    let base = level
        .base
        .with(level.base.parts().tools.filtered(|_| true), settings);
    let agent = kind.map_or(base.clone(), |kind| kind.agent(&base));
    if level.depth >= level.limits.depth_max {
        return Ok(agent);
    }
    let below = SubAgentLevel {
        // A sub-agent of another kind, or of none, starts from the agent without a kind, but never has more tools.
        base: base.with(
            agent.parts().tools.filtered(|_| true),
            base.settings().clone(),
        ),
        limits: level.limits,
        running: level.running.clone(),
        depth: level.depth + 1,
        enclosing_calls: calls.to_vec(),
        conversation: Some(Arc::clone(conversation)),
        kinds: Arc::clone(&level.kinds),
        form: level.form,
    };
    let tool = AgentTool::formed(below, None);
    if !kind.is_none_or(|kind| kind.has_tool(&tool.spec().name)) {
        return Ok(agent);
    }
    let mut tools = agent.parts().tools.filtered(|_| true);
    tools.register(tool)?;
    Ok(agent.with(tools, agent.settings().clone()))
}

fn answer(outcome: Result<RunOutcome, WorkLost>) -> Result<String, SubAgentFailure> {
    let turn = match outcome {
        Ok(mut run) => run.turns.pop(),
        Err(WorkLost::Panicked) => return Err("the agent panicked".into()),
        Err(WorkLost::Dropped | WorkLost::NoThread) => return Err("the agent was lost".into()),
    };
    match turn {
        Some(turn) if turn.stop_reason == StopReason::Completed => Ok(turn.output.to_string()),
        Some(turn) => Err(SubAgentFailure::of(turn)),
        None => Err("the agent had no turn".into()),
    }
}

/// A sub-agent has ended without an answer.
#[derive(Debug)]
pub(super) struct SubAgentFailure {
    pub(super) reason: String,
    /// Calls of the sub-agent itself that may have changed something.
    calls: TurnEffects,
}

impl SubAgentFailure {
    fn of(turn: TurnOutcome) -> Self {
        let reason = match (&turn.error, &turn.cause) {
            (Some(error), _) => format!(": {}", error.message),
            (None, Some(cause)) => format!(": {cause}"),
            (None, None) => String::new(),
        };
        Self {
            reason: format!(
                "the agent ended without an answer, {}{reason}",
                turn.stop_reason
            ),
            calls: turn.lost.map(|lost| lost.effects).unwrap_or_default(),
        }
    }
}

impl From<&str> for SubAgentFailure {
    fn from(reason: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            calls: TurnEffects::default(),
        }
    }
}

/// Result of the call for the agent above. It names the calls that may have changed something, because that agent has no
/// other source for them.
impl From<SubAgentFailure> for String {
    fn from(failure: SubAgentFailure) -> Self {
        with_calls(&failure.reason, &failure.calls)
    }
}
