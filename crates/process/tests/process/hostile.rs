//! Trees of processes that try to survive a kill.

use std::time::Duration;

use allstop_core::receipt::Containment;
use libtest_mimic::Trial;

use crate::support::{
    assert_nothing_runs, on_both_levels, proof, run, shell, token, trial, wait_until,
};

/// On an otherwise idle machine with two cores, a keeper needs 10 to 200 ms to kill each of these trees. A sweep needs
/// up to a second. But a fork bomb takes processor time from all other processes, including tests that run at the same
/// time. So the tests only check that the tree ends at all.
const CONVERGES_MAX: Duration = Duration::from_secs(15);

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("hostile::chain_of_new_sessions", chain_of_new_sessions),
        trial("hostile::many_processes", many_processes),
    ];
    trials.extend(on_both_levels(
        "hostile::short_lived_children",
        short_lived_children,
    ));
    trials.extend(on_both_levels("hostile::growing_bomb", growing_bomb));
    trials.extend(on_both_levels(
        "hostile::chain_that_never_stays",
        chain_that_never_stays,
    ));
    trials.extend(on_both_levels(
        "hostile::leaves_twice_while_it_is_looked_for",
        leaves_twice_while_it_is_looked_for,
    ));
    trials
}

/// Several long-lived processes, which all keep starting children that end at once.
async fn short_lived_children(level: Containment) {
    let token = token();
    let script = r#"trap "" TERM; : TOKEN; f() { echo up; while :; do (:) & (sh -c : TOKEN) & wait; done; }; f & f & f & f"#;
    let mut call = run(shell(script, &token, level));
    call.read_until("up").await;
    let (verified, took) = call.force_and_wait().await;
    assert_eq!(verified, proof(level));
    assert!(took < CONVERGES_MAX, "{took:?}");
    assert_nothing_runs(&token);
}

/// Every process starts two more. The depth is limited, so that there are at most 2,000 processes, and the machine
/// survives if the test fails.
async fn growing_bomb(level: Containment) {
    let token = token();
    let script = r#"trap "" TERM; : TOKEN; b() { [ $1 -gt 0 ] || { echo deep; sleep TOKEN; return; }; b $(($1-1)) & b $(($1-1)) & wait; }; b 9"#;
    let mut call = run(shell(script, &token, level));
    call.read_until("deep").await;
    let (verified, took) = call.force_and_wait().await;
    assert_eq!(verified, proof(level));
    assert!(took < CONVERGES_MAX, "{took:?}");
    assert_nothing_runs(&token);
}

/// A process that starts its successor and ends, and so on for ever. When a pid has been read from `/proc`, its process
/// has already ended.
async fn chain_that_never_stays(level: Containment) {
    let token = token();
    // Several chains run, so that at any time one of them is just changing from one process to the next.
    let script = r#"c() { (trap "" TERM; c) & }; : TOKEN; echo up; c; c; c; exit 0"#;
    let script = format!("ulimit -s 1024; {script}");
    let mut call = run(shell(&script, &token, level));
    call.read_until("up").await;
    let (verified, took) = call.force_and_wait().await;
    assert_eq!(verified, proof(level));
    assert!(took < CONVERGES_MAX, "{took:?}");
    assert_nothing_runs(&token);
}

/// The process leaves two sessions and loses its parents. Most of the time, it is in the middle of an exec, where it
/// has no environment that could identify it. The test is repeated many times, because the result depends on the moment
/// at which a sweep finds the process.
async fn leaves_twice_while_it_is_looked_for(level: Containment) {
    const TRIES: usize = 60;
    let mut tokens = Vec::new();
    for _ in 0..TRIES {
        let token = token();
        let script = "(setsid setsid sleep TOKEN &); exit 0";
        let mut call = run(shell(script, &token, level));
        let _code = call.handle.wait_exited().await.expect("it is watched");
        let (verified, _took) = call.force_and_wait().await;
        assert_eq!(verified, proof(level));
        tokens.push(token);
    }
    for token in &tokens {
        assert_nothing_runs(token);
    }
}

/// Like [`chain_that_never_stays`], but each process is in a new session, so that no group contains two processes.
async fn chain_of_new_sessions() {
    let token = token();
    let script = r#"hop='setsid sh -c "$HOP" TOKEN & exit 0'; HOP=$hop; export HOP; trap "" TERM; echo up; eval "$HOP""#;
    let mut call = run(shell(script, &token, Containment::Keeper));
    call.read_until("up").await;
    let (verified, took) = call.force_and_wait().await;
    assert_eq!(verified, proof(Containment::Keeper));
    assert!(took < CONVERGES_MAX, "{took:?}");
    wait_until("nothing is left", CONVERGES_MAX, || {
        crate::support::running(&token).is_empty()
    })
    .await;
}

async fn many_processes() {
    let token = token();
    let script =
        "i=0; while [ $i -lt 300 ]; do setsid sleep TOKEN & i=$((i+1)); done; echo up; wait";
    let mut call = run(shell(script, &token, Containment::Keeper));
    call.read_until("up").await;
    let (verified, took) = call.force_and_wait().await;
    assert_eq!(verified, proof(Containment::Keeper));
    assert!(took < CONVERGES_MAX, "{took:?}");
    assert_nothing_runs(&token);
}
