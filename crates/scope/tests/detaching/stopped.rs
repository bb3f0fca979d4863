//! The test, and its keeper.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::receipt::{EndProof, ItemKind, ItemState};
use allstop_core::{Cause, CauseKind, Extent};
use allstop_process::{
    ContainmentChoice, KeeperProgram, Keepers, ProcessSignal, ProcessSpec, identity_of, is_alive,
    signal,
};
use allstop_scope::{RootOptions, Scope, StopRequest, WorkSpec};
use libtest_mimic::Trial;

/// First argument of this binary as a keeper.
pub(crate) const KEEPER: &str = "keep-call";

const SOON: Duration = Duration::from_secs(3);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("stop_names_a_process_that_is_detached_meanwhile", || {
            Box::pin(stop_names_a_process_that_is_detached_meanwhile())
        }),
        trial("keeper_of_the_scope_ends_a_process_that_escapes", || {
            Box::pin(keeper_of_the_scope_ends_a_process_that_escapes())
        }),
    ]
}

type Test = Pin<Box<dyn Future<Output = ()>>>;

fn trial(name: &str, test: fn() -> Test) -> Trial {
    Trial::test(name, move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(test());
        Ok(())
    })
}

/// Regression: a process did not get the containment of its scope.
async fn keeper_of_the_scope_ends_a_process_that_escapes() {
    let options = RootOptions::single_runtime().containment(ContainmentChoice::Keeper(keepers()));
    let scope = Scope::root("test", options);
    let script = "env -i setsid -f sh -c 'echo $$; exec sleep 600 >/dev/null 2>&1'; sleep 600";
    let marker = format!("escaping-{}", std::process::id());
    let spec = ProcessSpec::new("sh", marker).args(["-c", script]);
    let work = WorkSpec::new(ItemKind::Process, "sh");
    let (_process, mut output) = scope.spawn_process(work, spec).expect("it starts");
    let mut buffer = [0; 32];
    let len = output.read(&mut buffer).await.expect("it prints");
    let pid = String::from_utf8_lossy(&buffer[..len]);
    let pid = pid.trim().parse().expect("a process id");
    let escaped = identity_of(pid).expect("it runs");
    let by_user = StopRequest::new(Extent::Process, Cause::new(CauseKind::User));
    let receipt = scope.stop(by_user.grace(Duration::ZERO)).await;
    assert!(receipt.quiet(), "{receipt:?}");
    let ItemState::Stopped { evidence, .. } = &receipt.items()[0].state else {
        panic!("{receipt:?}");
    };
    assert_eq!(evidence.proof(), Some(EndProof::ProcessTreeEmpty));
    assert!(!is_alive(&escaped));
}

fn keepers() -> Arc<Keepers> {
    Keepers::new(KeeperProgram {
        executable: std::env::current_exe().expect("the path of this binary"),
        args: vec![KEEPER.into()],
    })
}

/// The process ignores SIGTERM, and is detached while the stop waits for its end. The receipt of the stop lists the
/// process.
async fn stop_names_a_process_that_is_detached_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let scope = Scope::root("test", RootOptions::single_runtime());
    let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let spec = ProcessSpec::new("sh", format!("detaching-{}", std::process::id()))
        .args(["-c", script])
        .cwd("/")
        .containment(ContainmentChoice::Keeper(keepers()));
    let work = WorkSpec::new(ItemKind::Process, "deaf");
    let (process, mut output) = scope.spawn_process(work, spec).expect("it starts");
    let mut buffer = [0; 64];
    assert!(output.read(&mut buffer).await.expect("it prints") > 0);
    let by_user = StopRequest::new(Extent::Process, Cause::new(CauseKind::User));
    let stop = scope.stop(by_user.grace(SOON));
    let keeper = process.handle().keeper_identity().cloned();
    let keeper = keeper.expect("it has one");
    process
        .detach(&folder.path().join("out"))
        .await
        .expect("it is detached");
    let receipt = stop.receipt().await;
    assert!(!receipt.quiet(), "{receipt:?}");
    assert_eq!(receipt.items().len(), 1, "{receipt:?}");
    assert_eq!(receipt.items()[0].state.as_str(), "still_running");
    assert!(is_alive(&keeper));
    signal(&keeper, ProcessSignal::Term).expect("it is there");
    let start = Instant::now();
    while is_alive(&keeper) {
        assert!(start.elapsed() < SOON, "its keeper does not end");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
