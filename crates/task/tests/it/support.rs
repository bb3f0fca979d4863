//! Executors that follow a script, and a manager with a log in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_core::{Cause, CauseKind, ContextId, TaskId};
use allstop_log::{Log, MemoryLog};
use allstop_scope::{RootOptions, Scope};
use allstop_task::model::{Artifact, MessageSender};
use allstop_task::{
    AcceptedTask, ExecutionCx, Executor, ExecutorError, ExecutorReturn, SubscriptionItem, Task,
    TaskEvent, TaskManager, TaskMessage, TaskOptions, TaskParts, TaskPartsFactory,
    TaskRecord as Record, TaskRequest, TaskState, TaskSubscription,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;

pub(crate) use crate::opening::TestStore;

pub(crate) type ExecutorResult = Result<ExecutorReturn, ExecutorError>;

/// Maximum duration of a wait in these tests.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Executor that calls a closure. The executor counts its live futures, so a test can check for remaining work.
#[derive(Clone)]
pub(crate) struct ScriptedExecutor {
    run: Arc<dyn Fn(ExecutionCx) -> BoxFuture<'static, ExecutorResult> + Send + Sync>,
    live: Arc<AtomicUsize>,
    started: Arc<Semaphore>,
    can_resume: bool,
    only_context: Option<ContextId>,
}

struct LiveExecutor(Arc<AtomicUsize>);

impl Drop for LiveExecutor {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ScriptedExecutor {
    pub(crate) fn new<F>(run: impl Fn(ExecutionCx) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ExecutorResult> + Send + 'static,
    {
        Self {
            run: Arc::new(move |cx| run(cx).boxed()),
            live: Arc::default(),
            started: Arc::new(Semaphore::new(0)),
            can_resume: false,
            only_context: None,
        }
    }

    /// Refuses messages to other contexts.
    pub(crate) fn permits_only_context(mut self, id: &str) -> Self {
        self.only_context = Some(ContextId::new(id));
        self
    }

    pub(crate) fn resumable(mut self) -> Self {
        self.can_resume = true;
        self
    }

    /// Number of executors that run at present.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }

    /// Waits until one more executor has started.
    pub(crate) async fn started(&self) {
        let started = tokio::time::timeout(SOON, self.started.acquire()).await;
        started.expect("it starts").expect("open").forget();
    }
}

impl Executor for ScriptedExecutor {
    fn execute(&self, cx: ExecutionCx) -> BoxFuture<'static, ExecutorResult> {
        self.live.fetch_add(1, Ordering::SeqCst);
        let live = LiveExecutor(Arc::clone(&self.live));
        let run = (self.run)(cx);
        self.started.add_permits(1);
        async move {
            let _live = live;
            run.await
        }
        .boxed()
    }

    fn check_context(&self, context: &ContextId) -> Result<(), ExecutorError> {
        match &self.only_context {
            Some(only) if only != context => {
                Err(ExecutorError::new(format!("use the context {only}")))
            }
            _ => Ok(()),
        }
    }

    fn can_resume(&self, _task: &Task) -> bool {
        self.can_resume
    }
}

/// Executor that works until it is stopped. If `is_deaf` is true, the executor ignores the stop.
pub(crate) fn endless(is_deaf: bool) -> ScriptedExecutor {
    ScriptedExecutor::new(move |cx| async move {
        cx.events
            .write(TaskEvent::state(TaskState::Working))
            .await
            .expect("it runs");
        if is_deaf {
            std::future::pending::<()>().await;
        }
        cx.scope.stopped_at("waiting").await;
        Ok(ExecutorReturn::Finished)
    })
}

/// Executor that writes three events.
pub(crate) fn three_events() -> ScriptedExecutor {
    ScriptedExecutor::new(|cx| async move {
        for event in [
            TaskEvent::state(TaskState::Working),
            TaskEvent::artifact(Artifact::text("answer", "42")),
            TaskEvent::state(TaskState::Completed),
        ] {
            cx.events.write(event).await.expect("it runs");
        }
        Ok(ExecutorReturn::Finished)
    })
}

/// Executor that writes one event and then returns.
pub(crate) fn writes(event: TaskEvent) -> ScriptedExecutor {
    ScriptedExecutor::new(move |cx| {
        let event = event.clone();
        async move {
            cx.events.write(event).await.expect("it runs");
            Ok(ExecutorReturn::Finished)
        }
    })
}

pub(crate) fn root() -> Scope {
    Scope::root("tasks", RootOptions::single_runtime())
}

pub(crate) async fn manager(parts: TaskParts, options: TaskOptions) -> TaskManager {
    manager_over(Arc::new(MemoryLog::new()), parts, options).await
}

pub(crate) async fn manager_over(
    log: Arc<dyn Log>,
    parts: impl TaskPartsFactory + 'static,
    options: TaskOptions,
) -> TaskManager {
    TestStore::over(log).manager(parts, options).await
}

pub(crate) async fn manager_of(executor: &ScriptedExecutor) -> TaskManager {
    manager(TaskParts::of(executor.clone()), TaskOptions::default()).await
}

pub(crate) fn request(message_id: &str) -> TaskRequest {
    TaskRequest::new(
        "alice",
        TaskMessage::text(message_id, MessageSender::User, "do it"),
    )
}

pub(crate) fn follow_up(message_id: &str, task: &TaskId) -> TaskRequest {
    request(message_id).task(task.clone())
}

pub(crate) fn user() -> Cause {
    Cause::new(CauseKind::User).by("test")
}

/// Starts a task, and waits until its executor runs.
pub(crate) async fn start(manager: &TaskManager, executor: &ScriptedExecutor) -> AcceptedTask {
    let accepted = manager.execute(request("m1")).await.expect("accepted");
    executor.started().await;
    accepted
}

/// Collects all remaining items of a subscription, each as a short text. The starts of executions are left out, because
/// in a cluster a worker starts an execution some time after the answer to its request.
pub(crate) async fn rest(subscription: &mut TaskSubscription) -> Vec<String> {
    let mut words = Vec::new();
    while let Some(item) = tokio::time::timeout(SOON, subscription.next())
        .await
        .expect("the subscription ends")
    {
        match item.expect("it can be read") {
            SubscriptionItem::Snapshot(_, task) => {
                words.push(format!("snapshot {}", task.status.state));
            }
            SubscriptionItem::Update(update) => words.extend(word_of(&update.record)),
        }
    }
    words
}

fn word_of(record: &Record) -> Option<String> {
    Some(match record {
        Record::TaskCreated { .. } => "created".into(),
        Record::MessageReceived { .. } => "message".into(),
        Record::ExecutionStarted { .. } => return None,
        Record::StopRequested { .. } => "stop requested".into(),
        Record::StopRefused { .. } => "stop refused".into(),
        Record::StatusChanged { status, .. } => status.state.to_string(),
        Record::ArtifactUpdated { update, .. } => format!("artifact {}", update.artifact.id),
        Record::Replied { .. } => "replied".into(),
        Record::TaskEnded { status, .. } => format!("ended {}", status.state),
        Record::HandedOver { .. } => "handed over".into(),
        Record::LateReceipt { epoch, .. } => format!("late receipt {epoch}"),
    })
}

/// Waits for the end of the execution, and returns the task.
pub(crate) async fn ended(manager: &TaskManager, accepted: &mut AcceptedTask) -> Arc<Task> {
    rest(&mut accepted.subscription).await;
    manager.get(&accepted.task_id).await.expect("it is stored")
}

/// Waits until a condition holds. Between two checks, other work of the runtime can continue.
pub(crate) async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let waited = tokio::time::timeout(SOON, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}
