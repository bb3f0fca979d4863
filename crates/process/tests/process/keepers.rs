//! Keepers (helper processes that contain process trees) that serve one call after another. If a keeper is killed, the
//! test process adopts its processes.

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{Containment, EndMethod, EndProof};
use allstop_process::{ContainmentChoice, ExitInfo, Keepers, ProcessSpec, is_alive};
use libtest_mimic::Trial;
use rustix::process::Signal;

use crate::support::{
    Running, assert_nothing_runs, keeper_program, kill, run, shell, sleepers, token, trial,
    wait_until,
};

/// Time limit for operations that take milliseconds.
const SOON: Duration = Duration::from_secs(5);

/// Script whose processes leave their group, their session and their environment. The script then kills its keeper.
const ESCAPES: &str = "setsid env -i sleep TOKEN & (setsid sh -c 'sleep TOKEN; :' &); echo away; kill -9 $PPID; sleep TOKEN";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "keepers::one_serves_call_after_call",
            one_serves_call_after_call,
        ),
        trial(
            "keepers::calls_at_once_have_one_each",
            calls_at_once_have_one_each,
        ),
        trial("keepers::idle_ones_are_few", idle_ones_are_few),
        trial(
            "keepers::a_killed_idle_one_is_replaced",
            a_killed_idle_one_is_replaced,
        ),
        trial(
            "keepers::closing_ends_the_idle_ones",
            closing_ends_the_idle_ones,
        ),
        trial(
            "keepers::a_call_has_its_own_environment",
            a_call_has_its_own_environment,
        ),
        trial(
            "keepers::variables_are_hidden_without_a_keeper_too",
            variables_are_hidden_without_a_keeper_too,
        ),
        trial(
            "keepers::a_late_force_spares_the_next_call",
            a_late_force_spares_the_next_call,
        ),
        trial(
            "keepers::orphans_are_adopted_and_ended",
            orphans_are_adopted_and_ended,
        ),
        trial(
            "keepers::tree_ends_at_a_deadline_that_is_not_postponed",
            tree_ends_at_a_deadline_that_is_not_postponed,
        ),
        trial("keepers::orphans_of_two_calls", orphans_of_two_calls),
        trial(
            "keepers::children_of_others_are_spared",
            children_of_others_are_spared,
        ),
        trial(
            "keepers::inherited_children_are_spared",
            inherited_children_are_spared,
        ),
    ]
}

fn with(keepers: &Arc<Keepers>, script: &str, token: &str) -> ProcessSpec {
    let mut spec = shell(script, token, Containment::Keeper)
        .containment(ContainmentChoice::Keeper(Arc::clone(keepers)));
    // A new token, because two calls of a test have the same token.
    spec.marker = crate::support::token().into();
    spec
}

fn keeper_of(call: &Running) -> ProcessIdentity {
    call.handle.keeper_identity().expect("it has one").clone()
}

/// Waits until the driver has ended, which makes the keeper idle.
async fn over(mut call: Running) {
    call.handle.wait_empty().await.expect("watched");
    while call.driver.join_next().await.is_some() {}
}

async fn one_serves_call_after_call() {
    let (keepers, token) = (Keepers::new(keeper_program()), token());
    let mut first = None;
    for number in 0..5 {
        let mut call = run(with(
            &keepers,
            &format!("echo {number}; exit {number}"),
            &token,
        ));
        assert_eq!(call.read_all().await, format!("{number}\n"));
        let exit = call.handle.wait_exited().await.expect("watched");
        assert_eq!(exit, ExitInfo::Code(number));
        let keeper = keeper_of(&call);
        assert_eq!(*first.get_or_insert_with(|| keeper.clone()), keeper);
        let verified = call.handle.wait_empty().await.expect("watched");
        assert_eq!(verified, EndProof::ProcessTreeEmpty);
        over(call).await;
    }
    // A call of `force` ends the tree, but not the keeper.
    let mut deaf = run(with(
        &keepers,
        r#"trap "" TERM; echo ready; sleep TOKEN & wait"#,
        &token,
    ));
    deaf.read_until("ready").await;
    deaf.force_and_wait().await;
    assert_nothing_runs(&token);
    over(deaf).await;
    let after = run(with(&keepers, "true", &token));
    assert_eq!(Some(keeper_of(&after)), first);
    over(after).await;
}

/// The owner only waits, like an owner that has been paused.
async fn tree_ends_at_a_deadline_that_is_not_postponed() {
    let (keepers, token) = (Keepers::new(keeper_program()), token());
    let put_off = |left| keepers.postpone_deadline(left).expect("there is memory");
    put_off(Duration::from_millis(200));
    let script = r#"trap "" TERM; echo ready; setsid sleep TOKEN & sleep TOKEN"#;
    let mut deaf = run(with(&keepers, script, &token));
    deaf.read_until("ready").await;
    // The deadline is postponed before it passes. From then on, the new deadline applies to this tree too.
    put_off(Duration::from_mins(10));
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(sleepers(&token) > 0, "its deadline was put off");
    put_off(Duration::from_millis(50));
    let verified = deaf.handle.wait_empty().await.expect("watched");
    assert_eq!(verified, EndProof::ProcessTreeEmpty);
    assert_nothing_runs(&token);
    // The end is not the effect of a later stop.
    deaf.handle.ask();
    let status = deaf.handle.status().borrow().clone();
    let how = status.ended_by(deaf.handle.strongest_signal());
    assert_eq!(how, Some(EndMethod::Sigkill));
    assert!(
        status
            .evidence_note()
            .is_some_and(|note| note.contains("deadline"))
    );
    over(deaf).await;
}

async fn calls_at_once_have_one_each() {
    let (keepers, token) = (Keepers::new(keeper_program()), token());
    let one = run(with(&keepers, "sleep TOKEN", &token));
    let other = run(with(&keepers, "sleep TOKEN", &token));
    assert_ne!(keeper_of(&one), keeper_of(&other));
    one.handle.force();
    one.handle.wait_empty().await.expect("watched");
    wait_until("the other sleeps on", SOON, || sleepers(&token) == 1).await;
    other.handle.force();
    other.handle.wait_empty().await.expect("watched");
    assert_nothing_runs(&token);
}

async fn idle_ones_are_few() {
    let (keepers, token) = (Keepers::new(keeper_program()), token());
    let calls: Vec<_> = (0..10)
        .map(|_| run(with(&keepers, "sleep 0.2", &token)))
        .collect();
    // If a call ended while other calls were still being launched, its keeper has served two calls.
    let all: HashSet<_> = calls.iter().map(keeper_of).collect();
    assert!(all.len() > 4, "{all:?}");
    for call in calls {
        over(call).await;
    }
    let living = || all.iter().filter(|keeper| is_alive(keeper)).count();
    wait_until("most have ended", SOON, || living() <= 4).await;
    drop(keepers);
    wait_until("all have ended", SOON, || living() == 0).await;
}

async fn a_killed_idle_one_is_replaced() {
    let (keepers, token) = (Keepers::new(keeper_program()), token());
    let call = run(with(&keepers, "true", &token));
    let keeper = keeper_of(&call);
    over(call).await;
    kill(keeper.pid, Signal::KILL);
    wait_until("it has ended", SOON, || !is_alive(&keeper)).await;
    let mut next = run(with(&keepers, "echo up", &token));
    assert_eq!(next.read_all().await, "up\n");
    assert_ne!(keeper_of(&next), keeper);
}

async fn closing_ends_the_idle_ones() {
    let (keepers, token) = (Keepers::new(keeper_program()), token());
    let call = run(with(&keepers, "true", &token));
    let keeper = keeper_of(&call);
    over(call).await;
    assert!(is_alive(&keeper), "it is kept");
    keepers.close();
    assert!(!is_alive(&keeper));
    // A later call still gets a keeper, but this keeper exits after the call.
    let late = run(with(&keepers, "true", &token));
    let keeper = keeper_of(&late);
    over(late).await;
    wait_until("it has ended", SOON, || !is_alive(&keeper)).await;
}

async fn variables_are_hidden_without_a_keeper_too() {
    let token = token();
    let script = "export -p | grep -c '^export PATH='";
    let mut spec = shell(script, &token, Containment::Keeper)
        .env_hidden(["PATH"])
        .containment(ContainmentChoice::GroupAndMarker);
    spec.program = "/bin/sh".into();
    let mut call = run(spec);
    assert_eq!(call.read_all().await, "0\n");
    over(call).await;
}

async fn a_call_has_its_own_environment() {
    let (keepers, token) = (Keepers::new(keeper_program()), token());
    let spec = |script: &str, marker: &str| {
        let mut spec = with(&keepers, script, &token)
            .env("ONLY_HERE", marker)
            .env_hidden(["PATH"]);
        spec.marker = marker.into();
        spec.program = "/bin/sh".into();
        spec
    };
    let script = "echo $ALLSTOP_CALL $ONLY_HERE; export -p | grep -c '^export PATH='; pwd";
    let mut one = run(spec(script, "one").cwd("/proc"));
    assert_eq!(one.read_all().await, "one one\n0\n/proc\n");
    over(one).await;
    let mut without_variable = spec(script, "two");
    without_variable.env.clear();
    let mut two = run(without_variable);
    assert_eq!(two.read_all().await, "two\n0\n/\n");
}

/// A signal for a call that has just ended never reaches the next call of the same keeper.
async fn a_late_force_spares_the_next_call() {
    let (keepers, token) = (Keepers::new(keeper_program()), token());
    for _ in 0..100 {
        let ended = run(with(&keepers, "true", &token));
        let late = ended.handle.clone();
        let mut forcing = tokio::task::JoinSet::new();
        forcing.spawn(async move {
            while late.emptiness().is_none() {
                late.force();
                tokio::task::yield_now().await;
            }
        });
        over(ended).await;
        let next = run(with(&keepers, "exit 7", &token));
        let exit = next.handle.wait_exited().await.expect("watched");
        assert_eq!(exit, ExitInfo::Code(7));
        forcing.join_all().await;
        over(next).await;
    }
}

fn adopting() -> Arc<Keepers> {
    Keepers::with_subreaper(keeper_program()).expect("this process can be a subreaper")
}

async fn orphans_are_adopted_and_ended() {
    let (keepers, token) = (adopting(), token());
    let mut call = run(with(&keepers, ESCAPES, &token));
    call.read_until("away").await;
    let verified = call.handle.wait_empty().await.expect("watched");
    assert_eq!(verified, EndProof::ProcessTreeEmpty);
    let status = call.handle.status().borrow().clone();
    // The list is empty if the keeper was killed before it reported the start of the command.
    assert_eq!(
        status.exited.unwrap_or(ExitInfo::Unknown),
        ExitInfo::Unknown
    );
    assert!(status.keeper_lost);
    assert_nothing_runs(&token);
}

async fn orphans_of_two_calls() {
    let (keepers, token) = (adopting(), token());
    let healthy = run(with(&keepers, "sleep TOKEN5", &token));
    let calls = [0, 1].map(|_| run(with(&keepers, ESCAPES, &token)));
    for call in &calls {
        let verified = call.handle.wait_empty().await.expect("watched");
        assert_eq!(verified, EndProof::ProcessTreeEmpty);
    }
    // The processes of a tree with a living keeper are not killed.
    let left = crate::support::running(&token);
    assert!(
        left.iter()
            .all(|(_, line)| line.contains(&format!("{token}5"))),
        "{left:?}"
    );
    assert!(!healthy.handle.members().await.is_empty());
    healthy.handle.force();
    healthy.handle.wait_empty().await.expect("watched");
    assert_nothing_runs(&token);
}

/// Regression: children that the process had before an `exec` were killed as if they had been adopted.
async fn inherited_children_are_spared() {
    let mut command = Command::new("setsid");
    let mut inherited = command
        .arg("sleep")
        .arg("600")
        .spawn()
        .expect("a child in a session of its own");
    let pid = inherited.id();
    wait_until("it has its session", SOON, || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains("(sleep)"))
    })
    .await;
    let (keepers, token) = (adopting(), token());
    let call = run(with(&keepers, ESCAPES, &token));
    call.handle.wait_empty().await.expect("watched");
    assert_nothing_runs(&token);
    assert_eq!(
        inherited.try_wait().expect("nobody else has reaped it"),
        None
    );
    inherited.kill().expect("it runs");
    inherited.wait().expect("nobody else has reaped it");
}

async fn children_of_others_are_spared() {
    let (keepers, token) = (adopting(), token());
    let mut own = Command::new("sh");
    let own = own.args(["-c", "read line; exit 7"]).stdin(Stdio::piped());
    let mut own = own.spawn().expect("a child of this process");
    let mut done = Command::new("true").spawn().expect("another one");
    let call = run(with(&keepers, ESCAPES, &token));
    call.handle.wait_empty().await.expect("watched");
    assert_nothing_runs(&token);
    drop(own.stdin.take());
    assert_eq!(
        own.wait().expect("nobody else has reaped it").code(),
        Some(7)
    );
    assert_eq!(
        done.wait().expect("nobody else has reaped it").code(),
        Some(0)
    );
}
