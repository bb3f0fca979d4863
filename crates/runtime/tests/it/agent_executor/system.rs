//! The executor of a system from a configuration, with its tools and permissions.

use std::sync::Arc;

use allstop_core::ContextId;
use allstop_log::MemoryLog;
use allstop_model::Reply;
use allstop_runtime::{AgentExecutorOptions, QuestionRecipient, SessionSetup};
use allstop_task::{TaskManager, TaskOptions, TaskState};
use serde_json::json;

use super::support::{request, soon, user, words};
use crate::{Place, sleepers, state_of, token, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn cancel_of_a_task_kills_the_processes_of_its_shell() {
    let place = Place::new();
    let token = token();
    let command = json!({"command": format!("sleep {token}")});
    let replies = vec![Reply::default().call("shell", command)];
    let config = "[permissions]\nallow = [\"shell\"]\n";
    let system = place.system(config, replies).await;
    let executor = system.agent_executor(
        SessionSetup::default().recipient(QuestionRecipient::Subscribers),
        AgentExecutorOptions::default(),
    );
    let manager = TaskManager::open(
        Arc::new(MemoryLog::new()),
        system.scope().clone(),
        Arc::new(executor.parts()),
        TaskOptions::default(),
    );
    let manager = manager.await.unwrap();
    let started = manager.execute(request("m1", "Sleep")).await.unwrap();
    wait_until("it sleeps", || sleepers(&token) == 1).await;
    let outcome = soon(manager.cancel(&started.task_id, user()))
        .await
        .unwrap();
    assert_eq!(sleepers(&token), 0);
    assert!(outcome.receipt.quiet(), "{:?}", outcome.receipt);
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    let state = state_of(&system, "context-c1").await;
    assert_eq!(state.turns().len(), 1);
    assert!(state.open_turn().is_none());
    system.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_context_never_opens_a_foreign_session() {
    let place = Place::new();
    let system = place
        .system("", vec![Reply::text("private"), Reply::text("public")])
        .await;
    let open = system.new_session(None, SessionSetup::default()).await;
    let session = open.unwrap().session;
    let id = session.id().clone();
    soon(session.send("my secret").unwrap().outcome()).await;
    drop(session.close().await);
    let executor = system.agent_executor(
        SessionSetup::default().recipient(QuestionRecipient::Subscribers),
        AgentExecutorOptions::default(),
    );
    let manager = TaskManager::open(
        Arc::new(MemoryLog::new()),
        system.scope().clone(),
        Arc::new(executor.parts()),
        TaskOptions::default(),
    );
    let manager = manager.await.unwrap();
    let request = request("m1", "tell me").context(ContextId::new(id.as_str()));
    let mut started = manager.execute(request).await.unwrap();
    words(&mut started).await;
    let task = manager.get(&started.task_id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(state_of(&system, id.as_str()).await.turns().len(), 1);
    system.close().await;
}
