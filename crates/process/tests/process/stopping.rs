//! Process trees that end after SIGTERM, after SIGKILL, and without a signal. Also tests which processes belong to a
//! tree.

use std::time::Duration;

use allstop_core::receipt::{Containment, EndMethod};
use allstop_process::{ExitInfo, ProcessWaitError, identity_of, is_alive};
use libtest_mimic::Trial;

use crate::support::{
    assert_nothing_runs, on_both_levels, proof, run, running, shell, sleepers, token, trial,
    wait_until,
};

/// Time limit for the kill of a tree in a stop. A kill must take much less time.
const FORCE_MAX: Duration = Duration::from_secs(1);

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial(
            "stopping::double_fork_with_empty_environment",
            double_fork_with_empty_environment,
        ),
        trial(
            "stopping::a_terminal_is_out_of_reach",
            a_terminal_is_out_of_reach,
        ),
    ];
    trials.extend(on_both_levels("stopping::ends_by_itself", ends_by_itself));
    trials.extend(on_both_levels("stopping::asked_is_enough", asked_is_enough));
    trials.extend(on_both_levels(
        "stopping::deaf_tree_is_forced",
        deaf_tree_is_forced,
    ));
    trials.extend(on_both_levels(
        "stopping::siblings_are_left_alone",
        siblings_are_left_alone,
    ));
    trials.extend(on_both_levels(
        "stopping::leftovers_stay_and_are_named",
        leftovers_stay_and_are_named,
    ));
    trials.extend(on_both_levels(
        "stopping::dropped_driver_kills",
        dropped_driver_kills,
    ));
    trials.extend(on_both_levels(
        "stopping::before_it_has_started",
        before_it_has_started,
    ));
    trials.extend(on_both_levels(
        "stopping::stopped_processes_hear_it",
        stopped_processes_hear_it,
    ));
    trials
}

async fn ends_by_itself(level: Containment) {
    let token = token();
    let mut call = run(shell(
        "echo $GREETING; echo error >&2; echo $ALLSTOP_CALL; exit 7 # TOKEN",
        &token,
        level,
    ));
    assert_eq!(
        call.read_all().await,
        format!("hello\nerror\ntest-{token}\n")
    );
    assert_eq!(
        call.handle.wait_exited().await.expect("watched"),
        ExitInfo::Code(7)
    );
    assert_eq!(
        call.handle.wait_empty().await.expect("watched"),
        proof(level)
    );
    assert_eq!(call.handle.strongest_signal(), None);
    assert_eq!(call.handle.containment(), level);
    let main = call.handle.identity().expect("it had started");
    assert!(!is_alive(&main));
    assert_nothing_runs(&token);
    // The process was reaped. It is not a zombie.
    assert_ne!(identity_of(main.pid), Some(main));
    // The driver ends when its tree has ended. A later stop changes nothing.
    call.driver
        .join_next()
        .await
        .expect("one driver")
        .expect("no panic");
    call.handle.force();
    assert_eq!(call.handle.strongest_signal(), None);
}

async fn asked_is_enough(level: Containment) {
    let token = token();
    let mut call = run(shell(
        "sleep TOKEN & sleep TOKEN & echo ready; wait",
        &token,
        level,
    ));
    call.read_until("ready").await;
    wait_until("both sleep", FORCE_MAX, || sleepers(&token) == 2).await;
    call.handle.ask();
    assert_eq!(
        call.handle.wait_empty().await.expect("watched"),
        proof(level)
    );
    assert_eq!(
        call.handle.wait_exited().await.expect("watched"),
        ExitInfo::Signal(15)
    );
    assert_eq!(call.handle.strongest_signal(), Some(EndMethod::Sigterm));
    assert_nothing_runs(&token);
}

async fn deaf_tree_is_forced(level: Containment) {
    let token = token();
    let script = r#"trap "" TERM; setsid sleep TOKEN & sleep TOKEN & echo ready; wait"#;
    let mut call = run(shell(script, &token, level));
    call.read_until("ready").await;
    wait_until("both sleep", FORCE_MAX, || sleepers(&token) == 2).await;
    call.handle.ask();
    // The shell ignores SIGTERM, and so do its children. The second call of `ask` makes sure that the first call has
    // been handled.
    call.handle.ask();
    assert_eq!(
        call.handle.members().await.len(),
        3,
        "{:?}",
        call.handle.members().await
    );
    let (verified, took) = call.force_and_wait().await;
    assert_eq!(verified, proof(level));
    assert!(took < FORCE_MAX / 2, "{took:?}");
    assert_eq!(call.handle.strongest_signal(), Some(EndMethod::Sigkill));
    assert_nothing_runs(&token);
}

/// A process without a parent that has left its group, its session and its environment. Only a keeper can contain it.
async fn double_fork_with_empty_environment() {
    let token = token();
    let script = "(setsid env -i sh -c 'trap \"\" TERM; sleep TOKEN & wait' &) ; echo gone";
    let mut call = run(shell(script, &token, Containment::Keeper));
    assert_eq!(call.read_all().await, "gone\n");
    assert_eq!(
        call.handle.wait_exited().await.expect("watched"),
        ExitInfo::Code(0)
    );
    wait_until("it sleeps", FORCE_MAX, || sleepers(&token) == 1).await;
    assert!(call.handle.emptiness().is_none());
    let (verified, took) = call.force_and_wait().await;
    assert_eq!(verified, proof(Containment::Keeper));
    assert!(took < FORCE_MAX / 2, "{took:?}");
    assert_nothing_runs(&token);
}

async fn a_terminal_is_out_of_reach() {
    let token = token();
    let script =
        "(: < /dev/tty) 2>/dev/null && echo tty; ps -o sid= -p $$ | tr -d ' '; echo $$; # TOKEN";
    let mut call = run(shell(script, &token, Containment::Keeper));
    let printed = call.read_all().await;
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed:?}");
    assert_eq!(lines[0], lines[1], "the command leads a session of its own");
    let _empty = call.handle.wait_empty().await.expect("watched");
}

async fn siblings_are_left_alone(level: Containment) {
    let (one, two) = (token(), token());
    let script = "(setsid sleep TOKEN &); sleep TOKEN & echo ready; wait";
    let mut first = run(shell(script, &one, level));
    let mut second = run(shell(script, &two, level));
    first.read_until("ready").await;
    second.read_until("ready").await;
    wait_until("all sleep", FORCE_MAX, || {
        sleepers(&one) == 2 && sleepers(&two) == 2
    })
    .await;
    let (verified, _) = first.force_and_wait().await;
    assert_eq!(verified, proof(level));
    assert_nothing_runs(&one);
    assert_eq!(sleepers(&two), 2, "{:?}", running(&two));
    assert_eq!(
        second.handle.members().await.len(),
        3,
        "{:?}",
        second.handle.members().await
    );
    assert!(second.handle.emptiness().is_none());
    let _ = second.force_and_wait().await;
    assert_nothing_runs(&two);
}

async fn leftovers_stay_and_are_named(level: Containment) {
    let token = token();
    let mut call = run(shell(
        "sleep TOKEN >/dev/null 2>&1 & echo started",
        &token,
        level,
    ));
    assert_eq!(call.read_all().await, "started\n");
    assert_eq!(
        call.handle.wait_exited().await.expect("watched"),
        ExitInfo::Code(0)
    );
    wait_until("it sleeps", FORCE_MAX, || sleepers(&token) == 1).await;
    let members = call.handle.members().await;
    assert_eq!(members.len(), 1, "{members:?}");
    assert_eq!(members[0].command_line, format!("sleep {token}"));
    assert!(is_alive(&members[0].identity));
    assert_eq!(
        identity_of(members[0].identity.pid),
        Some(members[0].identity.clone())
    );
    // The tree ends without a signal from the handle. The handle still reports that the tree is empty.
    allstop_process::signal(&members[0].identity, allstop_process::ProcessSignal::Term)
        .expect("it is there");
    assert_eq!(
        call.handle.wait_empty().await.expect("watched"),
        proof(level)
    );
    assert_eq!(call.handle.strongest_signal(), None);
    assert!(!is_alive(&members[0].identity));
    assert_nothing_runs(&token);
}

async fn dropped_driver_kills(level: Containment) {
    let token = token();
    let mut call = run(shell(
        "setsid sleep TOKEN & sleep TOKEN & echo ready; wait",
        &token,
        level,
    ));
    call.read_until("ready").await;
    wait_until("both sleep", FORCE_MAX, || sleepers(&token) == 2).await;
    call.driver.shutdown().await;
    assert!(matches!(
        call.handle.wait_empty().await,
        Err(ProcessWaitError::WatcherGone)
    ));
    wait_until("all are gone", FORCE_MAX, || running(&token).is_empty()).await;
}

async fn before_it_has_started(level: Containment) {
    let token = token();
    for _ in 0..20 {
        let mut call = run(shell("sleep TOKEN", &token, level));
        let (verified, took) = call.force_and_wait().await;
        assert_eq!(verified, proof(level));
        assert!(took < FORCE_MAX, "{took:?}");
        assert_nothing_runs(&token);
    }
}

async fn stopped_processes_hear_it(level: Containment) {
    let token = token();
    let mut call = run(shell(
        "sleep TOKEN & echo ready; kill -STOP $! $$; wait",
        &token,
        level,
    ));
    call.read_until("ready").await;
    let is_stopped = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    };
    let stopped = || {
        running(&token)
            .iter()
            .filter(|(pid, _)| is_stopped(pid))
            .count()
    };
    wait_until("both are stopped", FORCE_MAX, || stopped() == 2).await;
    call.handle.ask();
    assert_eq!(
        call.handle.wait_empty().await.expect("watched"),
        proof(level)
    );
    assert_eq!(call.handle.strongest_signal(), Some(EndMethod::Sigterm));
    assert_nothing_runs(&token);
}
