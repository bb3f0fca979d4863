//! Permission questions of a turn, which give its task the state `input_required`.

use std::sync::Arc;

use allstop_core::{Extent, TaskId};
use allstop_model::Reply;
use allstop_scope::StopRequest;
use allstop_task::model::{JsonMap, MessagePart, PartContent};
use allstop_task::{Task, TaskState};
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

/// A task with two parallel calls, which wait for permissions.
async fn asking_twice() -> (AgentTasks, Arc<Task>) {
    let work = WorkTool::new();
    work.gate.add_permits(2);
    let calls = Reply::text("").call("work", json!({"file": "a.txt"}));
    let agents = TestAgents::new(vec![
        calls.call("work", json!({"file": "b.txt"})),
        Reply::text("done"),
    ]);
    let agents = TestAgents {
        asks: true,
        ..agents.tools(move |_| vec![work.tool()])
    };
    let tasks = AgentTasks::new(agents).await;
    let task = tasks.run("m1", "Do it").await;
    assert_eq!(task.status.state, TaskState::InputRequired);
    (tasks, task)
}

/// Texts of the questions of a task, and their ids.
fn questions(task: &Task) -> Vec<(String, String)> {
    let message = task.status.message.as_ref().expect("it asks");
    let ids = message.parts.iter().filter_map(|part| {
        let id = part.metadata.get("question_id")?.as_str()?;
        let PartContent::Text(text) = &part.content else {
            panic!("{part:?}")
        };
        Some((text.to_string(), id.to_owned()))
    });
    ids.collect()
}

#[tokio::test(start_paused = true)]
async fn parallel_calls_ask_together_and_one_word_answers_all() {
    let (tasks, task) = asking_twice().await;
    let asked = questions(&task);
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[0].0.contains("a.txt") && asked[1].0.contains("b.txt"));
    let mut replied = tasks.reply(&task.id, "m2", "yes").await;
    assert_eq!(answer(&*tasks.rest(&mut replied).await), "done");
    let seen = tasks.last_request();
    assert_eq!(seen.matches("worked").count(), 2, "{seen}");
    assert!(!seen.contains("denied"), "{seen}");
}

/// A part with the id of a question answers this question. The client is asked the other question again.
#[tokio::test(start_paused = true)]
async fn answer_with_an_id_answers_only_its_question() {
    let (tasks, task) = asking_twice().await;
    let asked = questions(&task);
    let part = |text: &str, id: &str| MessagePart {
        metadata: JsonMap::from_iter([("question_id".to_owned(), id.into())]),
        ..MessagePart::text(text)
    };
    let second = part("no", &asked[1].1);
    let mut replied = tasks.reply_with(&task.id, "m2", vec![second]).await;
    let again = tasks.rest(&mut replied).await;
    assert_eq!(again.status.state, TaskState::InputRequired);
    let left = questions(&again);
    assert_eq!((left.len(), &left[0].1), (1, &asked[0].1), "{left:?}");
    let unknown = part("yes", "q_99");
    let mut replied = tasks.reply_with(&task.id, "m3", vec![unknown]).await;
    let again = tasks.rest(&mut replied).await;
    assert_eq!(again.status.state, TaskState::InputRequired);
    let first = part("yes", &asked[0].1);
    let mut replied = tasks.reply_with(&task.id, "m4", vec![first]).await;
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
