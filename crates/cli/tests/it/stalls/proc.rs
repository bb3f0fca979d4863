//! Stalls of `/proc`. A read of a process's command line or environment hangs while the memory map of the process is
//! locked.

use std::fs;

use super::stall::{HangingRun, Stall};
use super::stop_method::RunStopMethod;
use crate::support::Place;
use crate::support::fault::Fault;

/// A command that ignores SIGTERM and starts another process in a separate Unix session. The command writes its pid to
/// the file `ready`.
fn stubborn(place: &Place) -> String {
    format!(
        "trap \"\" TERM; setsid sleep 600 & sleep 600 & echo $$ > {}; wait",
        place.path("ready").display()
    )
}

/// A run with a call or with background work. Reads of this process's files in `/proc` hang.
fn hung(place: &Place, args: &str, file: &str, in_background: bool) -> HangingRun {
    let fault = Fault::new(place, "");
    let call = format!(
        "{{tool: shell, arguments: {{command: '{}', background: {in_background}}}}}",
        stubborn(place)
    );
    let other = format!(
        "{{tool: shell, arguments: {{command: 'until test -s {}; do sleep 0.01; done; sleep 600'}}}}",
        place.path("ready").display()
    );
    let calls = if in_background {
        format!("{call}, {other}")
    } else {
        call
    };
    let run = place
        .run_script(&format!("replies: [{{calls: [{calls}]}}]"))
        .args(args)
        .arg("hello");
    let ready = place.path("ready");
    let read = || fs::read_to_string(&ready).unwrap_or_default();
    let hanging =
        HangingRun::from(fault.below(run).start()).once("its pid", || read().ends_with('\n'));
    fault.set(&format!("open /proc/{}/{file} hang", read().trim()));
    hanging.with(fault)
}

#[test]
fn the_command_line_of_a_call() {
    Stall::new(|place, args| hung(place, args, "cmdline", false)).check(&RunStopMethod::ALL);
}

#[test]
fn the_environment_of_a_call() {
    Stall::new(|place, args| hung(place, args, "environ", false)).check(&RunStopMethod::ALL);
}

/// The kernel never locks the state of a process, so reads of this file hang only if `/proc` itself is broken. Even
/// then, the run must end.
#[test]
fn the_state_of_a_call() {
    Stall::new(|place, args| hung(place, args, "stat", false))
        .not_quiet()
        .check(&RunStopMethod::ALL);
}

#[test]
fn the_command_line_of_background_work() {
    Stall::new(|place, args| hung(place, args, "cmdline", true)).check(&RunStopMethod::ALL);
}

#[test]
fn the_environment_of_background_work() {
    Stall::new(|place, args| hung(place, args, "environ", true)).check(&RunStopMethod::ALL);
}

/// The run must keep the background work, so this work continues to run during the stop of the turn.
#[test]
fn the_command_line_of_a_bystander() {
    let begin = |place: &Place, args: &str| {
        hung(place, &format!("{args} --keep-background"), "cmdline", true)
    };
    Stall::new(begin).not_quiet().check(&RunStopMethod::ALL);
}

#[test]
fn the_command_line_of_every_process() {
    let begin = |place: &Place, args: &str| {
        let hanging = hung(place, args, "cmdline", false);
        hanging.set("open /cmdline hang\nopen /environ hang")
    };
    Stall::new(begin).check(&RunStopMethod::ALL);
}
