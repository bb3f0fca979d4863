//! Parts of a task (executor, canceler and others) that block their thread. Force cannot end such a part, so a stop
//! must not wait for the part.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::TaskId;
use allstop_log::MemoryLog;
use allstop_scope::{RootOptions, Scope};
use allstop_task::{
    CancelCx, CancelError, Canceler, Cleanup, CleanupCx, ExecutionCx, Executor, ExecutorError,
    ExecutorReturn, Processor, ProcessorDecision, Task, TaskEvent, TaskManager, TaskOptions,
    TaskParts, TaskPartsFactory, TaskState,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::{Condvar, Mutex};

use crate::support::{follow_up, request, user};

/// Grace of these tests: the time before a stop uses force.
const GRACE: Duration = Duration::from_millis(100);
/// The grace plus the time for force, with a reserve for a busy machine. A blocked thread stays blocked until the end
/// of the test.
const STOP_MAX: Duration = Duration::from_millis(1_500);

/// Blocks threads until the test is over.
#[derive(Clone, Default)]
struct Block(Arc<(Mutex<bool>, Condvar)>);

impl Block {
    fn wait(&self) {
        let (is_over, changed) = &*self.0;
        let mut is_over = is_over.lock();
        while !*is_over {
            changed.wait(&mut is_over);
        }
    }

    fn lift(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}

/// The part that blocks its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Executor,
    ExecutorDrop,
    Canceler,
    Processor,
    ProcessorError,
    Cleanup,
    Factory,
}

#[derive(Clone)]
struct Blocking {
    part: Part,
    block: Block,
}

impl Blocking {
    fn at(&self, part: Part) {
        if self.part == part {
            self.block.wait();
        }
    }
}

/// Value that blocks its thread when it is dropped. The value is dropped together with the executor's future.
struct BlocksInDrop(Blocking);

impl Drop for BlocksInDrop {
    fn drop(&mut self) {
        self.0.at(Part::ExecutorDrop);
    }
}

impl Executor for Blocking {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        let this = self.clone();
        async move {
            let _drop = BlocksInDrop(this.clone());
            let _ended = cx.events.write(TaskEvent::state(TaskState::Working)).await;
            this.at(Part::Executor);
            if this.part == Part::ProcessorError {
                return Err(ExecutorError::new("broken"));
            }
            cx.scope.stopped_at("waiting").await;
            Ok(ExecutorReturn::Finished)
        }
        .boxed()
    }
}

impl Canceler for Blocking {
    fn cancel(&self, _cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        self.at(Part::Canceler);
        std::future::ready(Ok(())).boxed()
    }
}

impl Processor for Blocking {
    fn process(&self, event: TaskEvent, _task: Arc<Task>) -> BoxFuture<'static, ProcessorDecision> {
        self.at(Part::Processor);
        std::future::ready(ProcessorDecision::Keep(event)).boxed()
    }

    fn process_error(
        &self,
        error: ExecutorError,
        _task: Arc<Task>,
    ) -> BoxFuture<'static, Result<TaskEvent, ExecutorError>> {
        self.at(Part::ProcessorError);
        std::future::ready(Err(error)).boxed()
    }
}

impl Cleanup for Blocking {
    fn clean_up(&self, _cx: CleanupCx) -> BoxFuture<'static, ()> {
        self.at(Part::Cleanup);
        std::future::ready(()).boxed()
    }
}

impl TaskPartsFactory for Blocking {
    fn create(&self, _task: Arc<Task>) -> BoxFuture<'static, Result<TaskParts, ExecutorError>> {
        self.at(Part::Factory);
        let parts = TaskParts::of(self.clone())
            .canceler(self.clone())
            .processor(self.clone())
            .cleanup(self.clone());
        std::future::ready(Ok(parts)).boxed()
    }
}

async fn stop_in_time(manager: &TaskManager, id: &TaskId, part: Part) {
    let began = Instant::now();
    let stopped = tokio::time::timeout(Duration::from_secs(20), manager.cancel(id, user())).await;
    assert!(
        began.elapsed() < STOP_MAX,
        "{part:?}: {:?}",
        began.elapsed()
    );
    match stopped.expect("it answers") {
        Ok(outcome) => {
            assert_eq!(outcome.task.status.state, TaskState::Canceled, "{part:?}");
            let is_blocked = matches!(part, Part::Executor | Part::ExecutorDrop);
            assert_eq!(
                outcome.receipt.quiet(),
                !is_blocked,
                "{part:?}: {:?}",
                outcome.receipt
            );
        }
        Err(CancelError::AlreadyEnded(task)) => panic!("{part:?}: {:?}", task.status),
        Err(other) => panic!("{part:?}: {other}"),
    }
    // A later message to the task also gets an answer.
    let sent = tokio::time::timeout(STOP_MAX, manager.execute(follow_up("late", id))).await;
    assert!(sent.expect("it answers").is_err(), "{part:?}: it has ended");
}

#[test]
fn blocked_thread_delays_no_stop() {
    let runtime = |threads| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()
            .expect("a runtime")
    };
    // The engine has a separate runtime and thread, as the documentation of the root scope's options recommends.
    let (control, work) = (runtime(1), runtime(3));
    control.block_on(async {
        for part in [
            Part::Executor,
            Part::ExecutorDrop,
            Part::Canceler,
            Part::Processor,
            Part::ProcessorError,
            Part::Cleanup,
            Part::Factory,
        ] {
            let blocking = Blocking {
                part,
                block: Block::default(),
            };
            let options = RootOptions::single_runtime()
                .work(work.handle().clone().into())
                .grace(GRACE);
            let opened = TaskManager::open(
                Arc::new(MemoryLog::new()),
                Scope::root("tasks", options),
                Arc::new(blocking.clone()),
                TaskOptions::default(),
            );
            let manager = opened.await.expect("it opens");
            let accepted = manager.execute(request("m1")).await.expect("accepted");
            tokio::time::sleep(Duration::from_millis(50)).await;
            stop_in_time(&manager, &accepted.task_id, part).await;
            let began = Instant::now();
            let report = manager.shutdown(Duration::from_secs(1), "test").await;
            assert_eq!(report.not_stored, 0, "{part:?}");
            assert!(began.elapsed() < STOP_MAX, "{part:?}");
            blocking.block.lift();
        }
    });
}
