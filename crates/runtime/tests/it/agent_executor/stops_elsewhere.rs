//! Stops and answers that come through the session of a task, and background work that outlives its task.

use allstop_core::Cause;
use std::time::Duration;

use allstop_core::record::Attachment;
use allstop_core::{CauseKind, Usage};
use allstop_model::{Pause, Reply};
use allstop_session::{AnswerResult, StopTarget};
use allstop_task::{CancelError, TaskState};
use allstop_tools::PermissionAnswer;
use serde_json::json;

use super::background::{building, building_with};
use super::support::{
    AgentTasks, TestAgents, WorkTool, answer, soon, status_text, until_state, user,
};

fn of_a_terminal() -> Cause {
    Cause::new(CauseKind::User)
        .detail("allstop stop")
        .by("terminal")
}

fn one_call(tool: &WorkTool) -> TestAgents {
    let (tool, calls) = (tool.clone(), Reply::text("").call("work", json!({})));
    let agents = TestAgents::new(vec![calls, Reply::text("done")]);
    agents.tools(move |_| vec![tool.tool()])
}

#[tokio::test(start_paused = true)]
async fn working_task_has_the_receipt_of_the_stop_in_its_session() {
    let work = WorkTool::new();
    let tasks = AgentTasks::new(one_call(&work)).await;
    let mut started = tasks.start("m1", "Work").await;
    work.started().await;
    let stop = tasks.session().stop(&StopTarget::Turn, of_a_terminal());
    let task = tasks.rest(&mut started).await;
    assert_eq!(task.status.state, TaskState::Canceled);
    assert_eq!(task.ending.cause, Some(of_a_terminal()));
    assert_eq!(task.ending.receipt, Some(stop.receipt().await));
}

#[tokio::test(start_paused = true)]
async fn question_whose_turn_is_stopped_in_its_session_ends_its_task() {
    let work = WorkTool::new();
    let mut agents = one_call(&work);
    agents.asks = true;
    let tasks = AgentTasks::new(agents).await;
    let asked = tasks.run("m1", "Work").await;
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let stop = tasks.session().stop(&StopTarget::Turn, of_a_terminal());
    let task = until_state(&tasks, &asked.id, TaskState::Canceled).await;
    assert_eq!(task.ending.cause, Some(of_a_terminal()));
    assert_eq!(task.ending.receipt, Some(stop.receipt().await));
    assert!(tasks.root.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn question_that_is_answered_in_its_session_completes_its_task() {
    let work = WorkTool::new();
    work.gate.add_permits(1);
    let mut agents = one_call(&work);
    agents.asks = true;
    let tasks = AgentTasks::new(agents).await;
    let asked = tasks.run("m1", "Work").await;
    let question = &tasks.session().questions()[0];
    let answered = tasks
        .session()
        .answer(&question.id, PermissionAnswer::AllowOnce);
    assert_eq!(answered, AnswerResult::Taken);
    let task = until_state(&tasks, &asked.id, TaskState::Completed).await;
    assert_eq!(answer(&task), "done");
    assert_eq!(task.ending.receipt, None);
}

#[tokio::test(start_paused = true)]
async fn work_that_outlives_its_task_is_previewed_and_stopped() {
    for attachment in [Attachment::Attached, Attachment::Detached] {
        let (tasks, _gate) = building(attachment).await;
        let task = tasks.run("m1", "Build").await;
        assert_eq!(task.status.state, TaskState::Completed);
        // Work of another task in the context does not belong to this task.
        let other = tasks.run("m2", "Hello").await;
        let preview = tasks.manager.preview(&other.id, user()).await.unwrap();
        assert!(preview.items().is_empty(), "{preview:?}");
        let nothing = tasks.manager.cancel(&other.id, user()).await;
        assert!(matches!(nothing, Err(CancelError::AlreadyEnded(_))));
        let preview = tasks.manager.preview(&task.id, user()).await.unwrap();
        assert_eq!(&*preview.items()[0].id, "bg_1", "{preview:?}");
        let stopped = tasks.cancel(&task.id).await;
        assert_eq!(stopped.task.status.state, TaskState::Completed);
        assert!(stopped.receipt.quiet(), "{stopped:?}");
        assert_eq!(&*stopped.receipt.items()[0].id, "bg_1", "{stopped:?}");
        assert_eq!(*stopped.receipt.cause(), user());
        // The turn has used tokens, but its background work has not.
        assert_eq!(stopped.receipt.usage(), Usage::default());
        assert!(tasks.root.is_quiet());
        let again = soon(tasks.manager.cancel(&task.id, user())).await;
        assert!(matches!(again, Err(CancelError::AlreadyEnded(_))));
    }
}

/// Regression test: the first message of the task was used as the answer to the permission question of the next turn.
#[tokio::test(start_paused = true)]
async fn stop_of_a_question_answers_no_other_question() {
    for text in ["yes", "one"] {
        let work = WorkTool::new();
        let calls = || Reply::text("").call("work", json!({}));
        let mut agents = TestAgents::new(vec![calls(), calls(), Reply::text("done")]);
        let tool = work.clone();
        agents = agents.tools(move |_| vec![tool.tool()]);
        agents.asks = true;
        let tasks = AgentTasks::new(agents).await;
        let first = tasks.run("m1", text).await;
        assert_eq!(first.status.state, TaskState::InputRequired);
        let mut second = tasks.start("m2", "two").await;
        tokio::task::yield_now().await;
        let stop = tasks.session().stop(&StopTarget::Turn, of_a_terminal());
        let asked = tasks.rest(&mut second).await;
        assert_eq!(asked.status.state, TaskState::InputRequired, "{text}");
        until_state(&tasks, &first.id, TaskState::Canceled).await;
        drop(stop.receipt().await);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let asked = tasks.task(&asked.id).await;
        assert_eq!(asked.status.state, TaskState::InputRequired, "{text}");
        assert_eq!(
            tasks.session().questions().len(),
            1,
            "nobody has answered it"
        );
        assert_eq!(work.live(), 0);
    }
}

/// The extent of the stop is the turn, so the background work continues and is reported.
#[tokio::test(start_paused = true)]
async fn stopped_turn_reports_its_running_background_work() {
    let pause = Reply::text("half").pause(Pause::Forever);
    let replies = vec![Reply::text("").call("build", json!({})), pause];
    let (tasks, _gate) = building_with(replies, Attachment::Attached).await;
    let mut started = tasks.start("m1", "Build").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stop = tasks.session().stop(&StopTarget::Turn, of_a_terminal());
    let task = tasks.rest(&mut started).await;
    assert_eq!(task.status.state, TaskState::Canceled);
    assert_eq!(task.ending.receipt, Some(stop.receipt().await));
    let says = status_text(&task);
    assert!(says.contains("Still running: make all (bg_1); "), "{says}");
    assert!(says.contains("build: outcome unknown"), "{says}");
    let stopped = tasks.cancel(&task.id).await;
    assert!(stopped.covers_orphans() && stopped.receipt.quiet());
    assert!(tasks.root.is_quiet());
}
