//! How long it takes, printed; the limits are generous, since the machine may be shared.

use std::time::{Duration, Instant};

use allstop_core::receipt::Containment;
use libtest_mimic::Trial;

use crate::support::{run, shell, token, trial};

const ROUNDS: usize = 50;

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("latency::start_and_stop", start_and_stop)]
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

async fn start_and_stop() {
    let bare = median((0..ROUNDS).map(|_| bare_spawn()).collect());
    eprintln!("bare spawn: {bare:?}");
    for level in crate::support::LEVELS {
        let (mut launched, mut started, mut stopped, mut whole) = (vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            let token = token();
            let start = Instant::now();
            let mut call = run(shell(
                "sleep TOKEN & sleep TOKEN & echo ready; wait",
                &token,
                level,
            ));
            launched.push(start.elapsed());
            let _main = call.handle.wait_started().await.expect("it starts");
            started.push(start.elapsed());
            call.read_until("ready").await;
            stopped.push(call.force_and_wait().await.1);
            let start = Instant::now();
            let mut call = run(shell("exit 0", &token, level));
            assert_eq!(call.read_all().await, "");
            let _empty = call.handle.wait_empty().await.expect("watched");
            whole.push(start.elapsed());
        }
        let [launched, started, stopped, whole] = [launched, started, stopped, whole].map(median);
        eprintln!(
            "{}: launch {launched:?}, until started {started:?}, force until empty {stopped:?}, `exit 0` until empty {whole:?}",
            level.as_str()
        );
        let slowest = if level == Containment::Keeper {
            200
        } else {
            100
        };
        assert!(
            started < Duration::from_millis(slowest) && stopped < Duration::from_millis(slowest)
        );
    }
}

fn bare_spawn() -> Duration {
    let start = Instant::now();
    let mut child = std::process::Command::new("sh")
        .args(["-c", "exec sleep 600"])
        .spawn()
        .expect("a shell");
    let took = start.elapsed();
    child.kill().expect("it runs");
    child.wait().expect("it is a child");
    took
}
