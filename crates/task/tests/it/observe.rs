//! The calls that an observer of executions receives.

use std::sync::Arc;

use allstop_core::{Cause, TraceContext};
use allstop_log::MemoryLog;
use allstop_task::{
    ExecutionObserver, ExecutorReturn, Task, TaskEvent, TaskObserver, TaskOptions, TaskParts,
    TaskState,
};
use allstop_testkit::{FaultyLog, LogFault};
use parking_lot::Mutex;

use crate::support::{ScriptedExecutor, ended, endless, request, start, three_events, user};

#[derive(Debug, Default, Clone)]
struct Observed(Arc<Mutex<Vec<String>>>);

impl Observed {
    fn note(&self, said: impl Into<String>) {
        self.0.lock().push(said.into());
    }

    fn options(&self) -> TaskOptions {
        TaskOptions::default().observer(Arc::new(self.clone()))
    }
}

/// Trace contexts of the caller and of the observer.
const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OWN: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

impl TaskObserver for Observed {
    fn accepted(&self, task: &Task, trace: Option<&TraceContext>) -> Box<dyn ExecutionObserver> {
        let parent = trace.map(TraceContext::traceparent);
        self.note(format!("accepted {} {parent:?}", task.status.state));
        Box::new(self.clone())
    }
}

impl ExecutionObserver for Observed {
    fn trace(&self) -> Option<TraceContext> {
        TraceContext::new(OWN)
    }

    fn started(&mut self) {
        self.note("started");
    }

    fn stopping(&mut self, cause: &Cause) {
        self.note(format!("stopping {cause}"));
    }

    fn finished(&mut self) {
        self.note("finished");
    }

    fn ended(&mut self, task: &Task) {
        self.note(format!("ended {}", task.status.state));
    }
}

async fn manager_with(executor: &ScriptedExecutor, seen: &Observed) -> allstop_task::TaskManager {
    let parts = TaskParts::of(executor.clone());
    crate::support::manager(parts, seen.options()).await
}

#[tokio::test(start_paused = true)]
async fn execution_is_observed_from_its_acceptance_to_its_end() {
    let seen = Observed::default();
    let executor = three_events();
    let manager = manager_with(&executor, &seen).await;
    let request = request("m1").trace(TraceContext::new(CALLER));
    let mut accepted = manager.execute(request).await.unwrap();
    ended(&manager, &mut accepted).await;
    let accepted_with_trace = format!("accepted submitted Some({CALLER:?})");
    let said = [
        accepted_with_trace.as_str(),
        "started",
        "finished",
        "ended completed",
    ];
    assert_eq!(*seen.0.lock(), said);
}

#[tokio::test(start_paused = true)]
async fn stop_is_observed_with_its_cause() {
    let seen = Observed::default();
    let executor = endless(true);
    let manager = manager_with(&executor, &seen).await;
    let accepted = start(&manager, &executor).await;
    let _outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    let said = seen.0.lock().clone();
    assert_eq!(said[1..3], ["started", &format!("stopping {}", user())]);
    assert_eq!(said[3..], ["finished", "ended canceled"]);
}

/// The store refuses the end for a long time. The execution no longer runs.
#[tokio::test(start_paused = true)]
async fn execution_is_finished_before_its_end_is_stored() {
    let seen = Observed::default();
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    log.fail_at("task_ended", LogFault::Hold);
    let parts = TaskParts::of(three_events());
    let manager = crate::support::manager_over(log.clone(), parts, seen.options()).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    log.reached().await;
    assert_eq!(seen.0.lock().last().unwrap(), "finished");
    log.release().await;
    ended(&manager, &mut accepted).await;
    let is_told = || seen.0.lock().last().unwrap() == "ended completed";
    crate::support::wait_until("the end is observed", is_told).await;
}

#[tokio::test(start_paused = true)]
async fn stop_of_a_task_at_rest_is_observed() {
    let seen = Observed::default();
    let executor = ScriptedExecutor::new(|cx| async move {
        let _ended = cx
            .events
            .write(TaskEvent::state(TaskState::InputRequired))
            .await;
        Ok(ExecutorReturn::Finished)
    });
    let manager = manager_with(&executor, &seen).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    seen.0.lock().clear();
    let _outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    let stop = format!("stopping {}", user());
    assert_eq!(
        *seen.0.lock(),
        [
            "accepted input_required None",
            &stop,
            "finished",
            "ended canceled"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn stop_before_the_start_is_observed() {
    let seen = Observed::default();
    let executor = endless(true);
    let options = seen.options().running_max(1);
    let manager = crate::support::manager(TaskParts::of(executor.clone()), options).await;
    let _running = start(&manager, &executor).await;
    let waiting = manager.execute(request("m2")).await.unwrap();
    seen.0.lock().clear();
    let _outcome = manager.cancel(&waiting.task_id, user()).await.unwrap();
    let stop = format!("stopping {}", user());
    assert_eq!(*seen.0.lock(), [&*stop, "finished", "ended canceled"]);
}

#[tokio::test(start_paused = true)]
async fn executor_has_the_trace_of_the_observer_or_of_the_caller() {
    for observer in [None, Some(Observed::default())] {
        let traces = Arc::new(Mutex::new(Vec::new()));
        let found = Arc::clone(&traces);
        let executor = ScriptedExecutor::new(move |cx| {
            found.lock().push(cx.trace.clone());
            async { Ok(ExecutorReturn::Finished) }
        });
        let options = observer
            .as_ref()
            .map_or_else(TaskOptions::default, Observed::options);
        let parts = TaskParts::of(executor);
        let manager = crate::support::manager(parts, options).await;
        let request = request("m1").trace(TraceContext::new(CALLER));
        let mut accepted = manager.execute(request).await.unwrap();
        ended(&manager, &mut accepted).await;
        let expected = if observer.is_some() { OWN } else { CALLER };
        assert_eq!(*traces.lock(), [TraceContext::new(expected)]);
    }
}
