//! The output of commands: it is complete, in order, uses a limited amount of memory, and never delays a call.

use std::time::{Duration, Instant};

use allstop_core::receipt::Containment;
use allstop_process::ExitInfo;
use libtest_mimic::Trial;

use crate::support::{
    assert_nothing_runs, on_both_levels, proof, run, running, shell, sleepers, token, wait_until,
};

const SOON: Duration = Duration::from_secs(2);

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    trials.extend(on_both_levels(
        "printing::much_is_read_in_little_memory",
        much_is_read_in_little_memory,
    ));
    trials.extend(on_both_levels(
        "printing::unread_output_delays_no_kill",
        unread_output_delays_no_kill,
    ));
    trials.extend(on_both_levels(
        "printing::a_held_pipe_delays_nothing",
        a_held_pipe_delays_nothing,
    ));
    trials.extend(on_both_levels(
        "printing::endless_background_output",
        endless_background_output,
    ));
    trials.extend(on_both_levels(
        "printing::leftovers_can_be_read",
        leftovers_can_be_read,
    ));
    trials.extend(on_both_levels("printing::order_is_kept", order_is_kept));
    trials
}

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is /proc");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("a size");
    line.split_ascii_whitespace()
        .nth(1)
        .and_then(|size| size.parse().ok())
        .expect("a number")
}

async fn much_is_read_in_little_memory(level: Containment) {
    const BYTES: usize = 200 * 1024 * 1024;
    let token = token();
    let script = format!("head -c {BYTES} /dev/zero; exit 3 # TOKEN");
    let mut call = run(shell(&script, &token, level));
    let before = memory_kib();
    let mut buffer = vec![0; 64 * 1024];
    let mut total = 0;
    loop {
        match call.output.read(&mut buffer).await.expect("readable") {
            0 => break,
            len => total += len,
        }
    }
    assert_eq!(total, BYTES);
    let grown = memory_kib().saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB");
    assert_eq!(
        call.handle.wait_exited().await.expect("watched"),
        ExitInfo::Code(3)
    );
    assert_eq!(
        call.handle.wait_empty().await.expect("watched"),
        proof(level)
    );
}

async fn unread_output_delays_no_kill(level: Containment) {
    let token = token();
    let mut call = run(shell("exec yes TOKEN", &token, level));
    let main = call.handle.wait_started().await.expect("it starts");
    // `yes` is in the state "sleeping" only if the pipe is full.
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", main.pid)).unwrap_or_default();
    let is_yes = || {
        running(&token)
            .iter()
            .any(|(pid, line)| *pid == main.pid && line.starts_with("yes "))
    };
    wait_until("the pipe is full", SOON, || {
        is_yes() && state().contains(") S ")
    })
    .await;
    let (verified, took) = call.force_and_wait().await;
    assert_eq!(verified, proof(level));
    assert!(took < SOON / 4, "{took:?}");
    assert_nothing_runs(&token);
    // The bytes that are in the pipe can still be read. After them, the output ends.
    let printed = call.read_all().await;
    assert!(
        printed.len() >= 4096 && printed.starts_with(&token),
        "{}",
        printed.len()
    );
}

async fn a_held_pipe_delays_nothing(level: Containment) {
    let token = token();
    let script = "setsid sleep TOKEN & echo one; echo two >&2; head -c 50000 /dev/zero | tr '\\0' x; echo; echo end";
    let start = Instant::now();
    let mut call = run(shell(script, &token, level));
    // The test reads only after the shell has exited. So all output that it reads was in the pipe at the exit of the
    // shell.
    assert_eq!(
        call.handle.wait_exited().await.expect("watched"),
        ExitInfo::Code(0)
    );
    let printed = call.read_all().await;
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(printed, format!("one\ntwo\n{}\nend\n", "x".repeat(50_000)));
    wait_until("it sleeps", SOON, || sleepers(&token) == 1).await;
    let _ = call.force_and_wait().await;
    assert_nothing_runs(&token);
}

async fn endless_background_output(level: Containment) {
    /// Capacity of a pipe. When the shell exited, the pipe contained at most this number of bytes.
    const PIPE_BYTES: usize = 64 * 1024;
    let token = token();
    let script = "yes TOKEN & yes TOKEN & sleep 0.05; echo last";
    let mut call = run(shell(script, &token, level));
    // The reader is slow, so that the writers always have more output ready.
    let mut buffer = [0; 32];
    let (mut all, mut after_exit) = (Vec::new(), 0);
    loop {
        let has_exited = call.handle.status().borrow().exited.is_some();
        match call.output.read(&mut buffer).await.expect("readable") {
            0 => break,
            len => {
                all.extend_from_slice(&buffer[..len]);
                after_exit += if has_exited { len } else { 0 };
            }
        }
        assert!(
            after_exit <= PIPE_BYTES,
            "what comes after the exit is read, too"
        );
    }
    assert!(
        all.windows(5).any(|part| part == b"last\n"),
        "what the shell printed last is there"
    );
    assert!(call.handle.emptiness().is_none());
    let _ = call.force_and_wait().await;
    assert_nothing_runs(&token);
}

async fn leftovers_can_be_read(level: Containment) {
    let token = token();
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    // A background child that prints only after the file exists and the shell is gone. A shell that is a zombie is not
    // gone.
    let script = "(while kill -0 $$ 2>/dev/null || [ ! -e GO ]; do sleep 0.01; done; echo later TOKEN) & echo now";
    let script = script.replace("GO", go.to_str().expect("text"));
    let mut call = run(shell(&script, &token, level));
    assert_eq!(call.read_all().await, "now\n");
    std::fs::write(&go, "").expect("a file");
    let mut buffer = [0; 4096];
    let mut rest = String::new();
    loop {
        match call
            .output
            .read_leftovers(&mut buffer)
            .await
            .expect("readable")
        {
            0 => break,
            len => rest.push_str(&String::from_utf8_lossy(&buffer[..len])),
        }
    }
    assert_eq!(rest, format!("later {token}\n"));
    assert_eq!(
        call.handle.wait_empty().await.expect("watched"),
        proof(level)
    );
}

async fn order_is_kept(level: Containment) {
    let token = token();
    let script =
        "i=0; while [ $i -lt 500 ]; do echo $i; i=$((i+1)); echo $i >&2; i=$((i+1)); done # TOKEN";
    let mut call = run(shell(script, &token, level));
    let expected: Vec<String> = (0..500).map(|number| number.to_string()).collect();
    assert_eq!(call.read_all().await.lines().collect::<Vec<_>>(), expected);
}
