//! `assert_stop_safe!`: the tools that it accepts, and its reports about all other tools.

use std::sync::Arc;
use std::time::Duration;

use allstop_testkit::explore::{CheckReport, RunStage};
use allstop_testkit::{StopSafe, ToolFn, assert_stop_safe};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::sleep;

/// Time that is longer than any grace, in which a stopped tool may end by itself.
const LONG: Duration = Duration::from_secs(10);

fn explored(tool: impl Fn(&RunStage) -> ToolFn + Send + Sync + 'static) -> CheckReport {
    StopSafe::new(tool, json!({})).explore()
}

fn deaf() -> ToolFn {
    ToolFn::new("deaf", |_| async {
        sleep(LONG).await;
        "done".to_owned()
    })
}

#[test]
fn tool_that_ignores_stops_is_caught() {
    let report = explored(|_| deaf());
    assert_eq!(report.caught_by(), ["tool_observes_stop"], "{report}");
    assert_stop_safe!(deaf(), {}, may_be_dropped);
}

#[test]
fn a_tool_that_spawns_outside_its_scope_is_caught() {
    let report = explored(|_| {
        ToolFn::new("detached", |_| async {
            #[expect(clippy::disallowed_methods, reason = "what is to be caught")]
            drop(tokio::spawn(sleep(LONG)));
            "done".to_owned()
        })
    });
    assert_eq!(report.caught_by(), ["leftovers"], "{report}");
}

/// The test kit finds, ends and reaps a process that Allstop does not know. The test kit does not touch any other
/// process.
#[cfg(target_os = "linux")]
#[test]
fn process_that_is_started_and_forgotten_is_caught() {
    use std::process::{Child, Command};

    let mut beside = Command::new("sleep").arg("600").spawn().unwrap();
    let started = Arc::new(Mutex::new(Vec::<Child>::new()));
    let forgotten = Arc::clone(&started);
    let report = explored(move |_| {
        let forgotten = Arc::clone(&forgotten);
        ToolFn::new("forgets", move |_| {
            let forgotten = Arc::clone(&forgotten);
            async move {
                let child = Command::new("sleep").arg("600").spawn();
                forgotten.lock().push(child.unwrap());
                "started".to_owned()
            }
        })
    });
    assert_eq!(report.caught_by(), ["child_processes"], "{report}");
    assert!(report.to_string().contains("(sleep)"), "{report}");
    let mut started = std::mem::take(&mut *started.lock());
    assert!(!started.is_empty());
    for child in &mut started {
        // The child was reaped, so this process no longer has such a child.
        assert!(child.try_wait().is_err(), "{child:?} is left");
    }
    assert!(beside.try_wait().unwrap().is_none(), "not the tool's");
    beside.kill().unwrap();
    beside.wait().unwrap();
}

#[test]
fn own_check_catches_half_finished_work() {
    let report = explored(|stage| {
        let lines = Arc::new(Mutex::new(0));
        let seen = Arc::clone(&lines);
        stage.check("lines", move || match *seen.lock() {
            1 => Err("half a record".to_owned()),
            _ => Ok(()),
        });
        ToolFn::new("half", move |call| {
            let lines = Arc::clone(&lines);
            async move {
                *lines.lock() += 1;
                tokio::select! {
                    cause = call.scope.stopped_at("between two lines") => return cause.to_string(),
                    () = sleep(LONG) => {}
                }
                *lines.lock() += 1;
                "done".to_owned()
            }
        })
    });
    assert_eq!(report.caught_by(), ["lines"], "{report}");
    assert!(report.cases > 100, "{report}");
}

/// Report of a tool that is broken even without a stop.
fn wrong_by_itself(tool: impl Fn(&RunStage) -> ToolFn + Send + Sync + 'static) -> String {
    let report = explored(tool);
    assert_eq!(report.caught_by(), ["tool_ends"], "{report}");
    assert_eq!(report.cases, 0, "{report}");
    report.to_string()
}

#[test]
fn unexplorable_tools_are_explained() {
    let socket = wrong_by_itself(|_| {
        ToolFn::new("socket", |_| async {
            let connected = tokio::net::TcpStream::connect("127.0.0.1:1").await;
            format!("{connected:?}")
        })
    });
    assert!(
        socket.contains("There is no I/O in an exploration"),
        "{socket}"
    );
    let endless = wrong_by_itself(|_| {
        ToolFn::new("endless", |call| async move {
            call.scope.stopped_at("for ever").await.to_string()
        })
    });
    assert!(endless.contains("the call does not end"), "{endless}");
    let failing = wrong_by_itself(|_| {
        ToolFn::fallible("failing", |_| async { Err("no such file".to_owned()) })
    });
    assert!(failing.contains("no such file"), "{failing}");
}

/// Regression: the report named a failure without a stop if the call returned in the poll in which it observed the stop.
#[test]
fn tool_may_fail_because_of_a_stop() {
    let stoppable = || {
        ToolFn::fallible("stoppable", |call| async move {
            tokio::select! {
                biased;
                cause = call.scope.stopped_at("waiting") => Err(format!("stopped: {cause}")),
                () = sleep(LONG) => Ok("done".to_owned()),
            }
        })
    };
    assert_stop_safe!(stoppable(), {});
}

#[test]
#[should_panic(expected = "deaf cannot be called with 7")]
fn invalid_tool_input_is_reported() {
    assert_stop_safe!(deaf(), 7);
}
