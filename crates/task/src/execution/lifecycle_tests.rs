//! Tests of the lifecycle of an execution: any sequence of events results in at most one end, and in a stream that
//! every reader accepts.

use std::sync::Arc;

use allstop_core::decision::{CommitDecision, CommitVerdict};
use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{
    ItemKind, ItemState, NothingToStop, ReceiptItem, StopFindings, StopInfo,
};
use allstop_core::{Cause, CauseKind, Extent, Receipt, StopId, Timestamp};
use proptest::prelude::*;

use super::lifecycle::{ExecutorEnd, Lifecycle, LifecycleEffect, LifecycleEvent};
use crate::executor::ExecutorError;
use crate::model::{
    Artifact, JsonMap, MessageSender, StoppedWork, Task, TaskEvent, TaskMessage, TaskRecord,
    TaskState,
};

/// Step of an execution.
#[derive(Debug, Clone)]
enum Step {
    State(TaskState),
    Artifact,
    Reply,
    Silent(ExecutorEnd),
    Failed,
    /// A stop is accepted, and the loop of the execution has not received it yet.
    StopAccepted(CauseKind),
    /// The loop receives the stop.
    Stopped(CauseKind),
    Accounted,
}

fn step() -> impl Strategy<Value = Step> {
    let state = prop::sample::select(vec![
        TaskState::Submitted,
        TaskState::Working,
        TaskState::InputRequired,
        TaskState::AuthRequired,
        TaskState::Completed,
        TaskState::Failed,
        TaskState::Canceled,
        TaskState::Rejected,
    ]);
    let end = prop::sample::select(vec![
        ExecutorEnd::Returned,
        ExecutorEnd::Failed(ExecutorError::new("broken"), None),
        ExecutorEnd::Panicked,
        ExecutorEnd::Dropped,
    ]);
    let kind = || {
        prop::sample::select(vec![
            CauseKind::User,
            CauseKind::Deadline,
            CauseKind::Inactivity,
            CauseKind::Shutdown,
            CauseKind::Failure,
        ])
    };
    prop_oneof![
        4 => state.prop_map(Step::State),
        2 => Just(Step::Artifact),
        1 => Just(Step::Reply),
        1 => end.prop_map(Step::Silent),
        1 => Just(Step::Failed),
        1 => kind().prop_map(Step::StopAccepted),
        1 => kind().prop_map(Step::Stopped),
        1 => Just(Step::Accounted),
    ]
}

fn at() -> Timestamp {
    Timestamp::from_unix_ms(0)
}

fn receipt() -> Arc<Receipt> {
    let info = StopInfo {
        stop_id: StopId::new("stop"),
        target: "task/t".into(),
        extent: Extent::Subtree,
        cause: Cause::new(CauseKind::User),
        requested_at: at(),
    };
    Arc::new(Receipt::empty(info, NothingToStop::AlreadyEnded))
}

/// Receipt of a stop that found this finished work.
fn stop_of(kind: CauseKind, work: &str) -> Arc<Receipt> {
    let finished = ItemState::Finished { after_ms: None };
    let item = ReceiptItem::new(ItemKind::Future, work, work, finished);
    let info = StopInfo {
        cause: Cause::new(kind),
        ..receipt().request().clone()
    };
    let findings = StopFindings {
        items: Arc::from([item]),
        ..StopFindings::default()
    };
    Arc::new(Receipt::of_stop(info, findings))
}

fn message(id: &str) -> Arc<TaskMessage> {
    Arc::new(TaskMessage::text(id, MessageSender::Agent, "text"))
}

/// A task whose first execution runs.
fn executing() -> Option<Arc<Task>> {
    let mut task = None;
    for record in [
        TaskRecord::TaskCreated {
            task_id: "t".into(),
            context_id: "c".into(),
            owner: "alice".into(),
            message: message("m1"),
            metadata: JsonMap::new(),
            trace: None,
            at: at(),
        },
        TaskRecord::ExecutionStarted {
            epoch: 1,
            process: process(),
            worker: None,
            at: at(),
        },
    ] {
        Task::apply(&mut task, &record).expect("a legal beginning");
    }
    task
}

fn process() -> ProcessIdentity {
    allstop_process::this_process().clone()
}

fn event_of(step: &Step, decision: &CommitDecision) -> Option<LifecycleEvent> {
    Some(match step {
        Step::State(state) => LifecycleEvent::Wrote(TaskEvent::state(*state)),
        Step::Artifact => LifecycleEvent::Wrote(TaskEvent::artifact(Artifact::text("a", "x"))),
        Step::Reply => LifecycleEvent::Wrote(TaskEvent::Reply(message("r"))),
        Step::Silent(end) => LifecycleEvent::Silent(end.clone()),
        Step::Failed => LifecycleEvent::Failed("lost".into()),
        Step::StopAccepted(kind) => {
            decision.stop(Cause::new(*kind));
            return None;
        }
        Step::Stopped(kind) => {
            decision.stop(Cause::new(*kind));
            // The loop receives no stop after the end is decided.
            LifecycleEvent::Stopped(decision.stopped_by()?.clone())
        }
        Step::Accounted => LifecycleEvent::Accounted(receipt()),
    })
}

fn check(steps: &[Step]) {
    let decision = Arc::new(CommitDecision::new());
    let mut lifecycle = Lifecycle::new(Arc::clone(&decision));
    let mut task = executing();
    let mut ends = Vec::new();
    for step in steps {
        let Some(event) = event_of(step, &decision) else {
            continue;
        };
        let record = match lifecycle.handle(event, at()) {
            LifecycleEffect::None => continue,
            LifecycleEffect::Append(record) => {
                assert!(!record.ends_execution(), "{record:?} is an end");
                record
            }
            LifecycleEffect::End(record) => {
                assert!(record.ends_execution(), "{record:?} is no end");
                ends.push(record.clone());
                record
            }
        };
        Task::apply(&mut task, &record).expect("a legal record");
    }
    assert!(ends.len() <= 1, "{ends:?}");
    check_end(ends.first(), steps, &decision);
}

/// The end must match the decision. If a stop wins, the end has the receipt and the cause of the stop. If the executor
/// wins, the end contains nothing about the stop.
fn check_end(end: Option<&TaskRecord>, steps: &[Step], decision: &CommitDecision) {
    let stopped_at = steps
        .iter()
        .position(|step| matches!(step, Step::Stopped(_)));
    let is_accounted = stopped_at.is_some_and(|at| {
        let mut behind = steps.iter().skip(at);
        behind.any(|step| matches!(step, Step::Accounted))
    });
    match (decision.verdict(), end) {
        (Some(CommitVerdict::Commit), Some(TaskRecord::TaskEnded { ending, .. })) => {
            assert_eq!(ending.receipt, None, "no stop was accepted");
        }
        (Some(CommitVerdict::Commit), None) => panic!("a decided end has a record"),
        (Some(CommitVerdict::Stop(cause)), Some(TaskRecord::TaskEnded { status, ending, .. })) => {
            assert!(ending.receipt.is_some());
            let is_completed = status.state == TaskState::Completed;
            assert_eq!(ending.cause.as_ref(), (!is_completed).then_some(cause));
        }
        (Some(CommitVerdict::Stop(_)), Some(end)) => {
            assert!(matches!(end, TaskRecord::Replied { .. }), "{end:?}");
        }
        (Some(CommitVerdict::Stop(_)), None) => assert!(!is_accounted, "the receipt ends it"),
        // The end is a reply, or a state in which the task waits.
        (Some(CommitVerdict::Commit), Some(_)) => {}
        (None, end) => assert_eq!(end, None),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 4_096, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_gives_at_most_one_end(steps in prop::collection::vec(step(), 0..14)) {
        check(&steps);
    }
}

/// If an event is lost after a stop, the success that the executor wrote does not count.
#[test]
fn end_of_a_stopped_executor_with_a_lost_event_is_no_success() {
    let decision = Arc::new(CommitDecision::new());
    let mut lifecycle = Lifecycle::new(Arc::clone(&decision));
    let mut last = LifecycleEffect::None;
    for step in [
        Step::Stopped(CauseKind::User),
        Step::State(TaskState::Completed),
        Step::Failed,
        Step::Accounted,
    ] {
        let event = event_of(&step, &decision).expect("an event");
        last = lifecycle.handle(event, at());
    }
    let LifecycleEffect::End(TaskRecord::TaskEnded { status, ending, .. }) = last else {
        panic!("{last:?} is no end");
    };
    assert_eq!(status.state, TaskState::Canceled);
    assert_eq!(ending.error.as_deref(), Some("lost"));
}

/// A stop of another system and a stop of the task meet. The end names the first stop, with the items of both.
#[test]
fn end_by_another_stop_has_the_items_of_both_stops() {
    let decision = Arc::new(CommitDecision::new());
    let mut lifecycle = Lifecycle::new(Arc::clone(&decision));
    let stopped = Step::Stopped(CauseKind::User);
    let stopped = event_of(&stopped, &decision).expect("an event");
    let turn = stop_of(CauseKind::Deadline, "turn");
    let other = TaskEvent::Stopped(StoppedWork {
        receipt: Arc::clone(&turn),
        message: None,
        error: Some("too late".into()),
    });
    let mut last = LifecycleEffect::None;
    for event in [
        stopped,
        LifecycleEvent::Wrote(other),
        LifecycleEvent::Accounted(stop_of(CauseKind::User, "executor")),
    ] {
        last = lifecycle.handle(event, at());
    }
    let LifecycleEffect::End(TaskRecord::TaskEnded { status, ending, .. }) = last else {
        panic!("{last:?} is no end");
    };
    assert_eq!(status.state, TaskState::Failed);
    assert_eq!(ending.cause.as_ref(), Some(turn.cause()));
    assert_eq!(ending.error.as_deref(), Some("too late"));
    let receipt = ending.receipt.expect("a receipt");
    assert_eq!(receipt.cause(), turn.cause());
    let items: Vec<_> = receipt.items().iter().map(|item| &*item.id).collect();
    assert_eq!(items, ["turn", "executor"]);
}
