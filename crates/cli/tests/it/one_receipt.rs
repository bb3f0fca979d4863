//! A run is stopped from another terminal at any moment, also after its end. Four places must contain the same receipt
//! (report of the stop): the envelope, the receipt file, the log, and the output of `stop`.
//!
//! Another number of tries: `ALLSTOP_TEST_TRIES=5000 cargo test -p allstop-cli --test it one_receipt`. The variable
//! `ALLSTOP_TEST_SEED` repeats the cases of a seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::support::random::{self, Random, number_from_environment};
use crate::support::wait::within;
use crate::support::{Ended, FACT_MAX, Place, Running};

/// Number of tries of each test, unless the environment sets another number.
const TRIES: u64 = 500;

/// Number of concurrent runs. Runs wait most of the time, so they disturb each other little.
const AT_ONCE: u64 = 4;

/// A run that was stopped from another terminal, and all reports about the stop.
struct StopReports {
    run: Ended,
    envelope: Value,
    file: Value,
    log: Value,
    stop: Ended,
    answer: Value,
}

/// Calls `try_once` many times, each time with another seed.
fn check(try_once: impl Fn(&mut Random) -> Result<(), String> + Sync) {
    let tries = number_from_environment("ALLSTOP_TEST_TRIES").unwrap_or(TRIES);
    let (seed, next) = (random::seed(), AtomicU64::new(0));
    let broken: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|threads| {
        for _ in 0..AT_ONCE {
            threads.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= tries {
                        return;
                    }
                    let mut random = Random::new(seed.wrapping_add(number));
                    if let Err(why) = try_once(&mut random) {
                        let case = format!("ALLSTOP_TEST_SEED={}: {why}", seed + number);
                        broken.lock().expect("no test panics here").push(case);
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().expect("no test panics here");
    let first = broken.first();
    assert!(broken.is_empty(), "{} of {tries}: {first:?}", broken.len());
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

fn one_of<'a>(random: &mut Random, all: &[&'a str]) -> &'a str {
    let at = random.below(all.len() as u64);
    all[at as usize]
}

fn on_store(place: &Place, args: &str) -> Ended {
    let command = place.allstop().args(args).arg("--store");
    command.arg(place.store()).end()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// Starts a run, and waits until other terminals can stop it, or until it has ended.
fn begin(place: &Place, script: &str) -> Running {
    let file = place.path("receipt.json");
    let hooks = format!("[[hooks]]\non = \"stop\"\ncommand = \"{HOOK_COMMAND}\"\n");
    let hooks = place.file("hooks.toml", hooks);
    let mut run = place.run_script(script).args("--json --receipt-file");
    run = run.arg(file);
    if script == HOOK {
        run = run.arg("--config").arg(hooks);
    }
    if script == WAITED {
        run = run.args("--wait-background");
    }
    let running = run.arg("hello").start();
    let sockets = place.path("run").join("allstop");
    let may_be_asked = || {
        let found = std::fs::read_dir(&sockets).ok()?;
        (found.count() > 0 || running.ends_within(Duration::ZERO)).then_some(())
    };
    within(FACT_MAX, may_be_asked);
    running
}

fn stop_at_some_moment(
    place: &Place,
    script: &str,
    random: &mut Random,
    args: &str,
) -> StopReports {
    let running = begin(place, script);
    let moment = random.before(Duration::from_millis(80));
    let _ended_or_not = running.ends_within(moment);
    let stop = on_store(place, &format!("stop last --json {args}"));
    let run = running.end(FACT_MAX);
    let file = std::fs::read_to_string(place.path("receipt.json"));
    StopReports {
        envelope: run.envelope(),
        file: file.map_or(Value::Null, |text| json(&text)),
        // A session without a receipt has an error object instead.
        log: match on_store(place, "receipt last --json") {
            printed if printed.code == 0 => json(&printed.stdout),
            _ => Value::Null,
        },
        answer: json(&stop.stdout),
        run,
        stop,
    }
}

impl StopReports {
    /// Checks that the envelope, the file and the log contain the same receipt. Also checks that the stop printed one
    /// object, which contains this receipt or `already_ended`.
    fn agree(&self) -> Result<(), String> {
        let own = &self.envelope["receipt"];
        ensure(*own == self.log, || {
            format!("envelope {own:#}, log {:#}", self.log)
        })?;
        ensure(*own == self.file, || {
            format!("envelope {own:#}, file {:#}", self.file)
        })?;
        let answer = &self.answer["receipt"];
        // On a busy machine, the short time of `stop --now` may end before the end of the work is proved. The receipt
        // and the exit code must then report this.
        ensure(!answer.is_null(), || format!("{:?}", self.stop))?;
        let code = i32::from(answer["quiet"] != true);
        ensure(self.stop.code == code, || format!("{:?}", self.stop))?;
        if answer["outcome"] == "already_ended" || answer["outcome"] == "ending" {
            let reason = &self.answer["stop_reason"];
            let same = reason.is_null() || *reason == self.envelope["stop_reason"];
            return ensure(same, || format!("{:#}", self.answer));
        }
        let all = self.envelope["receipts"].as_array();
        let is_listed = all.is_some_and(|all| all.contains(answer));
        // The last stop of the run may be a different stop. If `stop --now` could not end work in its short time, the
        // end of the run stops this work again. A hook can also run until the end of the session stops it.
        let is_of_hook = own["extent"] == "session" && own["items"][0]["name"] == HOOK_COMMAND;
        let is_last = answer == own || answer["quiet"] == false || is_of_hook;
        ensure(is_listed && is_last, || {
            format!("answer {answer:#}, envelope {:#}", self.envelope)
        })?;
        ensure(answer["outcome"].is_null(), || format!("{answer:#}"))?;
        ensure(answer["cancel_observed"] == answer["quiet"], || {
            format!("{answer:#}")
        })
    }
}

const EXTENTS: [&str; 5] = [
    "",
    "--now",
    "--extent turn",
    "--extent session",
    "--extent session --now",
];

const MODEL: &str = "replies: [{text: Never., stall: first_token}]";
const CALL: &str =
    "replies: [{calls: [{tool: shell, arguments: {command: sleep 60}}]}, {text: Never.}]";
const HOOK: &str = "replies: [{text: Never, stall: mid_stream}]";
const HOOK_COMMAND: &str = "sleep 0.2";
/// Script with background work. The run waits for this work after its turn.
const WAITED: &str = "replies: [{calls: [{tool: shell, arguments: {command: sleep 60, background: true}}]}, {text: Done.}]";
const BACKGROUND: &str = "replies: [{calls: [{tool: shell, arguments: {command: sleep 60, background: true}}]}, \
                          {text: Never., stall: first_token}]";

#[test]
fn of_a_run_that_is_stopped() {
    check(|random| {
        let place = Place::new();
        let script = one_of(random, &[MODEL, CALL, HOOK, WAITED, BACKGROUND]);
        let args = one_of(random, &EXTENTS);
        // Here, a stop of only the turn would not be the last stop, because the end of the run also stops the
        // background work.
        let args = match (script, args) {
            (BACKGROUND | WAITED, "--extent turn") => "",
            (_, args) => args,
        };
        let reports = stop_at_some_moment(&place, script, random, args);
        let (code, case) = (reports.run.code, format!("{script} {args}"));
        ensure(code == 130, || format!("{case}: exit code {code}"))?;
        reports.agree().map_err(|why| format!("{case}: {why}"))?;
        let is_quiet = reports.envelope["receipt"]["quiet"] == true;
        // If the receipt is not quiet (work may still run), keeper processes end the remaining work later.
        let limit = if is_quiet { Duration::ZERO } else { FACT_MAX };
        let gone = within(limit, || place.leftovers().is_empty().then_some(()));
        ensure(gone.is_some(), || {
            format!("{case}: left: {:?}", place.leftovers())
        })
    });
}

/// The run ends by itself while the stop arrives.
#[test]
fn of_a_run_that_ends() {
    check(|random| {
        let place = Place::new();
        let script = one_of(
            random,
            &[
                "replies: [{text: Hello.}]",
                "replies: [{calls: [{tool: shell, arguments: {command: sleep 0.03}}]}, {text: Hello.}]",
            ],
        );
        let args = one_of(random, &EXTENTS);
        let reports = stop_at_some_moment(&place, script, random, args);
        reports.agree().map_err(|why| format!("{args}: {why}"))
    });
}

/// A stop of an ended session takes no lock. So it disturbs neither another stop nor a later run of the session.
#[test]
fn of_a_session_that_has_ended() {
    let place = Place::new();
    let script = "turns: [{when: hello, replies: [{text: Hello.}]}, {when: again, replies: [{text: Again.}]}]";
    let run = place.run_script(script).args("--json hello");
    let id = run.end().ok().session();
    check(|random| {
        let args = one_of(
            random,
            &["", "--extent turn", "--extent session", "--call call_1"],
        );
        let stop = on_store(&place, &format!("stop {id} --json {args}"));
        let answer = json(&stop.stdout);
        let is_right = stop.code == 0
            && answer["receipt"]["outcome"] == "already_ended"
            && answer["stop_reason"] == "completed";
        ensure(is_right, || format!("{args}: {stop:?}"))
    });
    let next = place.run_script(script);
    let next = next.args(&format!("--session {id} again")).start();
    let stopping = || on_store(&place, &format!("stop {id} --json --extent turn"));
    while !next.ends_within(Duration::ZERO) {
        assert_eq!(stopping().code, 0);
    }
    let ended = next.end(FACT_MAX);
    assert!([0, 130].contains(&ended.code), "{ended:?}");
}
