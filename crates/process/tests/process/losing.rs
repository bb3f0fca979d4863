//! An owner (the process that launches commands) or a keeper (the helper process that contains a command's process
//! tree) that is killed, or that does not react.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use allstop_core::receipt::{Containment, EndProof};
use allstop_process::{ExitInfo, is_alive};
use libtest_mimic::Trial;
use rustix::process::Signal;

use crate::support::{
    assert_nothing_runs, kill, proof, run, running, shell, sleepers, token, trial, wait_until,
};

/// Maximum time from the kill of an owner until its tree has ended.
const ORPHAN_MAX: Duration = Duration::from_secs(2);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("losing::killed_owner", killed_owner),
        trial(
            "losing::killed_owner_right_after_launch",
            killed_owner_right_after_launch,
        ),
        trial("losing::killed_keeper", killed_keeper),
        trial(
            "losing::keeper_killed_by_its_own_command",
            keeper_killed_by_its_own_command,
        ),
        trial("losing::stopped_keeper", stopped_keeper),
        trial("losing::signalled_keeper_stays", signalled_keeper_stays),
    ]
}

const DEAF: &str = r#"trap "" TERM HUP INT; setsid env -i sleep TOKEN & sleep TOKEN & (setsid sh -c "sleep TOKEN" &); echo ready; wait"#;

/// Main function of an owner. It launches the command, prints `ready` after the command has printed `ready`, and waits
/// to be killed.
pub(crate) fn own(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut next = || {
        args.next()
            .and_then(|arg| arg.into_string().ok())
            .expect("token and script")
    };
    let (token, script) = (next(), next());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut call = run(shell(&script, &token, Containment::Keeper));
        println!("launched");
        call.read_until("ready").await;
        println!("ready");
        std::io::stdout().flush().expect("the test listens");
        std::future::pending::<()>().await;
    });
    ExitCode::SUCCESS
}

fn owner(token: &str, script: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().expect("this binary has a path"))
        .args(["own-call", token, script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("an owner");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    (child, output)
}

fn await_line(output: &mut BufReader<std::process::ChildStdout>, line: &str) {
    let mut read = String::new();
    while read.trim() != line {
        read.clear();
        assert_ne!(
            output.read_line(&mut read).expect("readable"),
            0,
            "{line:?} never came"
        );
    }
}

async fn killed_owner() {
    let token = token();
    let (mut child, mut output) = owner(&token, DEAF);
    await_line(&mut output, "ready");
    wait_until("all sleep", ORPHAN_MAX, || sleepers(&token) == 3).await;
    child.kill().expect("it runs");
    child.wait().expect("it is a child");
    let took = wait_until("the tree is gone", ORPHAN_MAX, || {
        running(&token).is_empty()
    })
    .await;
    eprintln!("kill -9 of the owner: tree gone after {took:?}");
}

async fn killed_owner_right_after_launch() {
    for _ in 0..20 {
        let token = token();
        let (mut child, mut output) = owner(&token, DEAF);
        await_line(&mut output, "launched");
        child.kill().expect("it runs");
        child.wait().expect("it is a child");
        wait_until("the tree is gone", ORPHAN_MAX, || {
            running(&token).is_empty()
        })
        .await;
    }
}

async fn killed_keeper() {
    let token = token();
    let script = r#"trap "" TERM; setsid sleep TOKEN & sleep TOKEN & (setsid sh -c "sleep TOKEN; :" &); echo ready; wait"#;
    let mut call = run(shell(script, &token, Containment::Keeper));
    call.read_until("ready").await;
    wait_until("all sleep", ORPHAN_MAX, || sleepers(&token) == 3).await;
    let keeper = call.handle.keeper_identity().expect("it has one").clone();
    kill(keeper.pid, Signal::KILL);
    // No caller has requested SIGKILL for the tree. But the keeper has ended, so no process of the tree may remain.
    assert_eq!(
        call.handle.wait_empty().await.expect("watched"),
        EndProof::ProcessGroupEmpty
    );
    assert_eq!(
        call.handle.wait_exited().await.expect("watched"),
        ExitInfo::Unknown
    );
    assert!(!is_alive(&keeper));
    assert_nothing_runs(&token);
}

async fn keeper_killed_by_its_own_command() {
    let token = token();
    let script = "setsid sleep TOKEN & (sh -c 'sleep TOKEN; :' &) ; kill -9 $PPID; sleep TOKEN";
    let call = run(shell(script, &token, Containment::Keeper));
    assert_eq!(
        call.handle.wait_empty().await.expect("watched"),
        EndProof::ProcessGroupEmpty
    );
    assert_nothing_runs(&token);
}

async fn stopped_keeper() {
    let token = token();
    let mut call = run(shell(DEAF, &token, Containment::Keeper));
    call.read_until("ready").await;
    wait_until("all sleep", ORPHAN_MAX, || sleepers(&token) == 3).await;
    kill(
        call.handle.keeper_identity().expect("it has one").pid,
        Signal::STOP,
    );
    let (verified, took) = call.force_and_wait().await;
    assert_eq!(
        verified,
        proof(Containment::Keeper),
        "it was continued and did its work"
    );
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_nothing_runs(&token);
}

async fn signalled_keeper_stays() {
    let token = token();
    let mut call = run(shell(
        "sleep TOKEN & echo ready; wait",
        &token,
        Containment::Keeper,
    ));
    call.read_until("ready").await;
    wait_until("it sleeps", ORPHAN_MAX, || sleepers(&token) == 1).await;
    let keeper = call.handle.keeper_identity().expect("it has one").clone();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        kill(keeper.pid, signal);
    }
    // The keeper reads the request of `ask` below after the signals. So when the tree is empty, the keeper has handled
    // the signals.
    assert!(is_alive(&keeper));
    assert_eq!(call.handle.members().await.len(), 2);
    call.handle.ask();
    assert_eq!(
        call.handle.wait_empty().await.expect("watched"),
        proof(Containment::Keeper)
    );
    assert_nothing_runs(&token);
}
