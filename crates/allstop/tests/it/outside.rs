//! Work outside of tokio, such as the threads and tasks of an interpreter that calls the library.

use std::sync::{Arc, Mutex};

use allstop::core::receipt::{ItemKind, ItemState};
use allstop::model::OutsideWork;
use allstop::prelude::*;
use allstop::scope::{Registration, WorkSpec};
use tokio::sync::Notify;

use crate::{Nothing, calls_work, first_call, impatient};

/// Regression: the note did not name the thread, and only threads of the scope itself could be registered.
#[tokio::test]
async fn receipt_names_a_thread_that_cannot_be_stopped() {
    let thread: Arc<Mutex<Option<Registration>>> = Arc::default();
    let started = Arc::new(Notify::new());
    let (held, begin) = (Arc::clone(&thread), Arc::clone(&started));
    let work = tool("work", "Works", move |_: Nothing, cx: ToolCx| {
        let spec = WorkSpec::new(ItemKind::Thread, "interpreter-1");
        *held.lock().unwrap() = cx.scope().register_thread(spec).ok();
        begin.notify_one();
        async move {
            cx.stopped_at("wait").await;
            Ok("stopped")
        }
    });
    let agent = Agent::new(calls_work()).tool(work).scope(impatient());
    let run = agent.build().run("go");
    started.notified().await;
    let receipt = run.stop(CauseKind::User).await;
    let [item] = receipt.items() else {
        panic!("{receipt:?}");
    };
    assert!(
        matches!(item.state, ItemState::StillRunning { .. }),
        "{item:?}"
    );
    let note = "the thread `interpreter-1` cannot be forced; it never delays the exit";
    assert_eq!(item.note.as_deref(), Some(note));
    assert!(thread.lock().unwrap().take().is_some());
}

/// Regression: a stop claimed the end of a model call whose task outside of the future had not ended.
#[tokio::test]
async fn model_call_is_open_until_its_outside_work_ends() {
    let open: Arc<Mutex<Option<OutsideWork>>> = Arc::default();
    let started = Arc::new(Notify::new());
    let (held, begin) = (Arc::clone(&open), Arc::clone(&started));
    let model = model::from_fn("test", move |request: ModelRequest| {
        *held.lock().unwrap() = Some(request.probe.begin_outside_work());
        begin.notify_one();
        std::future::pending::<Result<Reply, ModelError>>()
    });
    let agent = Agent::new(model).scope(impatient()).build();
    let run = agent.run("go");
    started.notified().await;
    let receipt = run.stop(CauseKind::User).await;
    assert_eq!(
        receipt.items()[0].state.as_str(),
        "unreachable",
        "{receipt}"
    );
    open.lock().unwrap().take();

    let run = agent.run("go");
    started.notified().await;
    open.lock().unwrap().take();
    let receipt = run.stop(CauseKind::User).await;
    assert_eq!(receipt.items()[0].state.as_str(), "stopped", "{receipt}");
}

#[tokio::test]
async fn stopper_ends_a_run_that_another_task_awaits() {
    let model = model::from_fn("test", async |_request| {
        Ok(Reply::text("").pause(model::Pause::Forever))
    });
    let run = Agent::new(model).build().run("go");
    let stopper = run.stopper();
    let (outcome, receipt) = tokio::join!(run.into_future(), async {
        stopper.stop(CauseKind::User).await
    });
    assert_eq!(outcome.receipt().unwrap().stop_id(), receipt.stop_id());
}

/// Regression: the events did not end as long as the program held something that can stop a call of the run.
#[tokio::test]
async fn events_end_with_the_run() {
    let work = tool("work", "Works", async |_: Nothing, _cx| Ok("worked"));
    let run = Agent::new(calls_work()).tool(work).build().run("go");
    let (stopper, mut events) = (run.stopper(), run.events());
    first_call(&run).await;
    assert!(matches!(run.await, Outcome::Completed(_)));
    while events.next().await.is_some() {}
    drop(stopper);
}
