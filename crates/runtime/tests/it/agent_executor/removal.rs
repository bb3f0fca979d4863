//! Removal of ended tasks: the conversation of a context is deleted with its last task.

use std::sync::Arc;
use std::time::Duration;

use allstop_log::{SessionError, read_session};
use allstop_model::{Pause, Reply};
use allstop_runtime::{
    AgentExecutorOptions, ContextConversations, QuestionRecipient, SessionSetup, System,
};
use allstop_session::Session;
use allstop_task::{
    ContextData, RemovalReport, RetentionLimits, TaskManager, TaskOptions, TaskRetention, TaskState,
};

use super::support::{request, soon, user, words};
use crate::{Place, state_of, wait_until};

async fn manager_of(system: &System) -> TaskManager {
    let executor = system.agent_executor(
        SessionSetup::default().recipient(QuestionRecipient::Subscribers),
        AgentExecutorOptions::default(),
    );
    let manager = TaskManager::open(
        Arc::clone(system.log()),
        system.scope().clone(),
        Arc::new(executor.parts()),
        TaskOptions::default(),
    );
    manager.await.expect("it opens")
}

fn conversations(place: &Place, system: &System) -> ContextConversations {
    ContextConversations {
        log: Arc::clone(system.log()),
        registry: system.registry().clone(),
        spill_folder: place.file("output"),
        scope: system.scope().clone(),
    }
}

async fn remove_ended(manager: &TaskManager, contexts: ContextConversations) -> RemovalReport {
    let retention = TaskRetention {
        limits: RetentionLimits::default().age_max(Duration::ZERO),
        contexts: Arc::new(contexts),
        attachments: Vec::new(),
    };
    // A task is old only when its last record is from an earlier millisecond.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let removed = manager.remove_ended(&retention).await;
    removed.expect("the store works")
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_is_deleted_with_the_last_task_of_its_context() {
    let place = Place::new();
    let replies = vec![Reply::text("private"), Reply::text("public")];
    let system = place.system("", replies).await;
    let manager = manager_of(&system).await;
    let mut started = manager.execute(request("m1", "my secret")).await.unwrap();
    words(&mut started).await;
    drop(started);
    let output = place.file("output").join("context-c1");
    std::fs::create_dir_all(&output).unwrap();
    std::fs::write(output.join("call"), "long output").unwrap();
    assert_eq!(state_of(&system, "context-c1").await.turns().len(), 1);

    // The task stays until its execution has cleaned up.
    let removing = async {
        while remove_ended(&manager, conversations(&place, &system))
            .await
            .removed
            == 0
        {}
    };
    soon(removing).await;
    let read = read_session(&**system.log(), &"context-c1".into()).await;
    assert!(matches!(read, Err(SessionError::NotFound(_))), "{read:?}");
    assert!(!output.exists());

    // Another user may use the context now, and gets a new conversation.
    let of_bob = request("b1", "tell me").owner("bob");
    let mut started = manager.execute(of_bob).await.unwrap();
    words(&mut started).await;
    let task = manager.get(&started.task_id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    let state = state_of(&system, "context-c1").await;
    assert_eq!(state.turns().len(), 1);
    let text = format!("{:?}", state.conversation().messages);
    assert!(!text.contains("my secret"), "{text}");
    system.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_in_use_stays() {
    let place = Place::new();
    let system = place
        .system("", vec![Reply::text("…").pause(Pause::Forever)])
        .await;
    let manager = manager_of(&system).await;
    let contexts = conversations(&place, &system);
    contexts.forget("c1".into()).await.unwrap();
    contexts.forget("../c1".into()).await.unwrap();
    let started = manager.execute(request("m1", "hello")).await.unwrap();
    let is_busy = || system.registry().list().iter().any(Session::is_busy);
    wait_until("the turn runs", is_busy).await;
    let refused = contexts.forget("c1".into()).await.unwrap_err();
    assert!(refused.message().contains("in use"), "{refused}");
    // The start of the turn may be stored a moment after the session is busy.
    let stored = async { while state_of(&system, "context-c1").await.turns().is_empty() {} };
    soon(stored).await;
    let stopped = manager.cancel(&started.task_id, user()).await.unwrap();
    assert!(stopped.receipt.quiet());
    wait_until("the session is idle", || !is_busy()).await;
    contexts.forget("c1".into()).await.unwrap();
    assert!(system.registry().list().is_empty());
    let read = read_session(&**system.log(), &"context-c1".into()).await;
    assert!(matches!(read, Err(SessionError::NotFound(_))), "{read:?}");
    system.close().await;
}
