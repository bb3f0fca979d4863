//! Permission questions of a turn, which give its task the state `input_required`.

use allstop_core::{Extent, TaskId};
use allstop_model::Reply;
use allstop_scope::StopRequest;
use allstop_task::TaskState;
use serde_json::json;

use super::support::{AgentTasks, TestAgents, WorkTool, answer, status_text, user, words};

/// A task with one call, which waits for a permission.
async fn asking(work: &WorkTool) -> (AgentTasks, TaskId) {
    let tool = work.clone();
    let agents = TestAgents::new(vec![
        Reply::text("").call("work", json!({"file": "a.txt"})),
        Reply::text("done"),
        Reply::text("next"),
    ]);
    let agents = TestAgents {
        asks: true,
        ..agents.tools(move |_| vec![tool.tool()])
    };
    let tasks = AgentTasks::new(agents).await;
    let mut started = tasks.start("m1", "Do it").await;
    assert_eq!(words(&mut started).await, ["working", "input_required"]);
    let task = tasks.task(&started.task_id).await;
    let text = status_text(&task);
    assert!(
        text.contains("work") && text.contains("Answer yes or no"),
        "{text}"
    );
    let message = task.status.message.as_ref().expect("it has a message");
    assert_eq!(message.metadata["tool"], "work");
    assert_eq!(work.live(), 0);
    (tasks, started.task_id)
}

#[tokio::test(start_paused = true)]
async fn allowed_call_runs_in_the_same_turn() {
    let work = WorkTool::new();
    let (tasks, id) = asking(&work).await;
    // The question stays open until the client answers, without a time limit.
    tokio::time::sleep(std::time::Duration::from_hours(2)).await;
    work.gate.add_permits(1);
    let mut replied = tasks.reply(&id, "m2", "Yes.").await;
    assert_eq!(
        words(&mut replied).await,
        ["working", "answer", "ended completed"]
    );
    assert_eq!(answer(&*tasks.task(&id).await), "done");
    let seen = tasks.last_request();
    assert!(seen.contains("worked") && !seen.contains("Yes."), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn denied_call_does_not_run_and_the_turn_continues() {
    let work = WorkTool::new();
    let (tasks, id) = asking(&work).await;
    let mut replied = tasks.reply(&id, "m2", "no").await;
    let task = tasks.rest(&mut replied).await;
    assert_eq!(answer(&task), "done");
    let seen = tasks.last_request();
    assert!(
        seen.contains("denied") && !seen.contains("worked"),
        "{seen}"
    );
}

#[tokio::test(start_paused = true)]
async fn other_text_denies_and_reaches_the_model() {
    let work = WorkTool::new();
    let (tasks, id) = asking(&work).await;
    let mut replied = tasks.reply(&id, "m2", "Use b.txt instead").await;
    let task = tasks.rest(&mut replied).await;
    assert_eq!(answer(&task), "done");
    let seen = tasks.last_request();
    assert!(
        seen.contains("denied") && seen.contains("Use b.txt instead"),
        "{seen}"
    );
    assert_eq!(tasks.model.requests().len(), 2, "one turn");
}

#[tokio::test(start_paused = true)]
async fn cancel_of_a_task_that_asks_ends_its_turn() {
    let work = WorkTool::new();
    let (tasks, id) = asking(&work).await;
    // The next task of the context waits until the question is answered.
    let mut next = tasks.start("m2", "Hello").await;
    let outcome = tasks.cancel(&id).await;
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    assert!(outcome.receipt.quiet(), "{:?}", outcome.receipt);
    assert_eq!(answer(&*tasks.rest(&mut next).await), "done");
    assert_eq!(work.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_of_two_parallel_calls_asks_for_itself() {
    let work = WorkTool::new();
    work.gate.add_permits(2);
    let tool = work.clone();
    let calls = Reply::text("").call("work", json!({"file": "a.txt"}));
    let agents = TestAgents::new(vec![
        calls.call("work", json!({"file": "b.txt"})),
        Reply::text("done"),
    ]);
    let agents = TestAgents {
        asks: true,
        ..agents.tools(move |_| vec![tool.tool()])
    };
    let tasks = AgentTasks::new(agents).await;
    let first = tasks.run("m1", "Do it").await;
    assert!(status_text(&first).contains("a.txt"), "{first:?}");
    let mut replied = tasks.reply(&first.id, "m2", "yes").await;
    let second = tasks.rest(&mut replied).await;
    assert_eq!(second.status.state, TaskState::InputRequired);
    assert!(status_text(&second).contains("b.txt"), "{second:?}");
    let mut replied = tasks.reply(&first.id, "m3", "no").await;
    assert_eq!(answer(&*tasks.rest(&mut replied).await), "done");
    let seen = tasks.last_request();
    assert!(seen.contains("worked") && seen.contains("denied"), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_leaves_a_task_that_asks() {
    let work = WorkTool::new();
    let (tasks, id) = asking(&work).await;
    let within = std::time::Duration::from_secs(5);
    let report = tasks.manager.shutdown(within, "test").await;
    assert!(report.receipts.is_empty(), "no execution runs");
    assert_eq!(tasks.task(&id).await.status.state, TaskState::InputRequired);
    let stop = StopRequest::new(Extent::Process, user());
    assert!(tasks.root.stop(stop).await.quiet());
    assert_eq!(work.live(), 0);
}
