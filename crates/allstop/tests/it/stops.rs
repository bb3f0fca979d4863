//! A stop during each kind of work, and the stop of a run that its program has dropped.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use allstop::core::receipt::{ItemKind, ItemState};
use allstop::model::Pause;
use allstop::prelude::*;
use tokio::sync::{Notify, oneshot};

use crate::{FOREVER, Nothing, calls_work, first_call, impatient};

fn hangs() -> impl Model {
    model::from_fn("test", async |_request| {
        Ok(Reply::text("").pause(Pause::Forever))
    })
}

/// The single item of a receipt.
fn item(receipt: &Receipt, kind: ItemKind) -> &ItemState {
    let items: Vec<_> = receipt.items().iter().collect();
    assert!(items.len() == 1 && items[0].kind == kind, "{items:?}");
    &items[0].state
}

#[tokio::test]
async fn stop_during_a_model_call() {
    let run = Agent::new(hangs()).build().run("hello");
    let mut events = run.events();
    while !matches!(events.next().await, Some(AgentEvent::StepStarted { .. })) {}
    let receipt = run.stop(CauseKind::User).await;
    assert!(receipt.quiet(), "{receipt}");
    let outcome = run.await;
    assert_eq!(
        outcome.receipt().map(|own| own.stop_id()),
        Some(receipt.stop_id())
    );
    let error = outcome.into_result().unwrap_err();
    assert!(
        error.to_string().starts_with("Turn 1 stopped by you in "),
        "{error}"
    );
}

/// Regression: the receipt of a forced stop reported `stopped; verified` while the request was still being sent.
#[cfg(feature = "providers")]
#[tokio::test]
async fn forced_stop_during_an_upload_claims_no_end() {
    use tokio::io::AsyncReadExt as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = allstop::model::ProviderOptions::default()
        .base_url(format!("http://{}", listener.local_addr().unwrap()));
    let model = allstop::model::ProviderModel::new("test", options).unwrap();
    // More than the buffers of the kernel can hold.
    let run = Agent::new(model).build().run("x".repeat(32 * 1024 * 1024));
    let (mut server, _) = listener.accept().await.unwrap();
    server.read_exact(&mut [0; 1024]).await.unwrap();
    let stop = run.stop(CauseKind::User);
    stop.force();
    let receipt = stop.await;
    let state = item(&receipt, ItemKind::ModelCall);
    assert_eq!(state.as_str(), "unreachable", "{receipt}");
    assert!(!receipt.quiet(), "{receipt}");
}

#[tokio::test]
async fn stop_during_an_asynchronous_tool() {
    let work = tool("work", "Waits", async |_: Nothing, cx: ToolCx| {
        cx.unless_stopped(tokio::time::sleep(FOREVER)).await?;
        Ok("worked")
    });
    let run = Agent::new(calls_work()).tool(work).build().run("go");
    first_call(&run).await;
    let receipt = run.stop(CauseKind::User).await;
    assert!(receipt.quiet(), "{receipt}");
    assert_eq!(item(&receipt, ItemKind::ToolCall).as_str(), "stopped");
    assert!(matches!(run.await, Outcome::Stopped(_)));
}

#[tokio::test]
async fn stop_during_a_blocking_tool() {
    let started = Arc::new(Notify::new());
    let begin = Arc::clone(&started);
    let work = blocking_tool("work", "Computes", move |_: Nothing, cx: ToolCx| {
        begin.notify_one();
        while cx.checkpoint("round").is_ok() {
            std::hint::spin_loop();
        }
        cx.checkpoint("end").map(|()| "worked")
    });
    let run = Agent::new(calls_work()).tool(work).build().run("go");
    started.notified().await;
    let preview = run.scope().preview(Extent::Turn, CauseKind::User.into());
    assert!(preview.to_string().starts_with("Would stop "), "{preview}");
    let receipt = run.stop(CauseKind::User).await;
    assert!(receipt.quiet(), "{receipt}");
    assert_eq!(item(&receipt, ItemKind::ToolCall).as_str(), "stopped");
}

/// The runtime of the test has one thread, and the tool never returns to it.
#[tokio::test(flavor = "current_thread")]
async fn tool_that_blocks_its_thread_delays_no_stop() {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let started = Arc::new(Notify::new());
    let begin = Arc::clone(&started);
    let work = tool("work", "Blocks", move |_: Nothing, _cx| {
        let (gate, begin) = (Arc::clone(&gate), Arc::clone(&begin));
        async move {
            begin.notify_one();
            let _released_or_dropped = gate.lock().unwrap().recv();
            Ok("worked")
        }
    });
    let agent = Agent::new(calls_work()).tool(work).scope(impatient());
    let (stop, stopped) = oneshot::channel::<()>();
    let run = agent.build().run("go").stop_on(stopped);
    started.notified().await;
    let asked_at = Instant::now();
    stop.send(()).unwrap();
    let outcome = run.await;
    assert!(
        asked_at.elapsed() < Duration::from_secs(2),
        "{:?}",
        asked_at.elapsed()
    );
    let Outcome::Stopped(receipt) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(!receipt.quiet());
    assert_eq!(receipt.cause().kind, CauseKind::User);
    assert_eq!(item(&receipt, ItemKind::ToolCall).as_str(), "still_running");
    assert!(
        receipt.to_string().ends_with(", but 1 of 1 still runs."),
        "{receipt}"
    );
    drop(release);
}

#[tokio::test]
async fn dropped_run_stops_with_cause_disconnect() {
    let started = Arc::new(Notify::new());
    let begin = Arc::clone(&started);
    let (report, cause) = mpsc::channel();
    let work = tool("work", "Waits", move |_: Nothing, cx: ToolCx| {
        let (report, begin) = (report.clone(), Arc::clone(&begin));
        async move {
            begin.notify_one();
            report.send(cx.stopped_at("wait").await.kind)?;
            Ok("stopped")
        }
    });
    let agent = Agent::new(calls_work()).tool(work).build();
    let asked = agent.ask("go");
    tokio::select! {
        answer = asked => panic!("{answer:?}"),
        // The future is dropped here, and owns the run.
        () = started.notified() => {}
    }
    assert_eq!(cause.recv(), Ok(CauseKind::Disconnect));
    // The agent takes the next prompt.
    let run = agent.run("go");
    started.notified().await;
    assert!(run.stop(CauseKind::User).await.quiet());
}

#[tokio::test]
async fn call_is_cancelled_once() {
    let work = tool("work", "Waits", async |_: Nothing, cx: ToolCx| {
        cx.unless_stopped(tokio::time::sleep(FOREVER)).await?;
        Ok("worked")
    });
    let agent = Agent::new(calls_work()).tool(work).build();
    let run = agent.run("go");
    let call = first_call(&run).await;
    assert!(!run.cancel_call(&"call_x".into()));
    assert!(run.cancel_call(&call));
    assert!(!run.cancel_call(&call));
    assert_eq!(run.await.into_result().unwrap().to_string(), "done");

    let session = agent.session().open().await.unwrap();
    let mut events = session.watch();
    let message = session.send("go").unwrap();
    let call = events.next_call().await.unwrap();
    assert!(!session.cancel_call(&"call_x".into()));
    assert!(session.cancel_call(&call));
    assert!(!session.cancel_call(&call));
    assert_eq!(message.await.into_result().unwrap().to_string(), "done");
    assert!(!session.cancel_call(&call));
    let unknown = StopTarget::Call("call_x".into());
    let unknown = session.stop(&unknown, CauseKind::User).await;
    assert_eq!(
        unknown.to_string(),
        "Nothing to stop: call call_x was not found."
    );
}

#[cfg(feature = "shell")]
#[tokio::test]
async fn stop_during_a_shell() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let folder = tempfile::tempdir().unwrap();
    let called = AtomicBool::new(false);
    let model = model::from_fn("test", move |_request| {
        let again = called.swap(true, Ordering::Relaxed);
        std::future::ready(Ok(if again {
            Reply::text("done")
        } else {
            let command = "sleep 600 & echo ready; wait";
            Reply::text("").call("shell", serde_json::json!({"command": command}))
        }))
    });
    let tools = allstop::local_tools(folder.path(), folder.path().join("output")).unwrap();
    let agent = Agent::new(model).build();
    let session = agent.session().tools(tools).open().await.unwrap();
    let mut events = session.watch();
    let message = session.send("go").unwrap();
    let is_ready = |event: &allstop::session::SessionEventKind| {
        matches!(
            event,
            allstop::session::SessionEventKind::Live(AgentEvent::ToolOutput { .. })
        )
    };
    while !is_ready(&events.next().await.unwrap().kind) {}
    let stopping = session.stop(&StopTarget::Turn, CauseKind::User);
    let receipt = stopping.receipt().await;
    assert!(receipt.quiet(), "{receipt}");
    assert_eq!(item(&receipt, ItemKind::ToolCall).as_str(), "stopped");
    assert!(
        receipt
            .to_string()
            .ends_with("as far as a search can find."),
        "{receipt}"
    );
    assert!(matches!(message.await, Outcome::Stopped(_)));
    assert!(session.close().await.quiet());
}

/// Regression: the sentence contained the name `run_1`. A stop of an ended run has the id of the stop that ended it.
#[tokio::test]
async fn later_stop_lists_the_work_and_a_stop_of_an_ended_run_names_the_first() {
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let started = Arc::new(Notify::new());
    let begin = Arc::clone(&started);
    let blocks = tool("work", "Blocks its thread", move |_: Nothing, _cx| {
        let (begin, released) = (Arc::clone(&begin), Arc::clone(&released));
        async move {
            begin.notify_one();
            // An error means that the test has ended.
            let _released = released.lock().unwrap().recv();
            Ok("worked")
        }
    });
    let agent = Agent::new(calls_work()).tool(blocks).scope(impatient());
    let run = agent.build().run("go");
    started.notified().await;
    let first = run.stop(CauseKind::User).await;
    assert!(!first.quiet(), "{first}");

    let second = run.stop(CauseKind::User);
    release.send(()).unwrap();
    let second = second.await;
    assert!(second.quiet() && second.outcome().is_none(), "{second}");
    assert_eq!(second.items().len(), 1, "{second}");
    assert!(
        second.to_string().starts_with("The run stopped by you in "),
        "{second}"
    );

    let third = run.stop(CauseKind::User).await;
    assert_eq!(
        third.to_string(),
        "Nothing to stop in the run: already ended."
    );
    assert_ne!(second.stop_id(), first.stop_id());
    assert_eq!(third.stop_id(), first.stop_id());
}

/// Regression: a stop, and the wait for a message, panicked in a runtime without timers.
#[test]
fn stop_and_wait_need_no_timers() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a thread is all that it needs");
    runtime.block_on(async {
        let agent = Agent::new(hangs()).build();
        let receipt = agent.run("hello").stop(CauseKind::User).await;
        assert!(receipt.quiet(), "{receipt}");
        let session = agent.session().open().await.unwrap();
        let waited = session.send_and_wait("hello", Duration::ZERO).await;
        assert!(waited.unwrap().timed_out);
        let receipt = session.stop(&StopTarget::Turn, CauseKind::User).await;
        assert!(receipt.quiet(), "{receipt}");
        assert!(session.close().await.quiet());
    });
}

#[cfg(feature = "shell")]
#[tokio::test]
async fn commands_of_local_tools_have_the_containment_of_the_scope() {
    let folder = tempfile::tempdir().unwrap();
    let system = allstop_testkit::SimulatedSystem::new();
    system.program("make", allstop_testkit::Behaviour::default());
    let options = RootOptions::for_any_runtime().containment(system.containment());
    let model = model::from_fn("test", async |request: ModelRequest| {
        Ok(match request.tool_results() {
            0 => Reply::text("").call("shell", serde_json::json!({"command": "make"})),
            _ => "done".into(),
        })
    });
    let agent = Agent::new(model)
        .scope(Scope::root("test", options))
        .build();
    let tools = allstop::local_tools(folder.path(), folder.path().join("output")).unwrap();
    let session = agent.session().tools(tools).open().await.unwrap();
    let answer = session.send("go").unwrap().await.into_result().unwrap();
    assert_eq!(answer.to_string(), "done");
    assert_eq!(system.started().len(), 1);
    assert!(session.close().await.quiet());
}
