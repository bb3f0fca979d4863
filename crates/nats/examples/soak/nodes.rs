//! This process as a node of the cluster: the nodes are the processes that share the tasks in the log.

use std::sync::Arc;
use std::time::Duration;

use allstop_log::Log;
use allstop_nats::{NatsLog, NatsOptions};
use allstop_scope::{RootOptions, Scope};
use allstop_task::{ClusterOptions, TaskManager, TaskOptions, TaskParts};

use super::SERVERS;
use super::work::SoakExecutor;

pub(crate) async fn open_log(servers: &str, scope: &Scope) -> NatsLog {
    let mut options = NatsOptions::new(servers);
    options.replicas = SERVERS;
    NatsLog::open(options, scope).await.expect("servers")
}

/// Joins the cluster whose tasks are in this log.
pub(crate) async fn join(
    log: NatsLog,
    scope: Scope,
    parts: TaskParts,
    adapt: impl FnOnce(&mut ClusterOptions),
) -> TaskManager {
    let link = log.link().await.expect("the servers have a link");
    let mut cluster = ClusterOptions::new(link);
    adapt(&mut cluster);
    let log: Arc<dyn Log> = Arc::new(log);
    let joined = TaskManager::join(log, cluster, scope, Arc::new(parts), TaskOptions::default());
    joined.expect("its scope is open")
}

/// A node that accepts messages and stop requests, but runs no executions of tasks.
#[derive(Debug)]
pub(crate) struct FrontEnd {
    pub manager: TaskManager,
}

pub(crate) async fn front_end(servers: &str) -> FrontEnd {
    let scope = Scope::root("front end", RootOptions::current());
    let log = open_log(servers, &scope).await;
    let parts = TaskParts::of(SoakExecutor { place: None });
    let manager = join(log, scope, parts, |_| {}).await;
    FrontEnd { manager }
}

impl FrontEnd {
    pub(crate) async fn end(self) {
        let report = self
            .manager
            .shutdown(Duration::from_secs(5), "the soak is over");
        drop(report.await);
    }
}
