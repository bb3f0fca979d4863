//! Stops of tasks: no work of a stopped task continues, but its context continues.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{ConversationEffect, ItemKind};
use allstop_core::{ContextId, Extent, Receipt};
use allstop_model::{Reply, ScriptedModel};
use allstop_runtime::AgentExecutorOptions;
use allstop_scope::{RootOptions, Scope, StopRequest, WorkSpec};
use allstop_task::{ExecutionCx, Executor, ExecutorError, ExecutorReturn, TaskParts, TaskState};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::json;

use super::support::{
    AgentTasks, Logs, TestAgents, WorkTool, answer, request, soon, status_text, until_state, user,
};

async fn working(work: &WorkTool) -> AgentTasks {
    let tool = work.clone();
    let agents = TestAgents::new(vec![
        Reply::text("").call("work", json!({})),
        Reply::text("next"),
    ]);
    AgentTasks::new(agents.tools(move |_| vec![tool.tool()])).await
}

#[tokio::test(start_paused = true)]
async fn no_tool_runs_after_a_cancel() {
    for work in [WorkTool::new(), WorkTool::deaf()] {
        let tasks = working(&work).await;
        let started = tasks.start("m1", "Work").await;
        work.started().await;
        let outcome = tasks.cancel(&started.task_id).await;
        assert_eq!(work.live(), 0, "nothing runs on");
        assert!(outcome.receipt.quiet(), "{:?}", outcome.receipt);
        let item = |id: &str| outcome.receipt.items().iter().any(|item| &*item.id == id);
        assert!(item("turn"), "{:?}", outcome.receipt);
        let task = &outcome.task;
        assert_eq!(task.status.state, TaskState::Canceled);
        assert!(task.artifacts.is_empty());
        assert!(status_text(task).contains("work: "), "{task:?}");
        // The session is free at once, and its conversation is the same as before the task. A note names the stopped call.
        let next = tasks.run("m2", "Hello").await;
        assert_eq!(answer(&next), "next");
        let request = tasks.last_request();
        assert!(request.contains("began with: Work"), "{request}");
        assert!(request.contains("- work: "), "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn canceled_task_carries_the_receipt_of_its_turn() {
    let work = WorkTool::new();
    let tasks = working(&work).await;
    let started = tasks.start("m1", "Work").await;
    work.started().await;
    let outcome = tasks.cancel(&started.task_id).await;
    assert_eq!(outcome.task.ending.receipt.as_ref(), Some(&outcome.receipt));
    let items = outcome.receipt.items();
    assert!(items.iter().any(|item| &*item.name == "work"), "{items:?}");
    assert!(items.iter().any(|item| &*item.id == "turn"), "{items:?}");
}

/// An executor that does not notice the stop. Example: the second signal to a server drops the executor before it runs
/// again.
struct UnheardExecutor(Arc<dyn Executor>);

impl Executor for UnheardExecutor {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        let (scope, work) = (cx.scope.clone(), self.0.execute(cx));
        async move {
            tokio::select! {
                biased;
                () = scope.stopped() => std::future::pending().await,
                ended = work => ended,
            }
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn receipt_names_the_turn_of_an_executor_that_was_dropped() {
    let work = WorkTool::new();
    let (tool, replies) = (work.clone(), vec![Reply::text("").call("work", json!({}))]);
    let agents = TestAgents::new(replies).tools(move |_| vec![tool.tool()]);
    let unheard = |mut parts: TaskParts| {
        parts.executor = Arc::new(UnheardExecutor(parts.executor));
        parts
    };
    let (logs, options) = (Logs::new(), AgentExecutorOptions::default());
    let tasks = AgentTasks::over(&logs, agents, options, unheard).await;
    let mut started = tasks.start("m1", "Work").await;
    work.started().await;
    let stop = StopRequest::new(Extent::Process, user());
    tasks.tasks.stop(stop).force();
    let task = tasks.rest(&mut started).await;
    assert_eq!(work.live(), 0, "nothing runs on");
    assert!(status_text(&task).contains("work: "), "{task:?}");
    let receipt = task.ending.receipt.as_ref().unwrap();
    let items = receipt.items();
    assert!(
        items.iter().any(|item| item.kind == ItemKind::ToolCall),
        "{items:?}"
    );
}

/// The receipt must not show the work of other tasks, because the tasks of a server may belong to different users.
#[tokio::test(start_paused = true)]
async fn receipt_of_a_task_lists_only_its_own_work() {
    let work = WorkTool::new();
    let (tool, call) = (work.clone(), || Reply::text("").call("work", json!({})));
    let agents = TestAgents::new(vec![call(), call()]).tools(move |_| vec![tool.tool()]);
    let unheard = |mut parts: TaskParts| {
        parts.executor = Arc::new(UnheardExecutor(parts.executor));
        parts
    };
    let (logs, options) = (Logs::new(), AgentExecutorOptions::default());
    let tasks = AgentTasks::over(&logs, agents, options, unheard).await;
    let mut started = Vec::new();
    for context in ["c1", "c2"] {
        let request = request(context, "Work").context(ContextId::from(context));
        started.push(tasks.manager.execute(request).await.unwrap());
        work.started().await;
    }
    let stop = || StopRequest::new(Extent::Process, user());
    drop(tasks.root.stop(stop()));
    tasks.tasks.stop(stop()).force();
    for task in &mut started {
        let task = tasks.rest(task).await;
        let receipt = task.ending.receipt.as_ref().unwrap();
        let items = receipt.items().iter();
        let calls = items.filter(|item| item.kind == ItemKind::ToolCall).count();
        assert_eq!(calls, 1, "{receipt:?}");
        assert!(receipt.quiet(), "{receipt:?}");
    }
    assert_eq!(work.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn preview_lists_the_items_of_the_receipt() {
    let work = WorkTool::new();
    let tasks = working(&work).await;
    let started = tasks.start("m1", "Work").await;
    work.started().await;
    let preview = tasks
        .manager
        .preview(&started.task_id, user())
        .await
        .unwrap();
    assert!(preview.is_preview(), "{preview:?}");
    assert_eq!(work.live(), 1, "a preview stops nothing");
    let ids_in = |receipt: &Receipt| -> BTreeSet<String> {
        let items = receipt.items().iter();
        items
            .map(|item| format!("{:?} {}", item.kind, item.id))
            .collect()
    };
    let previewed = ids_in(&preview);
    assert!(
        previewed.iter().any(|name| name.starts_with("ToolCall")),
        "{previewed:?}"
    );
    let outcome = tasks.cancel(&started.task_id).await;
    assert!(
        previewed.is_subset(&ids_in(&outcome.receipt)),
        "{previewed:?} {:?}",
        outcome.receipt
    );
    let preview = tasks
        .manager
        .preview(&started.task_id, user())
        .await
        .unwrap();
    assert_eq!(preview.items(), []);
}

#[tokio::test(start_paused = true)]
async fn cancel_of_a_waiting_task_leaves_the_running_turn() {
    let work = WorkTool::new();
    let tasks = working(&work).await;
    let mut first = tasks.start("m1", "Work").await;
    work.started().await;
    let second = tasks.start("m2", "Wait").await;
    let begin = tokio::time::Instant::now();
    let outcome = tasks.cancel(&second.task_id).await;
    assert_eq!(begin.elapsed(), Duration::ZERO, "nothing has to be awaited");
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    let conversation = outcome.receipt.conversation();
    assert_eq!(conversation, ConversationEffect::Unchanged);
    assert_eq!(work.live(), 1, "the other task works");
    work.gate.add_permits(1);
    assert_eq!(answer(&*tasks.rest(&mut first).await), "next");
}

#[tokio::test(start_paused = true)]
async fn cancel_of_a_waiting_task_names_its_completed_calls() {
    let work = WorkTool::new();
    let tool = work.clone();
    let agents = TestAgents::new(vec![
        Reply::text("").call("work", json!({"step": 1})),
        Reply::text("").call("work", json!({"step": 2})),
    ]);
    let agents = TestAgents {
        asks: true,
        ..agents.tools(move |_| vec![tool.tool()])
    };
    let tasks = AgentTasks::new(agents).await;
    let asked = tasks.run("m1", "Work").await;
    work.gate.add_permits(1);
    let mut again = tasks.reply(&asked.id, "m2", "yes").await;
    let task = tasks.rest(&mut again).await;
    assert_eq!(task.status.state, TaskState::InputRequired);
    let outcome = tasks.cancel(&task.id).await;
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    let text = status_text(&outcome.task);
    assert!(text.contains("work: completed"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_stops_the_turns_of_all_tasks() {
    let work = WorkTool::new();
    let tasks = working(&work).await;
    let first = tasks.start("m1", "Work").await;
    work.started().await;
    until_state(&tasks, &first.task_id, TaskState::Working).await;
    let second = tasks.start("m2", "Wait").await;
    let report = tasks.manager.shutdown(Duration::from_secs(5), "test").await;
    assert_eq!(report.not_stored, 0);
    assert!(
        report.receipts.iter().all(|receipt| receipt.quiet()),
        "{report:?}"
    );
    assert_eq!(work.live(), 0);
    for id in [&first.task_id, &second.task_id] {
        assert_eq!(tasks.task(id).await.status.state, TaskState::Canceled);
    }
    assert_eq!(
        tasks.model.requests().len(),
        1,
        "the waiting turn never began"
    );
}

#[tokio::test(start_paused = true)]
async fn stop_of_the_session_by_others_cancels_the_task() {
    let work = WorkTool::new();
    let tasks = working(&work).await;
    let mut started = tasks.start("m1", "Work").await;
    work.started().await;
    let stop = StopRequest::new(Extent::Process, user());
    assert!(tasks.root.stop(stop).await.quiet());
    let task = tasks.rest(&mut started).await;
    assert_eq!(task.status.state, TaskState::Canceled);
    assert_eq!(
        status_text(&task),
        "the turn ended: cancelled, user; calls that may have changed something, but are not in the conversation: \
         work: was stopped; a part of its effect may have happened"
    );
}

/// Maximum number of moments in a short task, counted in yields of the test.
const MOMENTS_MAX: usize = 120;

/// Runs a task and cancels the task after a number of yields, once for each number. Returns the states before and after
/// the cancels.
async fn cancel_at_each_moment(asks: bool) -> [BTreeSet<&'static str>; 2] {
    let [mut before, mut after] = [BTreeSet::new(), BTreeSet::new()];
    for moment in 0..MOMENTS_MAX {
        let work = WorkTool::new();
        work.gate.add_permits(2);
        let tool = work.clone();
        let agents = TestAgents {
            asks,
            // Selects replies by conversation, because a stopped turn may have used none, one or both replies.
            model: Arc::new(ScriptedModel::new(vec![
                Reply::text("").call("work", json!({})),
                Reply::text("done"),
            ])),
            ..TestAgents::new(Vec::new()).tools(move |_| vec![tool.tool()])
        };
        let tasks = AgentTasks::new(agents).await;
        let started = tasks.start("m1", "Work").await;
        for number in 0..moment {
            if asks && number == MOMENTS_MAX / 2 {
                // The executor waits for other questions before it asks the client.
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            tokio::task::yield_now().await;
        }
        let state = tasks.task(&started.task_id).await.status.state;
        before.insert(state.as_str());
        let canceled = soon(tasks.manager.cancel(&started.task_id, user())).await;
        assert_eq!(work.live(), 0, "moment {moment}");
        let task = tasks.task(&started.task_id).await;
        after.insert(task.status.state.as_str());
        let is_completed = task.status.state == TaskState::Completed;
        assert_eq!(
            task.artifacts.len(),
            usize::from(is_completed),
            "moment {moment}"
        );
        if let Ok(canceled) = canceled {
            assert!(canceled.receipt.quiet(), "moment {moment}: {canceled:?}");
        }
        assert!(tasks.root.is_quiet(), "moment {moment}");
        // The context accepts the next message at once.
        let next = tasks.run("m2", "Again").await;
        assert!(!matches!(
            next.status.state,
            TaskState::Canceled | TaskState::Submitted
        ));
    }
    [before, after]
}

/// Runs the test as a task. Tokio polls the test's own future only once for many polls of tasks.
async fn as_task<T: Send + 'static>(test: impl Future<Output = T> + Send + 'static) -> T {
    let scope = Scope::root("driver", RootOptions::single_runtime());
    let spec = WorkSpec::new(ItemKind::Future, "driver");
    let driver = scope.spawn(spec, |_cx| test).expect("nothing is stopped");
    driver.await.expect("no panic")
}

#[tokio::test(start_paused = true)]
async fn cancel_at_any_moment_leaves_nothing_running() {
    let [before, after] = as_task(cancel_at_each_moment(false)).await;
    assert_eq!(
        before,
        BTreeSet::from(["completed", "submitted", "working"])
    );
    assert_eq!(after, BTreeSet::from(["canceled", "completed"]));
}

#[tokio::test(start_paused = true)]
async fn cancel_at_any_moment_of_a_question_leaves_no_turn() {
    let [before, after] = as_task(cancel_at_each_moment(true)).await;
    assert_eq!(
        before,
        BTreeSet::from(["input_required", "submitted", "working"])
    );
    assert_eq!(after, BTreeSet::from(["canceled"]));
}
