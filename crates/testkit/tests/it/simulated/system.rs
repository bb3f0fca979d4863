//! Simulated processes in a scope: the effect of a stop, and the events that the system reports.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{Containment, EndMethod, EndProof, ItemKind, ItemState};
use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_process::{
    ExitInfo, OutputReader, ProcessSignal, ProcessSpec, ProcessWaitError, launch,
};
use allstop_scope::{GRACE_DEFAULT, Process, RootOptions, Scope, Stop, StopRequest, WorkSpec};
use allstop_testkit::{Behaviour, SimulatedSystem, SystemEventKind};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ms, on_paused_time};

fn root() -> Scope {
    Scope::root("test", RootOptions::single_runtime())
}

fn spec(system: &SimulatedSystem, command: &str) -> ProcessSpec {
    ProcessSpec::new("sh", format!("marker of {command}"))
        .args(["-c", command])
        .cwd("/somewhere")
        .containment(system.containment())
}

fn spawn(scope: &Scope, system: &SimulatedSystem, command: &str) -> (Process, OutputReader) {
    let work = WorkSpec::new(ItemKind::Process, command);
    let spawned = scope.spawn_process(work, spec(system, command));
    spawned.expect("nothing is stopped yet")
}

fn stop(scope: &Scope) -> Stop {
    scope.stop(StopRequest::new(
        Extent::Process,
        Cause::new(CauseKind::User),
    ))
}

/// Method that ended the only item, and the elapsed milliseconds.
fn stopped(receipt: &Receipt) -> (EndMethod, f64) {
    assert!(receipt.quiet(), "{receipt:?}");
    let [item] = receipt.items() else {
        panic!("{receipt:?}")
    };
    let ItemState::Stopped {
        how,
        evidence,
        after_ms,
    } = &item.state
    else {
        panic!("{item:?}")
    };
    assert_eq!(evidence.proof(), Some(EndProof::ProcessGroupEmpty));
    assert_eq!(item.containment, Some(Containment::GroupAndMarker));
    (*how, after_ms.as_f64())
}

async fn all(reader: &mut OutputReader) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 64]);
    loop {
        let len = match reader.read(&mut buffer).await.expect("memory is read") {
            0 => reader
                .read_leftovers(&mut buffer)
                .await
                .expect("memory is read"),
            len => len,
        };
        if len == 0 {
            return text;
        }
        text += &String::from_utf8_lossy(&buffer[..len]);
    }
}

#[test]
fn unknown_command_succeeds_at_once() {
    on_paused_time(async {
        let (scope, system) = (root(), SimulatedSystem::new());
        let (process, mut output) = spawn(&scope, &system, "true");
        assert_eq!(process.exited().await.unwrap(), ExitInfo::Code(0));
        assert_eq!(all(&mut output).await, "");
        assert!(system.running().is_empty());
        let started = system.started();
        let [tree] = started.as_slice() else { panic!() };
        assert_eq!((&*tree.command, &*tree.marker), ("true", "marker of true"));
    });
}

#[test]
fn sigterm_ends_a_program_in_its_own_time() {
    on_paused_time(async {
        let (scope, system) = (root(), SimulatedSystem::new());
        let behaviour = Behaviour {
            prints: vec![(ms(0), "up\n".into()), (ms(150), "still here\n".into())],
            term_takes: Some(ms(300)),
            ..Behaviour::server("")
        };
        system.program("serve", behaviour);
        let (process, mut output) = spawn(&scope, &system, "serve");
        tokio::time::sleep(ms(100)).await;
        assert_eq!(system.running()[0].living[0].command_line, "sh -c serve");
        assert_eq!(process.members().await, system.running()[0].living);
        let receipt = stop(&scope).await;
        assert_eq!(stopped(&receipt), (EndMethod::Sigterm, 300.0));
        assert_eq!(all(&mut output).await, "up\nstill here\n");
        assert_eq!(process.exited().await.unwrap(), ExitInfo::Signal(15));
        assert!(system.running().is_empty());
    });
}

#[test]
fn force_ends_what_ignores_the_ask() {
    on_paused_time(async {
        let (scope, system) = (root(), SimulatedSystem::new());
        let behaviour = Behaviour {
            prints: vec![(Duration::from_hours(1), "never\n".into())],
            term_takes: None,
            kill_takes: ms(20),
            ..Behaviour::server("")
        };
        system.program("deaf", behaviour);
        let (_process, mut output) = spawn(&scope, &system, "deaf");
        let before = Instant::now();
        let receipt = stop(&scope).await;
        assert_eq!(stopped(&receipt), (EndMethod::Sigkill, 2020.0));
        assert_eq!(before.elapsed(), GRACE_DEFAULT + ms(20));
        assert_eq!(all(&mut output).await, "");
        let timeline = [
            (0, SystemEventKind::Started { pid: 1001 }),
            (0, SystemEventKind::Signalled(ProcessSignal::Term)),
            (2000, SystemEventKind::Signalled(ProcessSignal::Kill)),
            (
                2020,
                SystemEventKind::Ended {
                    pid: 1001,
                    is_main: true,
                    exit: ExitInfo::Signal(9),
                },
            ),
            (2020, SystemEventKind::Emptied),
        ];
        let history = system.history();
        let history = history
            .into_iter()
            .map(|event| (event.at - before, event.kind));
        let timeline = timeline.map(|(at, kind)| (ms(at), kind));
        assert_eq!(history.collect::<Vec<_>>(), timeline);
    });
}

#[test]
fn process_that_resists_force_is_named() {
    on_paused_time(async {
        let (scope, system) = (root(), SimulatedSystem::new());
        let behaviour = Behaviour {
            term_takes: None,
            kill_takes: Duration::from_mins(1),
            ..Behaviour::server("")
        };
        system.program("wedged", behaviour);
        let (process, _output) = spawn(&scope, &system, "wedged");
        let receipt = stop(&scope).await;
        assert!(!receipt.quiet());
        let [item] = receipt.items() else { panic!() };
        assert_eq!(item.state.as_str(), "still_running");
        let living = system.running()[0].living[0].identity.clone();
        assert_eq!(item.processes, [living]);
        process.handle().wait_empty().await.unwrap();
        assert!(system.running().is_empty());
    });
}

#[test]
fn a_descendant_outlives_main_and_is_in_the_stop() {
    on_paused_time(async {
        let (scope, system) = (root(), SimulatedSystem::new());
        let child = Behaviour {
            prints: vec![(ms(10), "b".into()), (ms(50), "d".into())],
            term_takes: None,
            ..Behaviour::server("")
        };
        let behaviour = Behaviour {
            prints: vec![(ms(0), "a".into()), (ms(20), "c".into())],
            exits: Some((ms(30), 7)),
            children: vec![("sleep".into(), child)],
            ..Behaviour::default()
        };
        system.program("leave", behaviour);
        let (process, mut output) = spawn(&scope, &system, "leave");
        assert_eq!(process.exited().await.unwrap(), ExitInfo::Code(7));
        // Output that arrives after the end of the main process was reported comes from a descendant.
        let mut buffer = [0; 2];
        assert_eq!(output.read(&mut buffer).await.unwrap(), 2);
        assert_eq!(&buffer, b"ab");
        assert_eq!(output.read(&mut buffer).await.unwrap(), 1);
        assert_eq!(&buffer[..1], b"c");
        assert_eq!(output.read(&mut buffer).await.unwrap(), 0);
        let [left] = &*process.members().await else {
            panic!()
        };
        assert_eq!(left.command_line, "sleep");
        tokio::time::sleep(ms(100)).await;
        let receipt = stop(&scope).await;
        assert_eq!(stopped(&receipt).0, EndMethod::Sigkill);
        assert_eq!(all(&mut output).await, "d");
    });
}

#[test]
fn a_stop_at_any_event_of_a_tree_leaves_nothing() {
    let of_all = explore_events(None);
    assert_eq!(of_all.len(), 7, "{of_all:#?}");
    for event in 0..of_all.len() {
        let seen = explore_events(Some(event));
        // Both runs are equal up to this event.
        assert_eq!(seen[..=event], of_all[..=event], "stopped at {event}");
    }
}

/// Runs a tree, and stops its scope when the event with this number happens, counted from 0. Returns the events.
fn explore_events(stop_at: Option<usize>) -> Vec<SystemEventKind> {
    on_paused_time(async {
        let (scope, system) = (root(), SimulatedSystem::new());
        let child = Behaviour {
            prints: vec![(ms(5), "child".into())],
            exits: Some((ms(40), 0)),
            ..Behaviour::default()
        };
        let behaviour = Behaviour {
            prints: vec![(ms(0), "one".into()), (ms(10), "two".into())],
            exits: Some((ms(20), 0)),
            children: vec![("child".into(), child)],
            ..Behaviour::default()
        };
        system.program("run", behaviour);
        let asked = Arc::new(Mutex::new(None));
        let (scope_too, asked_too) = (scope.clone(), Arc::clone(&asked));
        let events = Mutex::new(0);
        system.observe(move |_| {
            let event = std::mem::replace(&mut *events.lock(), usize::MAX);
            if Some(event) == stop_at {
                let stopped = stop(&scope_too);
                *asked_too.lock() = Some(stopped);
            } else if event < usize::MAX {
                *events.lock() = event + 1;
            }
        });
        let (process, mut output) = spawn(&scope, &system, "run");
        all(&mut output).await;
        let empty = process.handle().wait_empty().await;
        assert_eq!(empty.ok(), Some(EndProof::ProcessGroupEmpty));
        if stop_at.is_none() {
            assert!(stop(&scope).await.items().is_empty());
        } else {
            let stop: Stop = asked.lock().take().expect("it came to that event");
            let receipt = stop.await;
            assert!(receipt.quiet(), "{receipt:?}");
            assert_eq!(receipt.items().len(), 1);
        }
        assert!(system.running().is_empty());
        let history = system.history();
        history.into_iter().map(|event| event.kind).collect()
    })
}

#[test]
fn a_stop_in_the_launch_comes_before_any_output() {
    // The first event is the start. At this moment the scope has no handle yet, and the driver has not been polled.
    let seen = explore_events(Some(0));
    assert!(matches!(seen[0], SystemEventKind::Started { .. }));
    let is_output = |event: &SystemEventKind| matches!(event, SystemEventKind::Printed { .. });
    assert!(!seen.iter().any(is_output), "{seen:#?}");
    assert_eq!(seen.len(), 5, "{seen:#?}");
}

#[test]
fn nothing_runs_unwatched() {
    on_paused_time(async {
        let system = SimulatedSystem::new();
        system.program("serve", Behaviour::server("up"));
        let (handle, driver, _output) = launch(spec(&system, "serve")).unwrap();
        assert_eq!(system.running().len(), 1);
        drop(driver);
        assert!(system.running().is_empty());
        let seen = handle.wait_exited().await;
        assert!(
            matches!(seen, Err(ProcessWaitError::WatcherGone)),
            "{seen:?}"
        );
        assert_eq!(handle.emptiness(), None);
    });
}

#[test]
fn output_and_end_wake_a_waiting_reader() {
    on_paused_time(async {
        let (scope, system) = (root(), SimulatedSystem::new());
        let behaviour = Behaviour {
            prints: vec![(ms(10), "a".into())],
            exits: Some((ms(20), 3)),
            ..Behaviour::default()
        };
        system.program("say", behaviour);
        let (_process, mut output) = spawn(&scope, &system, "say");
        let (before, mut buffer) = (Instant::now(), [0; 4]);
        assert_eq!(output.read(&mut buffer).await.unwrap(), 1);
        assert_eq!(before.elapsed(), ms(10));
        assert_eq!(output.read(&mut buffer).await.unwrap(), 0);
        assert_eq!(before.elapsed(), ms(20));
    });
}

#[test]
fn waiters_are_woken_in_order_of_arrival() {
    const WAITERS: usize = 20;
    on_paused_time(async {
        let (scope, system) = (root(), SimulatedSystem::new());
        let behaviour = Behaviour {
            exits: Some((ms(10), 0)),
            ..Behaviour::default()
        };
        system.program("short", behaviour);
        let (process, _output) = spawn(&scope, &system, "short");
        let woken = Arc::new(Mutex::new(Vec::new()));
        let waiters = (0..WAITERS).map(|number| {
            let (process, woken) = (process.clone(), Arc::clone(&woken));
            let wait = async move {
                drop(process.exited().await);
                woken.lock().push(number);
            };
            let spawned = scope.spawn(WorkSpec::new(ItemKind::Future, "waits"), |_| wait);
            spawned.unwrap()
        });
        for waiter in waiters.collect::<Vec<_>>() {
            waiter.await.unwrap();
        }
        assert_eq!(*woken.lock(), (0..WAITERS).collect::<Vec<_>>());
    });
}
