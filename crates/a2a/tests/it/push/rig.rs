//! A service with push notifications, which a test can stop and open again with its log.

use std::sync::Arc;
use std::time::Duration;

use allstop_a2a::{
    A2aService, AccessControl, AgentDescription, PushNotifications, PushOptions, agent_card,
    http_router,
};
use allstop_core::{Cause, CauseKind, Extent};
use allstop_log::{Log, MemoryLog};
use allstop_scope::{RootOptions, Scope, ScopeOptions, StopRequest};
use allstop_task::{TaskManager, TaskOptions, TaskParts};
use axum::Router;
use serde_json::{Value, json};

use super::receiver::SOON;
use crate::support::{NamedUsers, ObedientAgent, message, result};

pub(crate) struct Rig {
    pub(crate) router: Router,
    pub(crate) push: PushNotifications,
    pub(crate) manager: TaskManager,
    pub(crate) log: Arc<dyn Log>,
    root: Scope,
    tasks: Scope,
    push_scope: Scope,
}

/// Options for receivers on loopback addresses, with short times.
pub(crate) fn quick() -> PushOptions {
    PushOptions::default()
        .allowed(vec!["127.0.0.0/8".parse().expect("a network")])
        .pause_min(Duration::from_millis(2))
        .pause_max(Duration::from_millis(20))
}

impl Rig {
    pub(crate) async fn start(options: PushOptions) -> Self {
        Self::open(Arc::new(MemoryLog::new()), options).await
    }

    pub(crate) async fn open(log: Arc<dyn Log>, options: PushOptions) -> Self {
        let root = Scope::root("test", RootOptions::single_runtime());
        let child = |label: &str| root.child(label.to_owned(), ScopeOptions::default());
        let tasks = child("tasks").expect("nothing is stopped");
        let push_scope = child("push").expect("nothing is stopped");
        let parts = Arc::new(TaskParts::of(ObedientAgent));
        let manager = TaskManager::open(
            Arc::clone(&log),
            tasks.clone(),
            parts,
            TaskOptions::default(),
        );
        let manager = manager.await.expect("it opens");
        let push = PushNotifications::open(
            manager.clone(),
            Arc::clone(&log),
            push_scope.clone(),
            options,
        );
        let push = push.await.expect("it opens");
        let card = agent_card(&AgentDescription {
            name: "obedient".into(),
            description: "does what it is told".into(),
            version: "1".into(),
            http_url: "http://127.0.0.1:1".into(),
            grpc_url: None,
        });
        let service = Arc::new(A2aService::new(manager.clone()).push(push.clone()));
        let router = http_router(&service, card, AccessControl::new(Arc::new(NamedUsers)));
        Self {
            router,
            push,
            manager,
            log,
            root,
            tasks,
            push_scope,
        }
    }

    /// Sends a message with a webhook and `returnImmediately`. Returns the id of the task.
    pub(crate) async fn send(&self, text: &str, webhook: &Value) -> String {
        let mut params = message(&format!("{text} {webhook}"), text);
        params["configuration"] =
            json!({"returnImmediately": true, "taskPushNotificationConfig": webhook});
        let sent = result(&self.router, "SendMessage", &params).await;
        sent["task"]["id"].as_str().expect("an id").to_owned()
    }

    pub(crate) async fn create(&self, task: &str, webhook: Value) -> Value {
        let mut params = webhook;
        params["taskId"] = task.into();
        result(&self.router, "CreateTaskPushNotificationConfig", &params).await
    }

    pub(crate) async fn cancel(&self, task: &str) {
        result(&self.router, "CancelTask", &json!({"id": task})).await;
    }

    /// Waits until the task has ended and nothing executes it.
    pub(crate) async fn task_has_ended(&self, task: &str) {
        let events = self.manager.subscribe(&task.into(), None).await;
        let mut events = events.expect("it exists");
        while events.next().await.is_some() {}
        let released = async {
            while !self.tasks.running().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let in_time = tokio::time::timeout(SOON, released).await;
        in_time.expect("the execution ends");
    }

    /// Number of running deliveries.
    pub(crate) fn running(&self) -> usize {
        self.push_scope.running().len()
    }

    /// Waits until this many configurations have pending deliveries, and no other delivery runs.
    pub(crate) async fn active(&self, count: usize) {
        let wait = async {
            while (self.push.active(), self.running()) != (count, count) {
                tokio::task::yield_now().await;
            }
        };
        let in_time = tokio::time::timeout(SOON, wait).await;
        assert!(in_time.is_ok(), "{} are active", self.push.active());
    }

    /// Ends the deliveries like a shutdown. Returns the receipt of this stop.
    pub(crate) async fn stop_push(&self, grace: Duration) -> Arc<allstop_core::Receipt> {
        let stop = StopRequest::new(Extent::Process, Cause::new(CauseKind::Shutdown)).grace(grace);
        self.push_scope.stop(stop).await
    }

    /// Ends the service, and returns the log for the next opening.
    pub(crate) async fn close(self) -> Arc<dyn Log> {
        let cause = Cause::new(CauseKind::Shutdown);
        self.root
            .stop(StopRequest::new(Extent::Process, cause))
            .await;
        self.log
    }
}
