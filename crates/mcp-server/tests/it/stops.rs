//! Stops of commands: the time limit, left processes, and force.

use std::time::{Duration, Instant};

use allstop_core::receipt::{EndMethod, ItemState};
use allstop_core::{Cause, CauseKind};
use allstop_task::{SubscriptionItem, TaskRecord, TaskState};
use serde_json::json;
use tempfile::TempDir;

use crate::{ended, first_output, items, manager, request, request_of, result, wait_until};

fn by_user() -> Cause {
    Cause::new(CauseKind::User)
}

/// A stop of the user comes while the stop of the time limit waits for the command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_joins_the_stop_of_the_time_limit() {
    let manager = manager().await;
    let command = "trap 'echo asked; sleep 0.3; exit 4' TERM; while :; do sleep 0.01; done";
    let arguments = json!({"command": command, "timeout_ms": 300});
    let accepted = manager.execute(request_of(0, arguments)).await;
    let accepted = accepted.expect("a task");
    let id = accepted.task_id.clone();
    // The stop of the time limit has begun when the first result is stored.
    let mut events = accepted.subscription;
    let is_result = |item: &SubscriptionItem| {
        matches!(item, SubscriptionItem::Update(update)
            if matches!(*update.record, TaskRecord::ArtifactUpdated { .. }))
    };
    while !is_result(&events.next().await.expect("an event").expect("it is read")) {}
    let stopped = manager.cancel(&id, by_user()).await.expect("a receipt");
    let task = stopped.task;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(stopped.receipt.cause().kind, CauseKind::Deadline);
    assert_eq!(task.ending.cause.as_ref(), Some(stopped.receipt.cause()));
    assert_eq!(items(&stopped.receipt), ["executor", "command"]);
    let result = result(&task).expect("a result");
    let output = result["output"].as_str().expect("a text");
    assert!(output.ends_with("asked\n"), "{output}");
    assert_eq!(result["exit_code"], 4);
}

/// A stop comes soon after the exit of a command that has left a process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_after_the_exit_does_not_wait_for_the_grace() {
    let manager = manager().await;
    for (number, delay_ms) in (0..).zip([10, 20, 30, 40, 50, 60]) {
        let accepted = manager.execute(request(number, "sleep 50 & exit 7")).await;
        let id = accepted.expect("a task").task_id;
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        let began = Instant::now();
        let stopped = manager.cancel(&id, by_user()).await;
        let took = began.elapsed();
        assert!(took < Duration::from_millis(1_500), "{took:?}");
        let Ok(stopped) = stopped else {
            continue; // The task has ended before the stop.
        };
        assert!(stopped.receipt.quiet(), "{:?}", stopped.receipt);
        let items = items(&stopped.receipt);
        assert!(items.contains(&"command"), "{items:?} {:?}", stopped.task);
    }
}

/// The stop comes after the exit, and before a process counts as left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn left_processes_are_listed_if_a_stop_ends_them() {
    let manager = manager().await;
    let folder = TempDir::new().expect("a folder");
    let mut stopped_tasks = 0;
    for number in 0..10 {
        let forked = folder.path().join(number.to_string());
        let command = format!("sleep 50 & echo $! > '{}'; exit 7", forked.display());
        let accepted = manager.execute(request(number, &command)).await;
        let accepted = accepted.expect("a task");
        let id = accepted.task_id.clone();
        let scope_has_one = async || {
            let is_forked = forked.exists();
            let preview = manager.preview(&id, by_user()).await.expect("a preview");
            let items = preview.items().iter();
            let processes = items.flat_map(|item| &item.processes);
            is_forked && processes.count() == 1
        };
        // The shell has exited when only the process that it has forked is found.
        wait_until("only the left process runs", scope_has_one).await;
        let Ok(stopped) = manager.cancel(&id, by_user()).await else {
            continue; // The task has ended before the stop.
        };
        let result = result(&stopped.task).expect("a result");
        if stopped.task.status.state != TaskState::Completed {
            continue; // The stop came before the server saw the exit.
        }
        stopped_tasks += 1;
        let left = result["left_processes"].as_array();
        let left = left.map(Vec::as_slice).unwrap_or_default();
        let is_noted = result["note"]
            .as_str()
            .is_some_and(|note| note.contains("before"));
        assert!(left.len() == 1 || is_noted, "{result}");
        if let [left] = left {
            let pid = std::fs::read_to_string(&forked).expect("the pid of the left process");
            assert_eq!(left["pid"].to_string(), pid.trim());
        }
    }
    assert!(stopped_tasks > 0, "no stop came in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preview_lists_processes_that_start_later() {
    let manager = manager().await;
    let command = "sleep 0.2; sleep 50 & sleep 51";
    let accepted = manager.execute(request(0, command)).await.expect("a task");
    let has_three = async || {
        let preview = manager.preview(&accepted.task_id, by_user()).await;
        let preview = preview.expect("a preview");
        let item = preview.items().iter().find(|item| &*item.id == "command");
        item.is_some_and(|item| item.processes.len() == 3)
    };
    wait_until("the shell and both processes are listed", has_three).await;
    let stopped = manager.cancel(&accepted.task_id, by_user()).await;
    assert!(stopped.expect("a receipt").receipt.quiet());
}

#[tokio::test]
async fn exit_without_left_processes_has_no_receipt() {
    let manager = manager().await;
    for number in 0..20 {
        let accepted = manager.execute(request(number, "echo x")).await;
        let task = ended(&manager, accepted.expect("a task")).await;
        let result = result(&task).expect("a result");
        assert!(result["receipt"].is_null(), "{result}");
        assert!(result["left_processes"].is_null(), "{result}");
    }
}

/// The report of a killed command has the proof, the signal and the output of the grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_command_has_a_complete_result() {
    let manager = manager().await;
    let command = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done";
    let accepted = manager.execute(request(0, command)).await.expect("a task");
    let id = accepted.task_id.clone();
    first_output(accepted).await;
    let receipt = manager
        .cancel(&id, by_user())
        .await
        .expect("a receipt")
        .receipt;
    let item = receipt.items().iter().find(|item| &*item.id == "command");
    let ItemState::Stopped { how, evidence, .. } = &item.expect("the command").state else {
        panic!("{receipt:?}");
    };
    assert_eq!(*how, EndMethod::Sigkill);
    let task = manager.get(&id).await.expect("the task");
    let result = result(&task).expect("a result");
    let proof = evidence
        .proof()
        .map(allstop_core::receipt::EndProof::as_str);
    assert_eq!(result["verified"].as_str(), proof, "{result}");
    assert_eq!(result["signal"], 9, "{result}");
    let output = result["output"].as_str().expect("a text");
    assert!(
        output.starts_with("ready\n") && output.ends_with("asked\n"),
        "{output}"
    );
    assert_eq!(result["output_bytes"], output.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_stop_has_no_grace() {
    let manager = manager().await;
    let command = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
    let accepted = manager.execute(request(0, command)).await.expect("a task");
    let id = accepted.task_id.clone();
    // The first output comes after the trap.
    first_output(accepted).await;
    let stopping = manager.cancel(&id, by_user());
    let (stopped, ()) = tokio::join!(stopping, async { manager.force(&id) });
    let receipt = stopped.expect("a receipt").receipt;
    assert!(receipt.quiet(), "{receipt:?}");
    let after = receipt.quiet_after_ms().expect("it is quiet").as_f64();
    assert!(after < 1_500.0, "the grace is 2 s, and it took {after} ms");
    let task = manager.get(&id).await.expect("the task");
    assert_eq!(
        result(&task).expect("the output before the end")["output"],
        "ready\n"
    );
}

#[tokio::test]
async fn force_without_a_stop_does_nothing() {
    let manager = manager().await;
    let accepted = manager.execute(request(0, "exit 0")).await.expect("a task");
    manager.force(&accepted.task_id);
    let task = ended(&manager, accepted).await;
    assert_eq!(task.status.state, TaskState::Completed);
}
