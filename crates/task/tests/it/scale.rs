//! Many tasks. Their memory is freed after they have ended, and a new task does not take longer than the first tasks.

mod alone {
    use futures::FutureExt as _;
    use std::sync::{Arc, Weak};
    use std::time::{Duration, Instant};

    use allstop_task::model::Artifact;
    use allstop_task::{
        ExecutorReturn, ListFilter, TaskEvent, TaskManager, TaskOptions, TaskParts, TaskState,
    };
    use parking_lot::Mutex;

    use crate::support::{ScriptedExecutor, manager, request, wait_until};

    const TASKS: usize = 10_000;
    /// Number of tasks in one measurement.
    const PART: usize = 2_000;

    type Seen = Arc<Mutex<Vec<Weak<Artifact>>>>;

    /// Executor that writes one artifact. `seen` keeps a weak reference to the artifact.
    fn remembered(seen: &Seen) -> ScriptedExecutor {
        let seen = Arc::clone(seen);
        ScriptedExecutor::new(move |cx| {
            let artifact = Arc::new(Artifact::text("answer", "42"));
            seen.lock().push(Arc::downgrade(&artifact));
            async move {
                let update = allstop_task::model::ArtifactUpdate {
                    artifact,
                    append: false,
                    is_last_chunk: true,
                    metadata: allstop_task::model::JsonMap::new(),
                };
                cx.events
                    .write(TaskEvent::Artifact(update))
                    .await
                    .expect("it runs");
                let end = TaskEvent::state(TaskState::Completed);
                cx.events.write(end).await.expect("it runs");
                Ok(ExecutorReturn::Finished)
            }
        })
    }

    fn is_freed(seen: &Seen) -> bool {
        let seen = seen.lock();
        seen.len() == TASKS && seen.iter().all(|artifact| artifact.strong_count() == 0)
    }

    async fn run_part(manager: &TaskManager, from: usize) -> Duration {
        let began = Instant::now();
        for number in from..from + PART {
            let sent = manager.execute(request(&format!("m{number}"))).await;
            let mut accepted = sent.expect("accepted");
            while accepted.subscription.next().await.is_some() {}
        }
        began.elapsed()
    }

    /// Time to get a short page of a list. The list is read several times, and the fastest time counts.
    fn page_time(manager: &TaskManager, owner: Option<&str>) -> Duration {
        let mut filter = ListFilter::default();
        filter.owner = owner.map(Into::into);
        let times = (0..10).map(|_| {
            let began = Instant::now();
            let page = manager.list(&filter, None, 10).now_or_never();
            let page = page.expect("it never waits").expect("one machine");
            assert_eq!(page.total, TASKS);
            began.elapsed()
        });
        times.min().expect("ten")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ten_thousand_tasks_leave_their_memory_and_cost_the_same() {
        let seen = Seen::default();
        let executor = remembered(&seen);
        let manager = manager(TaskParts::of(executor), TaskOptions::default()).await;
        let mut times = Vec::new();
        for from in (0..TASKS).step_by(PART) {
            times.push(run_part(&manager, from).await);
        }
        println!("{PART} tasks each: {times:?}");
        let (page, all) = (
            page_time(&manager, Some("alice")),
            page_time(&manager, None),
        );
        println!("page by owner: {page:?}, with a look at all tasks: {all:?}");
        assert!(
            page * 4 < all,
            "a page looks at every task: {page:?}, {all:?}"
        );
        let first = times.iter().take(2).min().expect("two");
        let last = times.iter().rev().take(2).min().expect("two");
        assert!(*last < *first * 3, "the time per task grows: {times:?}");
        wait_until("the memory is free", || is_freed(&seen)).await;
    }

    /// All tasks are sent at the same time, and there is one slot. So the queue contains ten thousand tasks.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ten_thousand_waiting_tasks_run_one_by_one() {
        let seen = Seen::default();
        let executor = remembered(&seen);
        let options = TaskOptions::default().running_max(1);
        let manager = manager(TaskParts::of(executor), options).await;
        let began = Instant::now();
        for number in 0..TASKS {
            let sent = manager.execute(request(&format!("m{number}"))).await;
            drop(sent.expect("accepted"));
        }
        println!("accepted in {:?}", began.elapsed());
        wait_until("all ran, and the memory is free", || is_freed(&seen)).await;
        println!("all in {:?}", began.elapsed());
    }
}
