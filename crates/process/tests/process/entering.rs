//! Processes that enter a PID namespace that does not belong to their call. The first process of that namespace adopts
//! their orphaned children.

use std::process::{Child, Command};
use std::time::Duration;

use allstop_core::receipt::{Containment, EndProof};
use allstop_process::SearchReason;
use libtest_mimic::Trial;
use rustix::process::Signal;

use crate::support::{
    assert_nothing_runs, kill, proof, run, running, shell, sleepers, token, trial, wait_until,
};

const SOON: Duration = Duration::from_secs(5);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "entering::orphans_are_found_by_their_marker",
            orphans_are_found_by_their_marker,
        ),
        trial(
            "entering::a_process_that_was_seen_there_lowers_the_evidence",
            a_process_that_was_seen_there_lowers_the_evidence,
        ),
        trial(
            "entering::a_namespace_of_the_call_is_part_of_its_tree",
            a_namespace_of_the_call_is_part_of_its_tree,
        ),
    ]
}

/// A namespace that ends when this value is dropped.
struct Namespace {
    starter: Child,
    first: u32,
}

impl Namespace {
    async fn begin() -> Self {
        let mut starter = Command::new("unshare");
        starter.args("--user --map-root-user --pid --fork --kill-child sleep 600".split(' '));
        let starter = starter.spawn().expect("util-linux is installed");
        let children = format!("/proc/{0}/task/{0}/children", starter.id());
        let mut first = None;
        wait_until("it has a process", SOON, || {
            let children = std::fs::read_to_string(&children).unwrap_or_default();
            first = children.trim().parse().ok();
            first.is_some()
        })
        .await;
        let first = first.expect("it was found");
        Self { starter, first }
    }

    fn enter(&self) -> String {
        let first = self.first;
        format!("nsenter --target {first} --user --preserve-credentials --pid")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let ended = self.starter.kill().and_then(|()| self.starter.wait());
        ended.expect("it was a child");
    }
}

/// Regression: the library reported a proof that the tree was empty, but the orphan was still running.
async fn orphans_are_found_by_their_marker() {
    let (namespace, token) = (Namespace::begin().await, token());
    let script = format!(
        "{} sh -c 'setsid sleep TOKEN & exit 0'; echo ready; sleep TOKEN",
        namespace.enter()
    );
    let mut call = run(shell(&script, &token, Containment::Keeper));
    call.read_until("ready").await;
    wait_until("both sleep", SOON, || sleepers(&token) == 2).await;
    let (verified, _) = call.force_and_wait().await;
    assert_eq!(verified, EndProof::ProcessGroupEmpty);
    let searched = call.handle.status().borrow().searched;
    assert_eq!(searched, Some(SearchReason::Strays));
    assert_nothing_runs(&token);
}

async fn a_process_that_was_seen_there_lowers_the_evidence() {
    let (namespace, token) = (Namespace::begin().await, token());
    let script = format!(
        "{} sh -c 'trap \"\" TERM; env -i setsid /bin/sleep TOKEN & trap - TERM; echo ready; wait'",
        namespace.enter()
    );
    let mut call = run(shell(&script, &token, Containment::Keeper));
    call.read_until("ready").await;
    wait_until("it sleeps", SOON, || {
        running(&token)
            .iter()
            .any(|(_, line)| line.starts_with("/bin/sleep"))
    })
    .await;
    call.handle.ask();
    let verified = call.handle.wait_empty().await.expect("watched");
    assert_eq!(verified, EndProof::ProcessGroupEmpty);
    let searched = call.handle.status().borrow().searched;
    assert_eq!(searched, Some(SearchReason::Entered));
    // The weaker proof does not include these processes, so the test kills them.
    for (pid, _) in running(&token) {
        kill(pid, Signal::KILL);
    }
}

async fn a_namespace_of_the_call_is_part_of_its_tree() {
    let token = token();
    let script = "unshare --user --map-root-user --pid --fork sh -c '(setsid env -i /bin/sleep TOKEN &) ; echo ready; sleep TOKEN; :'";
    let mut call = run(shell(script, &token, Containment::Keeper));
    call.read_until("ready").await;
    wait_until("it sleeps", SOON, || sleepers(&token) == 1).await;
    let (verified, _) = call.force_and_wait().await;
    assert_eq!(verified, proof(Containment::Keeper));
    assert_nothing_runs(&token);
}
