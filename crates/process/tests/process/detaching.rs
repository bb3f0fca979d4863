//! Trees that are detached, and so outlive their owner.

use std::ffi::OsString;
use std::pin::pin;
use std::process::{Command, ExitCode};
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::Containment;
use allstop_process::{
    DetachTreeError, ProcessSignal, ProcessWaitError, ReattachError, is_alive, launch, reattach,
    signal, survivor,
};
use futures::poll;
use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;

use crate::support::{Running, proof, run, running, shell, sleepers, token, trial, wait_until};

const SOON: Duration = Duration::from_secs(3);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "detaching::outlives_its_owner_and_is_drained",
            outlives_its_owner_and_is_drained,
        ),
        trial("detaching::output_is_capped", output_is_capped),
        trial(
            "detaching::deaf_tree_ends_with_its_keeper",
            deaf_tree_ends_with_its_keeper,
        ),
        trial(
            "detaching::reattached_without_its_keeper",
            reattached_without_its_keeper,
        ),
        trial(
            "detaching::sigterm_after_a_pending_detach_ends_the_tree",
            sigterm_after_a_pending_detach_ends_the_tree,
        ),
        trial("detaching::refused", refused),
    ]
}

/// Main function of an owner that detaches its command and exits. The owner prints the identity of its keeper, the
/// helper process that contains the command's process tree.
pub(crate) fn detach_and_end(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut next = || {
        args.next()
            .and_then(|arg| arg.into_string().ok())
            .expect("token, script and file")
    };
    let (token, script, file) = (next(), next(), next());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut call = run(shell(&script, &token, Containment::Keeper));
        call.read_until("ready").await;
        call.handle
            .detach(file.as_ref())
            .await
            .expect("it can be let go");
        assert!(matches!(
            call.handle.wait_empty().await,
            Err(ProcessWaitError::Detached)
        ));
        assert_eq!(call.output.read(&mut [0; 16]).await.expect("no error"), 0);
        call.driver
            .join_next()
            .await
            .expect("one driver")
            .expect("it ends");
        let keeper = call.handle.keeper_identity().expect("it has one");
        println!(
            "{}",
            serde_json::to_string(keeper).expect("it can be stored")
        );
    });
    ExitCode::SUCCESS
}

async fn detached(token: &str, script: &str, file: &std::path::Path) -> ProcessIdentity {
    let mut owner = Command::new(std::env::current_exe().expect("this binary has a path"));
    owner.args(["let-go-call", token, script]).arg(file);
    let output = tokio::process::Command::from(owner)
        .output()
        .await
        .expect("an owner");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("its keeper")
}

async fn outlives_its_owner_and_is_drained() {
    let token = token();
    let folder = tempfile::tempdir().expect("a folder");
    let (file, go) = (folder.path().join("output"), folder.path().join("go"));
    // After the owner has ended, the script prints more bytes than a pipe can hold.
    let script = format!(
        "sleep TOKEN & echo ready; while [ ! -e {} ]; do sleep 0.01; done; head -c 300000 /dev/zero; echo end; wait",
        go.display()
    );
    let keeper = detached(&token, &script, &file).await;
    assert!(is_alive(&keeper));
    let lock = || std::fs::File::open(&file).expect("a file").try_lock();
    assert!(lock().is_err(), "the keeper uses the file");
    wait_until("it sleeps", SOON, || sleepers(&token) == 1).await;
    std::fs::write(&go, "").expect("a file");
    let printed = || std::fs::read(&file).unwrap_or_default();
    wait_until("all is in the file", SOON, || printed().ends_with(b"end\n")).await;
    assert_eq!(printed().len(), 300_004);
    // When the tree ends, the keeper exits without a signal.
    let (sleeper, _) = running(&token)
        .into_iter()
        .find(|(_, line)| line.starts_with("sleep "))
        .expect("it sleeps");
    crate::support::kill(sleeper, rustix::process::Signal::TERM);
    wait_until("the keeper has ended", SOON, || {
        !is_alive(&keeper) && running(&token).is_empty()
    })
    .await;
    lock().expect("the file is free after the end of the keeper");
}

async fn output_is_capped() {
    let token = token();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("output");
    let script = "echo ready; head -c 80000000 /dev/zero; exec sleep TOKEN";
    let keeper = detached(&token, script, &file).await;
    wait_until("it is not held up by the cap", SOON * 5, || {
        sleepers(&token) == 1
    })
    .await;
    let len = std::fs::metadata(&file).expect("it is there").len();
    let max = allstop_process::DETACHED_OUTPUT_BYTES_MAX;
    assert!((max..max + 100).contains(&len), "{len}");
    signal(&keeper, ProcessSignal::Term).expect("it is there");
    wait_until("all is gone", SOON, || running(&token).is_empty()).await;
}

async fn deaf_tree_ends_with_its_keeper() {
    let token = token();
    let folder = tempfile::tempdir().expect("a folder");
    let script = r#"trap "" TERM; setsid sleep TOKEN & echo ready; wait"#;
    let keeper = detached(&token, script, &folder.path().join("output")).await;
    signal(&keeper, ProcessSignal::Term).expect("it is there");
    // The tree ignores SIGTERM. SIGKILL follows after the grace.
    wait_until("all is gone", SOON, || {
        running(&token).is_empty() && !is_alive(&keeper)
    })
    .await;
    assert!(
        signal(&keeper, ProcessSignal::Term).is_err(),
        "it is gone, whoever has its pid"
    );
}

/// The keeper is suspended while it gets a request to detach and then a SIGTERM. When the keeper continues, it finds
/// both.
async fn sigterm_after_a_pending_detach_ends_the_tree() {
    let token = token();
    let folder = tempfile::tempdir().expect("a folder");
    let script = "sleep TOKEN & echo ready; wait";
    let (handle, driver, output) =
        launch(shell(script, &token, Containment::Keeper)).expect("it starts");
    let mut driver = pin!(driver);
    let mut call = Running {
        handle,
        output,
        driver: JoinSet::new(),
    };
    tokio::select! {
        () = &mut driver => panic!("the command runs"),
        () = call.read_until("ready") => {}
    }
    let keeper = call.handle.keeper_identity().expect("it has one").clone();
    let send = |signal| {
        let pid = i32::try_from(keeper.pid).expect("a pid");
        let pid = Pid::from_raw(pid).expect("a pid");
        kill_process(pid, signal).expect("it is there");
    };
    send(Signal::STOP);
    let output = folder.path().join("output");
    let mut detaching = pin!(call.handle.detach(&output));
    assert!(poll!(&mut detaching).is_pending(), "the driver is asked");
    assert!(poll!(&mut driver).is_pending(), "the keeper is asked");
    send(Signal::TERM);
    send(Signal::CONT);
    driver.await;
    detaching.await.expect("it can be detached");
    wait_until("all is gone", SOON, || {
        running(&token).is_empty() && !is_alive(&keeper)
    })
    .await;
}

/// The keeper was killed, and its shell was killed too. The process that the shell had started is still running, and
/// only the marker identifies this process.
async fn reattached_without_its_keeper() {
    let token = token();
    let folder = tempfile::tempdir().expect("a folder");
    let mut call = run(shell(
        "setsid sleep TOKEN & echo ready; wait",
        &token,
        Containment::Keeper,
    ));
    call.read_until("ready").await;
    wait_until("it sleeps", SOON, || sleepers(&token) == 1).await;
    let output = folder.path().join("output");
    call.handle.detach(&output).await.expect("it can be let go");
    let main = call.handle.identity().expect("it has started");
    let keeper = call.handle.keeper_identity().expect("it has one").clone();
    let marker = call.handle.marker().clone();
    assert_eq!(survivor(&main, Some(&keeper), None), Some(keeper.clone()));
    signal(&keeper, ProcessSignal::Kill).expect("it is there");
    wait_until("the shell is gone", SOON, || {
        !is_alive(&keeper) && !is_alive(&main)
    })
    .await;

    assert_eq!(survivor(&main, Some(&keeper), None), None);
    let left = survivor(&main, Some(&keeper), Some(&*marker)).expect("it sleeps");
    assert_eq!(running(&token)[0].0, left.pid);
    let found = reattach(&main, Some(&keeper), Some(&marker));
    let (handle, driver) = found.expect("its marker tells it");
    let mut tasks = JoinSet::new();
    tasks.spawn(driver);
    handle.force();
    assert_eq!(
        handle.wait_empty().await.expect("it is watched"),
        proof(Containment::GroupAndMarker)
    );
    assert!(running(&token).is_empty());
    assert_eq!(survivor(&main, Some(&keeper), Some(&*marker)), None);
    let gone = reattach(&main, Some(&keeper), Some(&marker));
    assert_eq!(gone.err(), Some(ReattachError::Gone));
}

async fn refused() {
    let token = token();
    let mut call = run(shell(
        "sleep TOKEN & echo ready; wait",
        &token,
        Containment::Keeper,
    ));
    call.read_until("ready").await;
    let refusal = call
        .handle
        .detach("/nowhere/at/all".as_ref())
        .await
        .expect_err("there is no such folder");
    assert!(
        matches!(refusal, DetachTreeError::OutputFile { .. }),
        "{refusal}"
    );
    // The containment of the tree has not changed.
    let (verified, _) = call.force_and_wait().await;
    assert_eq!(verified, proof(Containment::Keeper));
    let after = call
        .handle
        .detach("/tmp/never".as_ref())
        .await
        .expect_err("it has ended");
    assert!(matches!(after, DetachTreeError::NotRunning), "{after}");

    let mut call = run(shell(
        "sleep TOKEN & echo ready; wait",
        &token,
        Containment::GroupAndMarker,
    ));
    call.read_until("ready").await;
    let refusal = call
        .handle
        .detach("/tmp/never".as_ref())
        .await
        .expect_err("it has no keeper");
    assert!(matches!(refusal, DetachTreeError::NeedsKeeper), "{refusal}");
    let _ = call.force_and_wait().await;
}
