//! Recovery of tasks after their process ended early.

use std::sync::Arc;

use allstop_core::{Cause, CauseKind, TaskId};
use allstop_model::Reply;
use allstop_runtime::AgentExecutorOptions;
use allstop_task::{Processor, ProcessorDecision, Task, TaskEvent, TaskParts, TaskState};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::Semaphore;

use super::support::{
    AgentTasks, Logs, TestAgents, WorkTool, answer, soon, status_text, until_state,
};

/// Runs a future in a separate runtime, then drops the runtime with all work that still runs. In the log this looks
/// like a crash.
fn crash_after<T>(life: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build();
    runtime.expect("a runtime").block_on(life)
}

/// A processor of task events that holds back the answer, so that the log never stores it.
struct HoldsAnswer(Arc<Semaphore>);

impl Processor for HoldsAnswer {
    fn process(&self, event: TaskEvent, _task: Arc<Task>) -> BoxFuture<'static, ProcessorDecision> {
        let reached = Arc::clone(&self.0);
        Box::pin(async move {
            if matches!(event, TaskEvent::Artifact(_)) {
                reached.add_permits(1);
                std::future::pending::<()>().await;
            }
            ProcessorDecision::Keep(event)
        })
    }
}

/// Simulates the next process, with a model that has no replies.
async fn next_life(logs: &Logs) -> AgentTasks {
    let agents = TestAgents::new(Vec::new());
    AgentTasks::over(logs, agents, AgentExecutorOptions::default(), |parts| parts).await
}

async fn ended(tasks: &AgentTasks, id: &TaskId) -> Arc<Task> {
    soon(async {
        let subscription = tasks.manager.subscribe(id, None).await;
        let mut subscription = subscription.expect("it is stored");
        while subscription.next().await.is_some() {}
    })
    .await;
    tasks.task(id).await
}

/// Runs a task until its call runs. Then the process ends.
fn crash_during_a_call(logs: &Logs) -> TaskId {
    crash_after(async {
        let work = WorkTool::new();
        let tool = work.clone();
        let agents = TestAgents::new(vec![Reply::text("").call("work", json!({}))]);
        let agents = agents.tools(move |_| vec![tool.tool()]);
        let options = AgentExecutorOptions::default();
        let tasks = AgentTasks::over(logs, agents, options, |parts| parts).await;
        let started = tasks.start("m1", "Work").await;
        work.started().await;
        until_state(&tasks, &started.task_id, TaskState::Working).await;
        started.task_id
    })
}

#[test]
fn committed_turn_completes_its_task_after_a_crash() {
    let logs = Logs::new();
    let id = crash_after(async {
        let reached = Arc::new(Semaphore::new(0));
        let agents = TestAgents::new(vec![Reply::text("It is 42.")]);
        let holds = Arc::new(HoldsAnswer(Arc::clone(&reached)));
        let change = |mut parts: TaskParts| {
            parts.processor = Some(holds);
            parts
        };
        let options = AgentExecutorOptions::default();
        let tasks = AgentTasks::over(&logs, agents, options, change).await;
        let started = tasks.start("m1", "What is it?").await;
        soon(reached.acquire()).await.unwrap().forget();
        started.task_id
    });
    crash_after(async {
        let tasks = next_life(&logs).await;
        let task = ended(&tasks, &id).await;
        assert_eq!(task.status.state, TaskState::Completed);
        assert_eq!(answer(&task), "It is 42.");
        assert!(tasks.model.requests().is_empty(), "nothing runs again");
    });
}

#[test]
fn uncommitted_turn_fails_its_task_after_a_crash() {
    let logs = Logs::new();
    let id = crash_during_a_call(&logs);
    crash_after(async {
        let tasks = next_life(&logs).await;
        let task = ended(&tasks, &id).await;
        assert_eq!(task.status.state, TaskState::Failed);
        let text = task.ending.error.as_deref().unwrap();
        assert!(text.contains("may have completed"), "{text}");
        let cause = task.ending.cause.as_ref().unwrap();
        assert_eq!(cause.detail.as_deref(), Some("crash"));
        assert!(tasks.model.requests().is_empty(), "nothing runs again");
    });
}

/// Runs a task that asks about each of its calls, until the question after this number of calls. Then the process ends.
fn crash_at_a_question(logs: &Logs, calls: u32) -> TaskId {
    crash_after(async {
        let work = WorkTool::new();
        let tool = work.clone();
        let replies = (0..=calls).map(|step| Reply::text("").call("work", json!({"step": step})));
        let agents = TestAgents::new(replies.collect());
        let agents = TestAgents {
            asks: true,
            ..agents.tools(move |_| vec![tool.tool()])
        };
        let options = AgentExecutorOptions::default();
        let tasks = AgentTasks::over(logs, agents, options, |parts| parts).await;
        let mut task = tasks.run("m1", "Work").await;
        for answer in 0..calls {
            work.gate.add_permits(1);
            let mut allowed = tasks.reply(&task.id, &format!("yes{answer}"), "yes").await;
            task = tasks.rest(&mut allowed).await;
        }
        assert_eq!(task.status.state, TaskState::InputRequired);
        task.id.clone()
    })
}

/// Answers the question of an earlier process. Returns the failure of the task.
fn answer_after_a_crash(calls: u32) -> String {
    let logs = Logs::new();
    let id = crash_at_a_question(&logs, calls);
    crash_after(async {
        let tasks = next_life(&logs).await;
        let mut replied = tasks.reply(&id, "late", "yes").await;
        let task = tasks.rest(&mut replied).await;
        assert_eq!(task.status.state, TaskState::Failed);
        task.ending.error.as_deref().expect("a reason").to_owned()
    })
}

#[test]
fn answer_to_a_question_of_an_earlier_process_fails_the_task() {
    let text = answer_after_a_crash(0);
    assert!(
        text.ends_with("send the first message as a new task"),
        "{text}"
    );
    let text = answer_after_a_crash(1);
    assert!(
        text.contains("check the calls of the turn before"),
        "{text}"
    );
    assert!(text.contains("work: completed"), "{text}");
}

#[test]
fn cancel_of_a_question_of_an_earlier_process_names_the_completed_calls() {
    let logs = Logs::new();
    let id = crash_at_a_question(&logs, 1);
    crash_after(async {
        let tasks = next_life(&logs).await;
        let outcome = soon(tasks.cancel(&id)).await;
        assert_eq!(outcome.task.status.state, TaskState::Canceled);
        let text = status_text(&outcome.task);
        assert!(text.contains("work: completed"), "{text}");
    });
}

/// A cancel meets the next process at each step of its start. Regression: the end claimed that nothing had run.
#[test]
fn cancel_during_the_start_of_the_next_process_names_the_calls() {
    for steps in 0..60 {
        let logs = Logs::new();
        let id = crash_during_a_call(&logs);
        crash_after(async {
            let tasks = next_life(&logs).await;
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            // The task may have ended first.
            drop(soon(tasks.manager.cancel(&id, Cause::new(CauseKind::User))).await);
            let task = ended(&tasks, &id).await;
            let message = task.status.message.is_some().then(|| status_text(&task));
            let texts = [message, task.ending.error.as_deref()];
            let named = texts
                .iter()
                .flatten()
                .any(|text| text.contains("work: outcome unknown"));
            assert!(named, "{steps} steps: {:?} {texts:?}", task.status.state);
        });
    }
}

#[test]
fn task_that_waited_for_another_runs_after_a_crash() {
    let logs = Logs::new();
    let (first, waiting) = crash_after(async {
        let work = WorkTool::new();
        let tool = work.clone();
        let agents = TestAgents::new(vec![Reply::text("").call("work", json!({}))]);
        let agents = agents.tools(move |_| vec![tool.tool()]);
        let options = AgentExecutorOptions::default();
        let tasks = AgentTasks::over(&logs, agents, options, |parts| parts).await;
        let first = tasks.start("m1", "Work").await;
        work.started().await;
        let waiting = tasks.start("m2", "And what is it?").await;
        (first.task_id, waiting.task_id)
    });
    crash_after(async {
        let agents = TestAgents::new(vec![Reply::text("It is 42.")]);
        let options = AgentExecutorOptions::default();
        let tasks = AgentTasks::over(&logs, agents, options, |parts| parts).await;
        assert_eq!(ended(&tasks, &first).await.status.state, TaskState::Failed);
        let task = ended(&tasks, &waiting).await;
        assert_eq!(task.status.state, TaskState::Completed);
        assert_eq!(answer(&task), "It is 42.");
        assert!(tasks.last_request().contains("And what is it?"));
    });
}
