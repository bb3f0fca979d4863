//! Stops of tasks with shell processes, while the turn of the task waits for an answer, or only its background work
//! runs.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::Receipt;
use allstop_core::receipt::ItemKind;
use allstop_log::MemoryLog;
use allstop_model::{ModelError, ModelErrorKind, Reply};
use allstop_runtime::{AgentExecutorOptions, QuestionRecipient, SessionSetup, System};
use allstop_task::{TaskManager, TaskOptions, TaskState, WhenFull};
use serde_json::json;

use super::support::{request, soon, user, words};
use crate::{Place, sleepers, token, wait_until};

/// Every write requires a permission; commands require none.
const CONFIG: &str =
    "[permissions]\nallow = [\"shell\"]\nask = [\"write\"]\n[deadlines]\ngrace = \"300ms\"\n";

/// Replies that start a command in the background and then cause a permission question.
fn replies(command: &str) -> Vec<Reply> {
    let command = json!({"command": command, "background": true});
    let file = json!({"path": "x.txt", "content": "x"});
    vec![
        Reply::default().call("shell", command),
        Reply::default().call("write", file),
        Reply::text("Written."),
    ]
}

async fn manager_of(system: &System, options: TaskOptions) -> TaskManager {
    let executor = system.agent_executor(
        SessionSetup::default().recipient(QuestionRecipient::Subscribers),
        AgentExecutorOptions::default(),
    );
    let (log, scope) = (Arc::new(MemoryLog::new()), system.scope().clone());
    let manager = TaskManager::open(log, scope, Arc::new(executor.parts()), options);
    manager.await.expect("memory")
}

fn background(receipt: &Receipt) -> usize {
    let items = receipt.items().iter();
    items
        .filter(|item| item.kind == ItemKind::Background)
        .count()
}

/// The stop of the session takes longer than the grace period, because the command ignores SIGTERM.
#[tokio::test(flavor = "multi_thread")]
async fn stop_of_a_question_waits_for_the_force_of_its_session() {
    let (place, token) = (Place::new(), token());
    let deaf = format!("trap '' TERM; sleep {token}");
    let system = place.system(CONFIG, replies(&deaf)).await;
    let manager = manager_of(&system, TaskOptions::default()).await;
    let mut asked = manager.execute(request("m1", "Write")).await.unwrap();
    words(&mut asked).await;
    wait_until("it sleeps", || sleepers(&token) == 1).await;
    let preview = manager.preview(&asked.task_id, user()).await.unwrap();
    let kinds: Vec<_> = preview.items().iter().map(|item| item.kind).collect();
    assert!(kinds.contains(&ItemKind::Background), "{preview:?}");
    assert!(
        kinds.contains(&ItemKind::ToolCall),
        "the call that asks: {preview:?}"
    );
    let outcome = soon(manager.cancel(&asked.task_id, user())).await.unwrap();
    assert_eq!(sleepers(&token), 0);
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    let receipt = outcome.receipt;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(background(&receipt), 1, "{receipt:?}");
    system.close().await;
}

/// The answer waits for a slot when the stop arrives, so no executor has the turn.
#[tokio::test(flavor = "multi_thread")]
async fn stop_of_a_queued_answer_stops_the_turn_that_waits_for_it() {
    let (place, token) = (Place::new(), token());
    let system = place
        .system(CONFIG, replies(&format!("sleep {token}")))
        .await;
    let options = TaskOptions::default()
        .running_max(1)
        .when_full(WhenFull::Queue { len_max: 10 });
    let manager = manager_of(&system, options).await;
    let mut asked = manager.execute(request("m1", "Write")).await.unwrap();
    words(&mut asked).await;
    wait_until("it sleeps", || sleepers(&token) == 1).await;
    // Occupies the only slot, because its turn waits until the question is answered.
    let holder = manager.execute(request("m2", "Hold")).await.unwrap();
    let answer = request("m3", "yes").task(asked.task_id.clone());
    manager.execute(answer).await.unwrap();
    let outcome = soon(manager.cancel(&asked.task_id, user())).await.unwrap();
    let receipt = outcome.receipt;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(background(&receipt), 1, "{receipt:?}");
    let _holder = soon(manager.cancel(&holder.task_id, user())).await;
    system.close().await;
}

/// A failed task no longer waits for its background work, so the failure must stop this work and list it in the
/// receipt.
#[tokio::test(flavor = "multi_thread")]
async fn inactivity_stops_the_background_work_of_the_task() {
    let (place, token) = (Place::new(), token());
    let command = json!({"command": format!("sleep {token}"), "background": true});
    let replies = vec![
        Reply::default().call("shell", command),
        Reply::text("It runs."),
    ];
    let system = place.system(CONFIG, replies).await;
    let options = TaskOptions::default().inactivity_max(Duration::from_millis(500));
    let manager = manager_of(&system, options).await;
    let mut started = manager.execute(request("m1", "Run")).await.unwrap();
    assert_eq!(words(&mut started).await.last().unwrap(), "ended failed");
    assert_eq!(sleepers(&token), 0);
    let task = manager.get(&started.task_id).await.unwrap();
    let receipt = task.ending.receipt.as_deref().unwrap();
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(background(receipt), 1, "{receipt:?}");
    system.close().await;
}

/// An ended task cannot be stopped, so it must not leave work of its turn running.
#[tokio::test(flavor = "multi_thread")]
async fn failed_turn_leaves_no_background_work() {
    let (place, token) = (Place::new(), token());
    let command = json!({"command": format!("sleep {token}"), "background": true});
    let error = ModelError::new(ModelErrorKind::Unauthorized, "the key is wrong");
    let replies = vec![Reply::default().call("shell", command), Reply::error(error)];
    let system = place.system(CONFIG, replies).await;
    let manager = manager_of(&system, TaskOptions::default()).await;
    let mut started = manager.execute(request("m1", "Run")).await.unwrap();
    assert_eq!(words(&mut started).await.last().unwrap(), "ended failed");
    assert_eq!(sleepers(&token), 0);
    let task = manager.get(&started.task_id).await.unwrap();
    let error = task.ending.error.as_deref().unwrap();
    assert!(error.contains("the key is wrong"), "{error}");
    assert!(!error.contains("running"), "{error}");
    system.close().await;
}
