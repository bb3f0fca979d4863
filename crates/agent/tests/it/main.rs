//! Tests of the agent loop through its public API, with scripted models, closures as tools, and paused time.

mod answer_schema;
mod blocking;
mod calls;
mod deadlines;
mod effects;
mod endings;
mod hooks;
mod images;
mod kept_turns;
mod loop_limits;
mod nested_calls;
mod panics;
mod provider;
mod questions;
mod spans;
mod stops;
mod store;
mod subagents;
mod tools;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{
    Agent, AgentBuilder, EventSink, RunHistory, RunOutcome, RunRequest, Settings, TurnOutcome,
};
use allstop_core::message::check_history;
use allstop_core::record::SessionRecord;
use allstop_core::{SessionId, Timestamp};
use allstop_log::session::{decode, stream_of};
use allstop_log::{Log, MemoryLog, SessionWriter, Version};
use allstop_model::{Model, Reply, ScriptedModel};
use allstop_scope::{RootOptions, Scope};
use allstop_testkit::ToolFn;
use allstop_tools::ToolRegistry;

/// Time limit that no test reaches unless the loop hangs.
const LONG: Duration = Duration::from_hours(1);

fn root() -> Scope {
    Scope::root("test", RootOptions::single_runtime())
}

async fn history() -> RunHistory {
    history_on(Arc::new(MemoryLog::new())).await
}

async fn history_on(log: Arc<dyn Log>) -> RunHistory {
    let id = SessionId::from("s1");
    let session = SessionWriter::create(log, id, Timestamp::from_unix_ms(0), "/tmp", None).await;
    RunHistory::Logged(Box::new(session.expect("a session in memory")))
}

/// Returns the records of the session.
async fn records(log: &dyn Log) -> Vec<SessionRecord> {
    let stream = stream_of(&SessionId::from("s1"));
    let records = log.read(&stream, Version(1), 10_000).await.expect("memory");
    let records = records.into_iter();
    records
        .filter_map(|(_, bytes)| decode(&bytes).expect("readable"))
        .collect()
}

fn model(replies: Vec<Reply>) -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::new(replies).keeping_requests())
}

fn agent(model: &Arc<ScriptedModel>) -> AgentBuilder {
    agent_of(Arc::clone(model) as _)
}

fn agent_of(model: Arc<dyn Model>) -> AgentBuilder {
    Agent::new(model)
}

fn tools(tools: Vec<ToolFn>) -> ToolRegistry {
    let mut registry = ToolRegistry::new();
    for tool in tools {
        registry.register(Arc::new(tool)).expect("names differ");
    }
    registry
}

fn settings() -> Settings {
    Settings::default()
}

/// Runs one prompt to its end and checks the rules that hold for every ending.
async fn run(
    agent: Agent,
    scope: &Scope,
    history: RunHistory,
    prompt: &str,
) -> (TurnOutcome, RunHistory) {
    let run = agent.start(scope, RunRequest::new(history, prompt), EventSink::none());
    ended(run.finish().await.expect("the engine does not panic"))
}

/// Returns the last turn's outcome, checked against the log.
fn ended(outcome: RunOutcome) -> (TurnOutcome, RunHistory) {
    let RunOutcome { mut turns, history } = outcome;
    let turn = turns.pop().expect("a run has a turn");
    if let RunHistory::Logged(session) = &history {
        let state = session.state();
        assert!(state.open_turn().is_none(), "every turn has its ending");
        let last = state.turns().last().expect("the turn is in the log");
        let ending = last.ending.as_ref().expect("an ending");
        assert_eq!(ending.reason, turn.stop_reason);
        assert_eq!(ending.cause, turn.cause);
        assert_eq!(**state.conversation(), *turn.conversation);
    }
    check_history(turn.conversation.messages.iter().map(AsRef::as_ref)).expect("a valid history");
    (turn, history)
}

/// Checks that every request to the model had a valid history.
fn check_requests(model: &ScriptedModel) {
    for request in model.requests() {
        check_history(request.messages.iter().map(AsRef::as_ref)).expect("a valid request");
    }
}
