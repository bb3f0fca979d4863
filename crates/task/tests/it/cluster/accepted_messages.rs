//! The observer of a front end: it counts the messages that the front end accepts, and the ends of their executions.

use std::sync::Arc;

use allstop_core::TraceContext;
use allstop_task::{ExecutionObserver, Task, TaskObserver, TaskOptions, TaskParts, TaskState};
use parking_lot::Mutex;

use super::line::Line;
use super::support::Cluster;
use crate::support::{request, three_events, user, wait_until};

#[derive(Debug, Default)]
struct Counts {
    accepted: usize,
    ended: Vec<TaskState>,
    executions: usize,
}

#[derive(Clone, Default)]
struct Counter(Arc<Mutex<Counts>>);

struct NoExecution;

impl ExecutionObserver for NoExecution {}

impl TaskObserver for Counter {
    fn accepted(&self, _task: &Task, _trace: Option<&TraceContext>) -> Box<dyn ExecutionObserver> {
        self.0.lock().executions += 1;
        Box::new(NoExecution)
    }

    fn message_accepted(&self) {
        self.0.lock().accepted += 1;
    }

    fn message_ended(&self, state: TaskState) {
        self.0.lock().ended.push(state);
    }
}

impl Counter {
    fn options(&self) -> TaskOptions {
        TaskOptions::default().observer(Arc::new(self.clone()))
    }
}

#[tokio::test(start_paused = true)]
async fn front_end_counts_messages_and_their_ends_and_a_worker_counts_executions() {
    let cluster = Cluster::new();
    let (at_front, at_worker) = (Counter::default(), Counter::default());
    let parts = || TaskParts::of(three_events());
    let front = cluster.node_at(Line::new(None), parts(), 0, at_front.options());
    // Without a worker, a stop ends the task at the front end.
    let stopped = front.manager.execute(request("m1")).await.unwrap();
    drop(
        front
            .manager
            .cancel(&stopped.task_id, user())
            .await
            .unwrap(),
    );
    let _worker = cluster.node_at(Line::new(None), parts(), 8, at_worker.options());
    for message in ["m2", "m3", "m3"] {
        front.manager.execute(request(message)).await.unwrap();
    }
    wait_until("the ends are read", || at_front.0.lock().ended.len() == 3).await;
    let (front, worker) = (at_front.0.lock(), at_worker.0.lock());
    assert_eq!(front.accepted, 3, "a repetition is no new message");
    let completed = |state: &&TaskState| **state == TaskState::Completed;
    assert_eq!(front.ended.iter().filter(completed).count(), 2);
    assert!(front.ended.contains(&TaskState::Canceled));
    assert_eq!((worker.accepted, worker.executions), (0, 2));
}
