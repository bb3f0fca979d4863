//! A store or an executor that panics. Every task must end, and every stop must get an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_log::{
    AppendError, AppendId, Log, LogError, LogFuture, LogWrapper, MemoryLog, RecordBytes,
    StreamName, Version,
};
use allstop_task::{
    ExecutorError, ExecutorReturn, Task, TaskEvent, TaskOptions, TaskParts, TaskState,
};
use futures::future::BoxFuture;

use crate::store_faults::ticking;
use crate::support::{
    ScriptedExecutor, ended, endless, manager_over, request, start, user, writes,
};

/// A log whose next appends and reads panic. The counters contain the numbers of remaining panics.
#[derive(Debug)]
struct PanickingLog {
    inner: MemoryLog,
    appends: AtomicUsize,
    reads: AtomicUsize,
}

fn counts_down(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
        left.checked_sub(1)
    })
    .is_ok()
}

impl LogWrapper for PanickingLog {
    fn inner(&self) -> &dyn Log {
        &self.inner
    }

    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        assert!(!counts_down(&self.appends), "the store panics");
        self.inner.append(stream, expected, id, records)
    }

    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        assert!(!counts_down(&self.reads), "the store panics");
        self.inner.read(stream, from, limit)
    }
}

#[tokio::test(start_paused = true)]
async fn panic_of_the_store_leaves_no_task() {
    for panics in [1, 5] {
        let log = Arc::new(PanickingLog {
            inner: MemoryLog::new(),
            appends: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
        });
        let executor = ticking();
        let parts = TaskParts::of(executor.clone());
        let manager = manager_over(log.clone(), parts, TaskOptions::default()).await;
        let mut accepted = start(&manager, &executor).await;
        log.appends.store(panics, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let stopped = manager.cancel(&accepted.task_id, user());
        drop(
            tokio::time::timeout(Duration::from_secs(20), stopped)
                .await
                .expect("it answers"),
        );
        assert_eq!(executor.live(), 0);
        let task = ended(&manager, &mut accepted).await;
        assert!(task.has_ended(), "{}", task.status.state);

        // A task at rest. The read of this task panics.
        let executor = writes(TaskEvent::state(TaskState::InputRequired));
        let parts = TaskParts::of(executor.clone());
        let log = Arc::new(PanickingLog {
            inner: MemoryLog::new(),
            appends: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
        });
        let manager = manager_over(log.clone(), parts, TaskOptions::default()).await;
        let mut accepted = manager.execute(request("m1")).await.unwrap();
        ended(&manager, &mut accepted).await;
        let id = accepted.task_id.clone();
        drop(accepted);
        tokio::time::sleep(Duration::from_secs(5)).await;
        log.reads.store(1, Ordering::SeqCst);
        let stopped = tokio::time::timeout(Duration::from_secs(20), manager.cancel(&id, user()));
        drop(stopped.await.expect("it answers"));
        let outcome = manager.cancel(&id, user()).await.unwrap();
        assert_eq!(outcome.task.status.state, TaskState::Canceled);
    }
}

/// If `can_resume` panics, the execution cannot be resumed, and the task ends immediately.
#[tokio::test(start_paused = true)]
async fn panicking_can_resume_ends_the_task() {
    struct Panicking(ScriptedExecutor);
    impl allstop_task::Executor for Panicking {
        fn execute(
            &self,
            cx: allstop_task::ExecutionCx,
        ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
            allstop_task::Executor::execute(&self.0, cx)
        }

        fn can_resume(&self, _task: &Task) -> bool {
            panic!("boom")
        }
    }
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let executor = endless(false);
                let parts = TaskParts::of(executor.clone());
                let manager = manager_over(Arc::clone(&log), parts, TaskOptions::default()).await;
                drop(start(&manager, &executor).await);
            });
        });
    });
    let executor = Panicking(endless(false));
    let manager = manager_over(log, TaskParts::of(executor), TaskOptions::default()).await;
    let sent = manager.execute(request("m1")).await.unwrap();
    assert!(sent.is_repeated);
    let mut accepted = sent;
    let task = tokio::time::timeout(Duration::from_secs(20), ended(&manager, &mut accepted));
    assert_eq!(task.await.unwrap().status.state, TaskState::Failed);
}
