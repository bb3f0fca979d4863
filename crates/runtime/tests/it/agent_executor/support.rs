//! A task manager with tasks that run a scripted agent.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use allstop_agent::{Agent, Guardrail, TurnError};
use allstop_core::{Cause, CauseKind, ContextId, TaskId};
use allstop_log::{Log, MemoryLog};
use allstop_model::{Reply, ScriptedModel};
use allstop_runtime::{AgentExecutor, AgentExecutorOptions};
use allstop_scope::{RootOptions, Scope};
use allstop_session::{AgentRequest, AgentSource, Session, SessionAgent, SessionOptions, Sessions};
use allstop_task::model::{MessagePart, MessageSender, PartContent};
use allstop_task::{
    AcceptedTask, SubscriptionItem, Task, TaskManager, TaskMessage, TaskOptions, TaskParts,
    TaskRecord, TaskRequest, TaskState,
};
use allstop_testkit::ToolFn;
use allstop_tools::{PermissionPolicy, ToolRegistry};
use futures::future::BoxFuture;
use tokio::sync::Semaphore;

/// Maximum time of a wait in these tests.
const SOON: Duration = Duration::from_secs(30);

/// Creates the tools of a session.
pub(super) type MakeTools = Arc<dyn Fn(&AgentRequest) -> Vec<ToolFn> + Send + Sync>;

/// Agents with these tools. If `asks` is true, every call needs a permission.
#[derive(Clone)]
pub(super) struct TestAgents {
    pub(super) model: Arc<ScriptedModel>,
    pub(super) tools: MakeTools,
    pub(super) asks: bool,
    pub(super) guardrail: Option<Arc<dyn Guardrail>>,
}

impl fmt::Debug for TestAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestAgents").finish_non_exhaustive()
    }
}

impl TestAgents {
    pub(super) fn new(replies: Vec<Reply>) -> Self {
        Self {
            model: Arc::new(ScriptedModel::in_order_of_calls(replies).keeping_requests()),
            tools: Arc::new(|_| Vec::new()),
            asks: false,
            guardrail: None,
        }
    }

    pub(super) fn tools(
        mut self,
        tools: impl Fn(&AgentRequest) -> Vec<ToolFn> + Send + Sync + 'static,
    ) -> Self {
        self.tools = Arc::new(tools);
        self
    }
}

impl AgentSource for TestAgents {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        let mut registry = ToolRegistry::new();
        for tool in (self.tools)(&request) {
            registry.register(Arc::new(tool)).expect("names differ");
        }
        let mut builder = Agent::new(Arc::clone(&self.model)).tools(registry);
        if self.asks {
            let policy = Arc::new(PermissionPolicy::default());
            builder = builder.permissions(policy, request.prompter);
        }
        if let Some(guardrail) = &self.guardrail {
            builder = builder.guardrail(Arc::clone(guardrail));
        }
        let agent = SessionAgent {
            agent: builder.build(),
            resources: None,
        };
        Box::pin(std::future::ready(Ok(agent)))
    }
}

/// Tasks of an agent, and all their parts.
pub(super) struct AgentTasks {
    /// Root scope of the sessions.
    pub(super) root: Scope,
    pub(super) model: Arc<ScriptedModel>,
    pub(super) manager: TaskManager,
    /// Scope of the executions.
    pub(super) tasks: Scope,
    opened: Arc<OnceLock<Session>>,
}

/// Logs that successive processes share.
#[derive(Clone)]
pub(super) struct Logs {
    pub(super) sessions: Arc<dyn Log>,
    pub(super) tasks: Arc<dyn Log>,
}

impl Logs {
    pub(super) fn new() -> Self {
        Self {
            sessions: Arc::new(MemoryLog::new()),
            tasks: Arc::new(MemoryLog::new()),
        }
    }
}

impl AgentTasks {
    pub(super) async fn new(agents: TestAgents) -> Self {
        Self::with(agents, AgentExecutorOptions::default()).await
    }

    pub(super) async fn with(agents: TestAgents, options: AgentExecutorOptions) -> Self {
        Self::over(&Logs::new(), agents, options, |parts| parts).await
    }

    pub(super) async fn over(
        logs: &Logs,
        agents: TestAgents,
        options: AgentExecutorOptions,
        change: impl FnOnce(TaskParts) -> TaskParts,
    ) -> Self {
        let root = Scope::root("test", RootOptions::single_runtime());
        let model = Arc::clone(&agents.model);
        let log = Arc::clone(&logs.sessions);
        let sessions = Sessions::new(
            log,
            root.clone(),
            Arc::new(agents),
            SessionOptions::default(),
        );
        let opened = Arc::<OnceLock<Session>>::default();
        let first = Arc::clone(&opened);
        sessions.registry().subscribe(move |session| {
            let _only_the_first = first.set(session.clone());
        });
        let executor = AgentExecutor::new(sessions, "/tmp", options);
        let parts = Arc::new(change(executor.parts()));
        let log = Arc::clone(&logs.tasks);
        // A separate tree, so that a stop of all tasks reaches the sessions only through the executor.
        let tasks = Scope::root("tasks", RootOptions::single_runtime());
        let scope = tasks.clone();
        let manager = TaskManager::open(log, scope, parts, TaskOptions::default()).await;
        Self {
            root,
            model,
            manager: manager.expect("memory"),
            tasks,
            opened,
        }
    }

    /// The first opened session.
    pub(super) fn session(&self) -> &Session {
        self.opened.get().expect("a session is open")
    }

    /// Starts a task in the context `c1`.
    pub(super) async fn start(&self, message: &str, text: &str) -> AcceptedTask {
        let request = request(message, text);
        self.manager.execute(request).await.expect("accepted")
    }

    /// Sends the next message of a task.
    pub(super) async fn reply(&self, task: &TaskId, message: &str, text: &str) -> AcceptedTask {
        let parts = vec![MessagePart::text(text)];
        self.reply_with(task, message, parts).await
    }

    /// Sends the next message of a task with these parts.
    pub(super) async fn reply_with(
        &self,
        task: &TaskId,
        message: &str,
        parts: Vec<MessagePart>,
    ) -> AcceptedTask {
        let mut request = request(message, "").task(task.clone());
        request.message.parts = parts;
        self.manager.execute(request).await.expect("accepted")
    }

    /// Runs a task until its execution ends.
    pub(super) async fn run(&self, message: &str, text: &str) -> Arc<Task> {
        let mut started = self.start(message, text).await;
        self.rest(&mut started).await
    }

    /// Waits until the execution of a task ends. Returns the task.
    pub(super) async fn rest(&self, started: &mut AcceptedTask) -> Arc<Task> {
        words(started).await;
        self.task(&started.task_id).await
    }

    pub(super) async fn task(&self, id: &TaskId) -> Arc<Task> {
        self.manager.get(id).await.expect("it is stored")
    }

    pub(super) async fn cancel(&self, id: &TaskId) -> allstop_task::CancelOutcome {
        soon(self.manager.cancel(id, user())).await.expect("a stop")
    }

    /// Messages of the last request to the model, as JSON.
    pub(super) fn last_request(&self) -> String {
        let requests = self.model.requests();
        let last = requests.last().expect("the model was asked");
        format!("{:?}", last.messages)
    }
}

pub(super) fn request(message: &str, text: &str) -> TaskRequest {
    TaskRequest::new(
        "alice",
        TaskMessage::text(message, MessageSender::User, text),
    )
    .context(ContextId::new("c1"))
}

pub(super) fn user() -> Cause {
    Cause::new(CauseKind::User).by("test")
}

pub(super) async fn soon<T>(wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, wait).await.expect("no hang")
}

/// Collects the events of a subscription until the execution ends, as one word each.
pub(super) async fn words(started: &mut AcceptedTask) -> Vec<String> {
    let mut words = Vec::new();
    loop {
        let Some(item) = soon(started.subscription.next()).await else {
            return words;
        };
        let SubscriptionItem::Update(update) = item.expect("memory") else {
            continue;
        };
        words.push(match &*update.record {
            TaskRecord::StatusChanged { status, .. } => status.state.to_string(),
            TaskRecord::TaskEnded { status, .. } => format!("ended {}", status.state),
            TaskRecord::ArtifactUpdated { update, .. } => update.artifact.id.to_string(),
            _ => continue,
        });
        if update.record.ends_execution() {
            return words;
        }
    }
}

/// Waits until the task has this state.
pub(super) async fn until_state(tasks: &AgentTasks, id: &TaskId, state: TaskState) -> Arc<Task> {
    soon(async {
        loop {
            let task = tasks.task(id).await;
            if task.status.state == state {
                return task;
            }
            assert!(!task.has_ended(), "{task:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
}

/// Text of the artifact `answer`.
pub(super) fn answer(task: &Task) -> &str {
    let [artifact] = task.artifacts.as_slice() else {
        panic!("{task:?}");
    };
    assert_eq!(artifact.name.as_deref(), Some("answer"));
    match &artifact.parts[0].content {
        PartContent::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

/// Text of the message of the last status.
pub(super) fn status_text(task: &Task) -> &str {
    let message = task.status.message.as_ref().expect("it has a message");
    match &message.parts[0].content {
        PartContent::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

/// Calls of a tool that works until it is stopped or a permit is added.
#[derive(Debug, Clone)]
pub(super) struct WorkTool {
    live: Arc<AtomicUsize>,
    started: Arc<Semaphore>,
    pub(super) gate: Arc<Semaphore>,
    is_deaf: bool,
}

struct LiveCall(Arc<AtomicUsize>);

impl Drop for LiveCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl WorkTool {
    pub(super) fn new() -> Self {
        Self {
            live: Arc::default(),
            started: Arc::new(Semaphore::new(0)),
            gate: Arc::new(Semaphore::new(0)),
            is_deaf: false,
        }
    }

    /// Creates a tool that ignores a stop of its scope.
    pub(super) fn deaf() -> Self {
        Self {
            is_deaf: true,
            ..Self::new()
        }
    }

    pub(super) fn tool(&self) -> ToolFn {
        let calls = self.clone();
        ToolFn::new("work", move |call| {
            let calls = calls.clone();
            async move {
                calls.live.fetch_add(1, Ordering::SeqCst);
                let _live = LiveCall(Arc::clone(&calls.live));
                calls.started.add_permits(1);
                // Creates several moments at which a test can stop the call.
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                tokio::select! {
                    opened = calls.gate.acquire() => {
                        opened.expect("never closed").forget();
                        "worked".to_owned()
                    }
                    _ = call.scope.stopped_at("work"), if !calls.is_deaf => "stopped".to_owned(),
                }
            }
        })
    }

    /// Waits until one more call has started.
    pub(super) async fn started(&self) {
        soon(self.started.acquire()).await.expect("open").forget();
    }

    /// Number of running calls.
    pub(super) fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }
}
