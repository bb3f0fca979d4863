//! Commands as tasks: the exit of a command and a stop of its task compete.

mod http;
mod stops;

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, CauseKind, MessageId, Receipt};
use allstop_log::MemoryLog;
use allstop_mcp_server::{CommandConfig, CommandExecutor};
use allstop_scope::{RootOptions, Scope};
use allstop_task::model::{MessagePart, MessageSender, PartContent};
use allstop_task::{
    AcceptedTask, CancelError, LiveItem, Task, TaskManager, TaskMessage, TaskOptions, TaskParts,
    TaskRequest, TaskState,
};
use serde_json::{Value, json};

/// Number of commands in the race. A command exits within a few milliseconds, and the stops come within ten.
const RACES: u32 = 150;

async fn manager() -> TaskManager {
    let root = Scope::root("server", RootOptions::current());
    let parts = TaskParts::of(CommandExecutor::new(CommandConfig::new(".")));
    let opened = TaskManager::open(
        Arc::new(MemoryLog::new()),
        root,
        Arc::new(parts),
        TaskOptions::default(),
    );
    opened.await.expect("a manager")
}

fn request(number: u32, command: &str) -> TaskRequest {
    request_of(number, json!({"command": command}))
}

fn request_of(number: u32, arguments: Value) -> TaskRequest {
    let id = MessageId::new(number.to_string());
    let mut message = TaskMessage::text(id, MessageSender::User, "");
    message.parts = vec![MessagePart {
        content: PartContent::Data(arguments),
        ..MessagePart::text("")
    }];
    TaskRequest::new("ann", message)
}

/// The stored result of a command.
fn result(task: &Task) -> Option<&Value> {
    let part = task.artifacts.last()?.parts.first()?;
    match &part.content {
        PartContent::Data(data) => Some(data),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_and_stop_have_one_true_end() {
    let manager = manager().await;
    let (mut exited, mut stopped) = (0, 0);
    for race in 0..RACES {
        let accepted = manager.execute(request(race, "echo out; exit 7")).await;
        let id = accepted.expect("a task").task_id;
        tokio::time::sleep(Duration::from_micros(u64::from(race) * 70)).await;
        let answer = manager.cancel(&id, Cause::new(CauseKind::User)).await;
        let task = manager.get(&id).await.expect("the task");
        let result = result(&task);
        match task.status.state {
            TaskState::Completed => {
                exited += 1;
                let result = result.expect("a result");
                assert_eq!(result["exit_code"], 7, "{result}");
                assert_eq!(result["output"], "out\n", "{result}");
                assert!(result["receipt"].is_null(), "nothing was left: {result}");
                match answer {
                    Err(CancelError::AlreadyEnded(_)) => {}
                    // The stop came between the exit and the end of the task.
                    Ok(outcome) => assert!(outcome.receipt.quiet(), "{:?}", outcome.receipt),
                    Err(error) => panic!("{error}"),
                }
            }
            TaskState::Canceled => {
                stopped += 1;
                let outcome = answer.expect("a receipt");
                assert!(outcome.receipt.quiet(), "{:?}", outcome.receipt);
                assert_eq!(outcome.receipt.cause().kind, CauseKind::User);
                assert_eq!(task.ending.receipt.as_deref(), Some(&*outcome.receipt));
            }
            state => panic!("{state}: {task:?}"),
        }
    }
    assert!(
        exited > 0 && stopped > 0,
        "{exited} exited, {stopped} stopped"
    );
}

/// The items of a receipt, by their ids.
fn items(receipt: &Receipt) -> Vec<&str> {
    let items = receipt.items().iter().map(|item| &*item.id);
    items.collect()
}

/// Waits until the command has printed something.
async fn first_output(accepted: AcceptedTask) {
    let mut live = accepted.subscription.with_live_text();
    while let Some(item) = live.next().await {
        if matches!(item.expect("an item"), LiveItem::Piece(_)) {
            return;
        }
    }
    panic!("the command has ended without output");
}

async fn ended(manager: &TaskManager, accepted: AcceptedTask) -> Arc<Task> {
    let mut events = accepted.subscription;
    while let Some(event) = events.next().await {
        event.expect("an event");
    }
    manager.get(&accepted.task_id).await.expect("the task")
}

/// Polls until the condition is true.
async fn wait_until(what: &str, is_so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    waited.unwrap_or_else(|_elapsed| panic!("timed out: {what}"));
}
