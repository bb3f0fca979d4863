//! Nodes of a cluster in one process. The nodes share a log and a link (the other shared services) in memory.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::TaskId;
use allstop_log::{Log, MemoryLog};
use allstop_scope::{RootOptions, Scope, StopRequest};
use allstop_task::{
    AdmissionLimits, ClusterLink, ClusterOptions, MemoryLink, Task, TaskManager, TaskOptions,
    TaskParts, TaskPartsFactory,
};

use crate::cluster::line::{Line, LineLink, LineLog, LineState};
use crate::cluster::trap::{Trap, TrapLog};
use crate::support::{SOON, ScriptedExecutor, user};

/// Length of a lease in the tests. The length is longer than the grace of a stop.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// Log and link that the nodes share.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub log: Arc<MemoryLog>,
    pub link: MemoryLink,
}

pub(crate) struct Node {
    pub manager: TaskManager,
    pub root: Scope,
    pub line: Line,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self {
            log: Arc::new(MemoryLog::new()),
            link: MemoryLink::new(),
        }
    }

    /// Creates a node that runs this executor.
    pub(crate) fn worker(&self, executor: &ScriptedExecutor) -> Node {
        self.node(TaskParts::of(executor.clone()), 8)
    }

    /// Creates a node that runs no executions.
    pub(crate) fn front_end(&self) -> Node {
        let never = ScriptedExecutor::new(|_cx| async { unreachable!("it runs nothing") });
        self.node(TaskParts::of(never), 0)
    }

    /// Creates a node that runs no executions, and settles the tasks of lost workers.
    pub(crate) fn settling_front_end(&self) -> Node {
        let never = ScriptedExecutor::new(|_cx| async { unreachable!("it runs nothing") });
        let parts = Arc::new(TaskParts::of(never));
        let settles = |link| ClusterOptions::new(link).settles_lost_tasks(true);
        let (trap, line, options) = (Trap::default(), Line::new(None), TaskOptions::default());
        self.joined_with(trap, line, parts, options, settles)
    }

    /// Creates a node that runs no executions, and accepts tasks within these limits.
    pub(crate) fn limited_front_end(&self, admission: AdmissionLimits) -> Node {
        let never = ScriptedExecutor::new(|_cx| async { unreachable!("it runs nothing") });
        let parts = Arc::new(TaskParts::of(never));
        let (trap, line) = (Trap::default(), Line::new(None));
        self.joined(trap, line, parts, 0, TaskOptions::default(), admission)
    }

    pub(crate) fn node(&self, parts: TaskParts, concurrency: usize) -> Node {
        self.node_at(Line::new(None), parts, concurrency, TaskOptions::default())
    }

    /// Creates a node that uses this line.
    pub(crate) fn node_at(
        &self,
        line: Line,
        parts: TaskParts,
        concurrency: usize,
        options: TaskOptions,
    ) -> Node {
        let (trap, parts) = (Trap::default(), Arc::new(parts));
        let admission = AdmissionLimits::default();
        self.joined(trap, line, parts, concurrency, options, admission)
    }

    /// Creates a node whose log has a trap: other work happens before a certain append.
    pub(crate) fn trapped(
        &self,
        trap: Trap,
        line: Line,
        factory: Arc<dyn TaskPartsFactory>,
        concurrency: usize,
    ) -> Node {
        let (options, admission) = (TaskOptions::default(), AdmissionLimits::default());
        self.joined(trap, line, factory, concurrency, options, admission)
    }

    fn joined(
        &self,
        trap: Trap,
        line: Line,
        factory: Arc<dyn TaskPartsFactory>,
        concurrency: usize,
        options: TaskOptions,
        admission: AdmissionLimits,
    ) -> Node {
        let cluster = |link| {
            ClusterOptions::new(link)
                .concurrency(concurrency)
                .admission(admission)
        };
        self.joined_with(trap, line, factory, options, cluster)
    }

    fn joined_with(
        &self,
        trap: Trap,
        line: Line,
        factory: Arc<dyn TaskPartsFactory>,
        options: TaskOptions,
        cluster: impl FnOnce(Arc<dyn ClusterLink>) -> ClusterOptions,
    ) -> Node {
        let root = Scope::root("node", RootOptions::single_runtime());
        let log = LineLog {
            log: Arc::clone(&self.log) as Arc<dyn Log>,
            line: line.clone(),
        };
        let log: Arc<dyn Log> = Arc::new(TrapLog {
            log: Arc::new(log),
            trap,
        });
        let shared = Arc::new(LineLink {
            link: Arc::new(self.link.clone()),
            line: line.clone(),
        });
        let cluster = cluster(shared).lease(LEASE);
        let manager = TaskManager::join(log, cluster, root.clone(), factory, options);
        Node {
            manager: manager.expect("its scope is open"),
            root,
            line,
        }
    }
}

impl Node {
    /// Ends the node as `kill -9` would end it: the node does not return its lease, and writes nothing more.
    pub(crate) async fn kill(self) {
        self.line.set(LineState::Dead);
        let all = allstop_core::Extent::Process;
        let stop = self
            .root
            .stop(StopRequest::new(all, user()).grace(Duration::ZERO));
        drop(stop.await);
    }
}

/// Waits until the records of a task satisfy a condition, and returns the task.
pub(crate) async fn task_when(
    node: &Node,
    id: &TaskId,
    condition: impl Fn(&Task) -> bool,
) -> Arc<Task> {
    let waiting = async {
        loop {
            if let Ok(task) = node.manager.get_with_replies(id).await
                && condition(&task)
            {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(3 * SOON, waiting)
        .await
        .expect("the task gets there")
}
