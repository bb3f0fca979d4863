//! Attached background work of a turn: the task of the turn waits for this work, up to a time limit.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::Receipt;
use allstop_core::receipt::{ItemState, NotStoppedReason};
use allstop_core::record::Attachment;
use allstop_model::{ModelError, ModelErrorKind, Reply};
use allstop_runtime::AgentExecutorOptions;
use allstop_session::AgentRequest;
use allstop_task::TaskState;
use allstop_testkit::ToolFn;
use allstop_tools::background::{TaskSpec, start_task};
use allstop_tools::{BoundedOutput, CallLink, OutputFolder, OutputLimits};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::support::{AgentTasks, TestAgents, WorkTool, answer, status_text, user, words};

/// Time limit of the wait for background work.
const LIMIT: Duration = Duration::from_secs(20);

/// A tool that starts background work, which ends when the gate opens.
pub(super) fn build_tool(
    request: &AgentRequest,
    gate: &Arc<Semaphore>,
    attachment: Attachment,
) -> ToolFn {
    let (host, gate) = (Arc::clone(&request.background), Arc::clone(gate));
    ToolFn::new("build", move |call| {
        let gate = Arc::clone(&gate);
        let output =
            BoundedOutput::new(OutputLimits::default(), Arc::new(OutputFolder::new("/tmp")));
        let spec = TaskSpec::new(
            call.call_id.clone(),
            call.scope.clone(),
            "make all",
            output,
            CallLink::unwatched("call".into()),
        )
        .attachment(attachment);
        let work = start_task(&*host, spec, move |cx| async move {
            tokio::select! {
                opened = gate.acquire() => opened.expect("never closed").forget(),
                _ = cx.scope.stopped_at("gate") => return Err("stopped".to_owned()),
            }
            Ok("built".to_owned())
        });
        let id = work.map_or_else(|refused| refused.to_string(), |work| work.id.to_string());
        async move { id }
    })
}

pub(super) async fn building(attachment: Attachment) -> (AgentTasks, Arc<Semaphore>) {
    let replies = vec![
        Reply::text("").call("build", json!({})),
        Reply::text("it builds"),
        Reply::text("next"),
    ];
    building_with(replies, attachment).await
}

pub(super) async fn building_with(
    replies: Vec<Reply>,
    attachment: Attachment,
) -> (AgentTasks, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let agents = TestAgents::new(replies);
    let in_tool = Arc::clone(&gate);
    let agents = agents.tools(move |request| vec![build_tool(request, &in_tool, attachment)]);
    let options = AgentExecutorOptions::default().background_max(LIMIT);
    (AgentTasks::with(agents, options).await, gate)
}

#[tokio::test(start_paused = true)]
async fn task_ends_after_its_attached_background_work() {
    let (tasks, gate) = building(Attachment::Attached).await;
    let mut started = tasks.start("m1", "Build").await;
    tokio::time::sleep(LIMIT / 2).await;
    let task = tasks.task(&started.task_id).await;
    assert_eq!(task.status.state, TaskState::Working);
    assert_eq!(answer(&task), "it builds", "the answer does not wait");
    // The session accepts the next message during the wait.
    let next = tasks.run("m2", "Hello").await;
    assert_eq!(answer(&next), "next");
    gate.add_permits(1);
    assert_eq!(
        words(&mut started).await,
        ["working", "answer", "ended completed"]
    );
    assert!(tasks.task(&started.task_id).await.status.message.is_none());
}

#[tokio::test(start_paused = true)]
async fn task_names_the_work_that_outlasts_its_limit() {
    let (tasks, _gate) = building(Attachment::Attached).await;
    let begin = Instant::now();
    let task = tasks.run("m1", "Build").await;
    assert_eq!(begin.elapsed().as_secs(), LIMIT.as_secs());
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(status_text(&task), "Still running: make all (bg_1)");
}

#[tokio::test(start_paused = true)]
async fn detached_work_never_holds_a_task() {
    let (tasks, _gate) = building(Attachment::Detached).await;
    let begin = Instant::now();
    let task = tasks.run("m1", "Build").await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(begin.elapsed().as_secs(), 0);
}

#[tokio::test(start_paused = true)]
async fn cancel_stops_only_the_background_work_of_the_task() {
    let (tasks, _gate) = building(Attachment::Attached).await;
    let started = tasks.start("m1", "Build").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // A task without background work does not stop the background work of another task.
    let mut next = tasks.start("m2", "Hello").await;
    tasks.rest(&mut next).await;
    assert!(!tasks.root.is_quiet());
    let outcome = tasks.cancel(&started.task_id).await;
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    let items = outcome.receipt.items();
    assert!(items.iter().any(|item| &*item.id == "bg_1"), "{items:?}");
    assert!(tasks.root.is_quiet());
}

/// The later message is sent before the work of the earlier turn starts, or after that.
#[tokio::test(start_paused = true)]
async fn stop_of_a_task_leaves_the_work_of_an_earlier_one() {
    for is_sent_before in [true, false] {
        let (work, gate) = (WorkTool::new(), Arc::new(Semaphore::new(0)));
        let agents = TestAgents::new(vec![
            Reply::text("").call("work", json!({})),
            Reply::text("").call("build", json!({})),
            Reply::text("it builds"),
            Reply::text("").call("work", json!({})),
        ]);
        let (worker, in_tool) = (work.clone(), Arc::clone(&gate));
        let agents = agents.tools(move |request| {
            let build = build_tool(request, &in_tool, Attachment::Attached);
            vec![worker.tool(), build]
        });
        let tasks = AgentTasks::new(agents).await;
        let mut earlier = tasks.start("m1", "Build").await;
        work.started().await;
        let sent_before = if is_sent_before {
            Some(tasks.start("m2", "Hello").await)
        } else {
            None
        };
        work.gate.add_permits(1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let later = match sent_before {
            Some(later) => later,
            None => tasks.start("m2", "Hello").await,
        };
        work.started().await;
        let preview = tasks.manager.preview(&later.task_id, user()).await;
        let preview = preview.expect("it runs");
        assert!(!covers_build(&preview), "{preview:?}");
        let earlier_preview = tasks.manager.preview(&earlier.task_id, user()).await;
        let earlier_preview = earlier_preview.expect("it waits for its work");
        assert!(covers_build(&earlier_preview), "{earlier_preview:?}");
        let stopped = tasks.cancel(&later.task_id).await;
        assert!(!covers_build(&stopped.receipt), "{stopped:?}");
        assert!(!tasks.root.is_quiet(), "sent before: {is_sent_before}");
        gate.add_permits(1);
        assert_eq!(
            words(&mut earlier).await,
            ["working", "answer", "ended completed"]
        );
    }
}

fn covers_build(receipt: &Receipt) -> bool {
    let outside = ItemState::StillRunning {
        why: NotStoppedReason::OutsideExtent,
    };
    let mut items = receipt.items().iter();
    items.any(|item| &*item.id == "bg_1" && item.state != outside)
}

#[tokio::test(start_paused = true)]
async fn failed_task_leaves_the_work_of_an_earlier_one() {
    let error = ModelError::new(ModelErrorKind::Unauthorized, "the key is wrong");
    let replies = vec![
        Reply::text("").call("build", json!({})),
        Reply::text("it builds"),
        Reply::error(error),
    ];
    let (tasks, gate) = building_with(replies, Attachment::Attached).await;
    let mut earlier = tasks.start("m1", "Build").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let failed = tasks.run("m2", "Hello").await;
    assert_eq!(failed.status.state, TaskState::Failed);
    let reason = failed.ending.error.as_deref().unwrap();
    assert!(!reason.contains("make all"), "{reason}");
    assert!(!tasks.root.is_quiet(), "it builds");
    gate.add_permits(1);
    let completed = ["working", "answer", "ended completed"];
    assert_eq!(words(&mut earlier).await, completed);
}
