//! Order of the events of a task, and of the tasks of one context.

use std::sync::Arc;

use allstop_core::record::SessionRecord;
use allstop_core::{CauseKind, ContextId};
use allstop_log::session::{decode, stream_of};
use allstop_log::{Log, MemoryLog, Version};
use allstop_model::{ModelError, ModelErrorKind, Reply};
use allstop_runtime::AgentExecutorOptions;
use allstop_task::{ListFilter, TaskState};
use allstop_testkit::{FaultyLog, LogFault};
use serde_json::json;

use super::support::{AgentTasks, Logs, TestAgents, WorkTool, answer, request, soon, words};

#[tokio::test]
async fn answer_of_the_turn_becomes_an_artifact() {
    let logs = Logs::new();
    let agents = TestAgents::new(vec![Reply::text("It is 42.")]);
    let tasks = AgentTasks::over(&logs, agents, AgentExecutorOptions::default(), |parts| {
        parts
    });
    let tasks = tasks.await;
    let mut started = tasks.start("m1", "What is it?").await;
    assert_eq!(
        words(&mut started).await,
        ["working", "answer", "ended completed"]
    );
    let task = tasks.task(&started.task_id).await;
    assert_eq!(answer(&task), "It is 42.");
    // The message that the turn answers, in the session of the context `c1`, has the id of the task.
    let records = logs
        .sessions
        .read(&stream_of(&"context-c1".into()), Version(1), 100);
    let records = records.await.unwrap();
    let message = records
        .iter()
        .find_map(|(_, bytes)| match decode(bytes).unwrap() {
            Some(SessionRecord::TurnStarted { message, .. }) => message,
            _ => None,
        });
    assert_eq!(message.unwrap().as_str(), task.id.as_str());
    assert!(tasks.root.is_quiet());
}

#[tokio::test]
async fn tasks_of_a_context_run_one_after_another() {
    let work = WorkTool::new();
    let tool = work.clone();
    let agents = TestAgents::new(vec![
        Reply::text("").call("work", json!({})),
        Reply::text("The secret word is kiwi."),
        Reply::text("kiwi"),
    ]);
    let tasks = AgentTasks::new(agents.tools(move |_| vec![tool.tool()])).await;
    let mut first = tasks.start("m1", "Think of a word").await;
    work.started().await;
    let mut second = tasks.start("m2", "Which word?").await;
    assert_eq!(
        tasks.task(&second.task_id).await.status.state,
        TaskState::Submitted
    );
    assert_eq!(tasks.model.requests().len(), 1);
    work.gate.add_permits(1);
    let first = tasks.rest(&mut first).await;
    let second = tasks.rest(&mut second).await;
    assert_eq!(answer(&first), "The secret word is kiwi.");
    assert_eq!(answer(&second), "kiwi");
    let seen = tasks.last_request();
    assert!(seen.contains("The secret word is kiwi."), "{seen}");
}

#[tokio::test]
async fn contexts_do_not_share_a_conversation() {
    let agents = TestAgents::new(vec![Reply::text("one"), Reply::text("two")]);
    let options = AgentExecutorOptions::default()
        // The executor closes the session of the first context to open the second one.
        .sessions_open_max(1);
    let tasks = AgentTasks::with(agents, options).await;
    tasks.run("m1", "first text").await;
    let other = request("m2", "second text").context(ContextId::new("c2"));
    let mut second = tasks.manager.execute(other).await.unwrap();
    assert_eq!(answer(&*tasks.rest(&mut second).await), "two");
    assert!(!tasks.last_request().contains("first text"));
}

#[tokio::test]
async fn closed_session_of_a_context_is_opened_again() {
    let agents = TestAgents::new(vec![
        Reply::text("one"),
        Reply::text("two"),
        Reply::text("three"),
    ]);
    let options = AgentExecutorOptions::default().sessions_open_max(1);
    let tasks = AgentTasks::with(agents, options).await;
    for (message, context) in [("m1", "c1"), ("m2", "c2"), ("m3", "c1")] {
        let request =
            request(message, &format!("text of {message}")).context(ContextId::new(context));
        let mut started = soon(tasks.manager.execute(request)).await.unwrap();
        assert_eq!(
            tasks.rest(&mut started).await.status.state,
            TaskState::Completed
        );
    }
    let seen = tasks.last_request();
    assert!(
        seen.contains("text of m1") && !seen.contains("text of m2"),
        "{seen}"
    );
}

#[tokio::test]
async fn error_of_the_provider_fails_the_task() {
    let error = ModelError::new(ModelErrorKind::Unauthorized, "the key is wrong");
    let agents = TestAgents::new(vec![Reply::error(error), Reply::text("fine")]);
    let tasks = AgentTasks::new(agents).await;
    let task = tasks.run("m1", "Hello").await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(task.ending.cause.as_ref().unwrap().kind, CauseKind::Failure);
    let text = task.ending.error.as_deref().unwrap();
    assert!(text.contains("the key is wrong"), "{text}");
    assert!(task.artifacts.is_empty());
    // The context accepts further messages.
    assert_eq!(answer(&*tasks.run("m2", "Again").await), "fine");
}

/// A stop does not interrupt the opening of a session halfway: the next task of the context waits for the opening.
#[tokio::test]
async fn task_after_a_stopped_task_finds_the_session_open() {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    let logs = Logs {
        sessions: Arc::clone(&log) as Arc<dyn Log>,
        ..Logs::new()
    };
    let agents = TestAgents::new(vec![Reply::text("Second.")]);
    let options = AgentExecutorOptions::default();
    let tasks = AgentTasks::over(&logs, agents, options, |parts| parts).await;
    log.fail_all(LogFault::Hold);
    let first = tasks.start("m1", "first").await;
    soon(log.reached()).await;
    let stopped = tasks.cancel(&first.task_id).await;
    assert!(stopped.receipt.quiet(), "{:?}", stopped.receipt);
    let mut second = tasks.start("m2", "second").await;
    for _ in 0..100 {
        // Time for the second task to open the session, if nothing held it back.
        tokio::task::yield_now().await;
    }
    assert_eq!(log.held().len(), 1);
    log.release().await;
    let second = tasks.rest(&mut second).await;
    assert_eq!(second.status.state, TaskState::Completed, "{second:?}");
    assert_eq!(answer(&second), "Second.");
}

/// The id of a context is part of the name of a folder.
#[tokio::test]
async fn context_without_a_session_id_starts_no_task() {
    let tasks = AgentTasks::new(TestAgents::new(vec![Reply::text("hello")])).await;
    for id in ["a b", "../../etc", &"a".repeat(129)] {
        let refused = request("m1", "Hi").context(ContextId::new(id));
        let refused = tasks.manager.execute(refused).await.map(|it| it.task_id);
        let error = refused.expect_err(id).to_string();
        assert!(error.contains("use 1 to 128 letters"), "{error}");
    }
    let listed = tasks.manager.list(&ListFilter::default(), None, 10).await;
    assert_eq!(listed.unwrap().total, 0);
}
