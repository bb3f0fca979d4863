//! One session that is stopped repeatedly.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use allstop_testkit::openai_server::OpenAiServer;
use rustix::pipe::pipe;

use super::Tally;
use super::case::{Case, GRACE, SCRIPT};
use super::{checks, stall};
use crate::support::agreement::ensure;
use crate::support::fault::Fault;
use crate::support::load::ProcessorWait;
use crate::support::random::Random;
use crate::support::{Ended, FACT_MAX, Place, Running, Signal};

/// Number of runs of a session.
pub(super) const ROUNDS: u64 = 4;

/// Time limit for the end of a run after its first stop: the grace, the time for force, and the time for the exit.
const STOP_MAX: Duration = Duration::from_millis(200 + 1_000 + 300);

/// Interval at which the test checks a run's progress.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// One session that is stopped repeatedly.
pub(super) struct StoppedSession {
    random: Random,
    with_stalls: bool,
    pub(super) place: Place,
    model: String,
    /// A model provider whose answers stall.
    server: Option<OpenAiServer>,
    pub(super) session: Option<String>,
    /// Turns in the session's log before the next run.
    pub(super) turns: u64,
    pub(super) tally: Tally,
}

/// A finished run.
#[derive(Debug)]
pub(super) struct FinishedRun {
    pub(super) case: Case,
    pub(super) ended: Ended,
    /// The signals that the run may have received first: if signals come shortly after each other, their order is
    /// uncertain.
    pub(super) first: Vec<Signal>,
    /// True if the run received SIGKILL, or received another signal before it had a handler for it. Such a run may end
    /// without an envelope (the JSON object with the result).
    pub(super) owes_nothing: bool,
}

impl StoppedSession {
    pub(super) fn new(seed: u64, with_stalls: bool) -> Self {
        let place = Place::new();
        // The prompts repeat the commands of the script, even if the outcome of an earlier command is unknown.
        let folder = place.path("home/.config/allstop");
        std::fs::create_dir_all(&folder).expect("a folder");
        let config = "[permissions]\nrepeat_unknown = 'allow'\n";
        std::fs::write(folder.join("allstop.toml"), config).expect("a file");
        let model = place.script(SCRIPT);
        Self {
            random: Random::new(seed),
            with_stalls,
            place,
            model,
            server: with_stalls.then(|| stall::provider(seed)),
            session: None,
            turns: 0,
            tally: Tally::new(),
        }
    }

    /// Runs all rounds of the session.
    ///
    /// # Errors
    /// Describes the first difference from the expected results.
    pub(super) fn run_all(&mut self) -> Result<(), String> {
        for number in 0..ROUNDS {
            let round = self.round(number)?;
            let in_round = |why| format!("{why}\nround {number}: {round:#?}");
            checks::after_round(self, &round).map_err(in_round)?;
        }
        checks::next_run(self)
    }

    pub(super) fn count(&mut self, what: impl Into<String>) {
        *self.tally.entry(what.into()).or_default() += 1;
    }

    fn round(&mut self, number: u64) -> Result<FinishedRun, String> {
        let faults = if self.with_stalls {
            stall::faults(&mut self.random)
        } else {
            String::new()
        };
        let mut case = Case::random(&mut self.random, number);
        case.faults = faults;
        case.is_unread = self.with_stalls && self.random.below(6) == 0;
        case.is_remote = self.with_stalls && self.random.below(4) == 0;
        let fault = Fault::new(&self.place, &case.faults);
        let (running, _unread) = self.start(&case, &fault);
        let begin = running.begin();
        let stopped = stop(running, &case);
        fault.set("");
        let (ended, first, first_at, owes_nothing, wait) =
            stopped.map_err(|why| format!("{why}: {case:#?}"))?;
        let round = FinishedRun {
            case,
            ended,
            first,
            owes_nothing,
        };
        let deadline = round
            .case
            .timeout_ms
            .map(|ms| begin + Duration::from_millis(ms));
        let cause_at = [first_at, deadline].into_iter().flatten().min();
        if let Some(at) = cause_at.filter(|_| !round.owes_nothing) {
            let took = round.ended.at.saturating_duration_since(at);
            let in_time = took.saturating_sub(wait) <= STOP_MAX;
            ensure(in_time, || {
                format!("it took {took:?}, {wait:?} of it for want of a processor: {round:#?}")
            })?;
        }
        Ok(round)
    }

    fn start(&self, case: &Case, fault: &Fault) -> (Running, Option<OwnedFd>) {
        let mut run = self.place.run();
        run = match &self.server {
            Some(server) if case.is_remote => run.args("--model any --base-url").arg(server.url()),
            _ => run.arg("--model").arg(&self.model),
        };
        run = run.args(&format!("--grace {}ms", GRACE.as_millis()));
        if let Some(session) = &self.session {
            run = run.arg("--session").arg(session);
        }
        if let Some(ms) = case.timeout_ms {
            run = run.arg("--timeout").arg(format!("{ms}ms"));
        }
        for arg in &case.flags {
            run = run.arg(arg);
        }
        run = run.prompts(&case.prompts);
        let unread = case.is_unread.then(|| pipe().expect("a pipe"));
        if let Some((_, writer)) = &unread {
            run = run.env("ALLSTOP_LOG", "trace");
            run = run.stderr(writer.try_clone().expect("it can be duplicated"));
        }
        let run = if self.with_stalls {
            fault.below(run)
        } else {
            run
        };
        (run.start(), unread.map(|(reader, _)| reader))
    }
}

/// Signals within this time count as one. The time that the run waited for a processor is added. Any of these signals
/// may be the first that the run received.
const ONE_SIGNAL: Duration = Duration::from_millis(100);

type Stopped = (Ended, Vec<Signal>, Option<Instant>, bool, Duration);

/// Sends the signals of the case to the run, and waits for its end.
fn stop(mut running: Running, case: &Case) -> Result<Stopped, String> {
    let (mut sent, mut first_at, mut owes_nothing) = (Vec::new(), None, false);
    let mut wait = ProcessorWait::of(running.pid());
    for (after, signal) in &case.stops {
        if running.ends_within(*after) {
            break;
        }
        if *signal == Signal::KILL || !running.catches(*signal) {
            owes_nothing = true;
        }
        first_at.get_or_insert_with(Instant::now);
        sent.push((*signal, Instant::now()));
        running.signal(*signal);
    }
    let begin = Instant::now();
    while !running.ends_within(LOOK_AGAIN) {
        wait.look();
        ensure(begin.elapsed() < FACT_MAX, || {
            format!("it has not ended after {FACT_MAX:?}")
        })?;
    }
    wait.look();
    let wait = wait.total();
    let may_be_first = |at: Instant| first_at.is_none_or(|first| at - first < ONE_SIGNAL + wait);
    let first = sent
        .iter()
        .filter(|(_, at)| may_be_first(*at))
        .map(|(signal, _)| *signal);
    Ok((
        running.end(FACT_MAX),
        first.collect(),
        first_at,
        owes_nothing,
        wait,
    ))
}
