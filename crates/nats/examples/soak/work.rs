//! Executor of the tasks in the soak test.

use std::net::SocketAddr;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_process::{ContainmentChoice, ProcessSpec, this_process};
use allstop_scope::WorkSpec;
use allstop_task::{
    ExecutionCx, Executor, ExecutorError, ExecutorReturn, Task, TaskEvent, TaskState,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::ledger_client::{LedgerQuestion, ask};
use super::plan::SoakPlan;

/// Name on the command lines of the child processes. The id of the task and the epoch (the number of the execution)
/// follow the name.
pub(crate) const CHILD: &str = "soak-child";

/// Objects that the work of a task uses on its worker.
#[derive(Debug, Clone)]
pub(crate) struct WorkPlace {
    pub ledger: SocketAddr,
    pub containment: ContainmentChoice,
}

#[derive(Debug, Clone)]
pub(crate) struct SoakExecutor {
    /// `None` on a node that runs no executions.
    pub place: Option<WorkPlace>,
}

impl Executor for SoakExecutor {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        let place = self.place.clone().expect("only workers run tasks");
        async move {
            work(&place, &cx).await?;
            Ok(ExecutorReturn::Finished)
        }
        .boxed()
    }

    fn can_resume(&self, task: &Task) -> bool {
        !SoakPlan::of(&task.metadata).is_irreversible
    }
}

async fn work(place: &WorkPlace, cx: &ExecutionCx) -> Result<(), ExecutorError> {
    let plan = SoakPlan::of(&cx.task.metadata);
    write(cx, TaskState::Working).await?;
    if plan.steps > 0 {
        effect(place.ledger, cx, None).await?;
    }
    if plan.has_child {
        start_child(&place.containment, cx)?;
    }
    for step in 0..plan.steps {
        let time = tokio::time::sleep(Duration::from_millis(plan.step_ms));
        if plan.is_deaf {
            time.await;
        } else {
            tokio::select! {
                _ = cx.scope.stopped_at("between two steps") => return Ok(()),
                () = time => {}
            }
        }
        effect(place.ledger, cx, Some(step)).await?;
    }
    // The child belongs to the scope of the execution, and ends when this scope is stopped.
    write(cx, TaskState::Completed).await
}

async fn write(cx: &ExecutionCx, state: TaskState) -> Result<(), ExecutorError> {
    let written = cx.events.write(TaskEvent::state(state)).await;
    written.map_err(|_ended| ExecutorError::new("the execution has ended"))
}

async fn effect(
    ledger: SocketAddr,
    cx: &ExecutionCx,
    step: Option<u32>,
) -> Result<(), ExecutorError> {
    let question = LedgerQuestion {
        task: cx.task.id.clone(),
        epoch: cx.task.epoch,
        pid: this_process().pid,
        step,
    };
    match ask(ledger, &question).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(ExecutorError::new("the ledger refused")),
        Err(error) => Err(ExecutorError::new(format!("the ledger: {error}"))),
    }
}

fn start_child(containment: &ContainmentChoice, cx: &ExecutionCx) -> Result<(), ExecutorError> {
    let id = format!("{CHILD} {} {}", cx.task.id, cx.task.epoch);
    let script = "trap '' TERM INT; while :; do sleep 1; done";
    let spec = ProcessSpec::new("sh", id.as_str())
        .args(["-c", script, &id])
        .cwd("/")
        .containment(containment.clone());
    let started = cx
        .scope
        .spawn_process(WorkSpec::new(ItemKind::Process, CHILD), spec);
    started
        .map(drop)
        .map_err(|error| ExecutorError::new(error.to_string()))
}
