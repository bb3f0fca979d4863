//! Random faults: slow or hanging disks, a hanging `/proc`, and providers that stall.

use std::time::Duration;

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};

use super::case::pick;
use crate::support::random::Random;

/// System calls that a fault can make stall: on the store, on the files next to the store, and on `/proc`.
const CALLS: [&str; 14] = [
    "sync store.db",
    "sync store.db",
    "write store.db-wal",
    "write store.db.output",
    "open store.db",
    "open store.db.output",
    "rmdir store.db.output",
    "mkdir store.db.output",
    "unlink store.db",
    "truncate store.db",
    "read store.db",
    "open /cmdline",
    "open /environ",
    "open script-",
];

/// Rules for a few random faults.
pub(super) fn faults(random: &mut Random) -> String {
    let rules: Vec<String> = (0..=random.below(3)).map(|_| rule(random)).collect();
    rules.join("\n")
}

fn rule(random: &mut Random) -> String {
    let call = pick(random, &CALLS);
    match random.below(3) {
        0 => format!("{call} hang skip={}", random.below(8)),
        1 => format!(
            "{call} {}ms chance={}",
            random.below(600),
            1 + random.below(40)
        ),
        _ => format!("{call} {}ms skip={}", random.below(3_000), random.below(8)),
    }
}

/// Bytes of a part of an answer. It is so large that the process needs many reads.
const LARGE_BYTES: usize = 500_000;

/// A model provider with slow, stalled or truncated answers.
pub(super) fn provider(seed: u64) -> OpenAiServer {
    OpenAiServer::deciding(move |number, _| {
        let mut random = Random::new(seed ^ number as u64);
        let call = |command: &str, background: bool| {
            // Each command is different, because several equal calls would count as a loop and end the turn.
            let arguments =
                format!(r#"{{"command": "{command}; echo {number}", "background": {background}}}"#);
            ServerAnswer::stream().tool_call(&format!("call_{number}"), "shell", &arguments)
        };
        match random.below(9) {
            0 | 1 => ServerAnswer::text("Hello to all of you.")
                .every(Duration::from_millis(random.below(60))),
            2 | 3 => call("sleep 0.1", false),
            4 => call("sleep 600", true),
            5 => ServerAnswer::stream().stall_before_headers(),
            6 => ServerAnswer::text("Half an answer").stall(),
            7 => call("sleep 0.1", false).stall(),
            _ => ServerAnswer::stream().chunk(&"x".repeat(LARGE_BYTES)).cut(),
        }
    })
}
