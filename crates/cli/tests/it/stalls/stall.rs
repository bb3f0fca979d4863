//! A place where a run can hang (a stall), and the expected result for each way to stop the run.

use std::any::Any;
use std::path::Path;
use std::time::Duration;

use allstop_testkit::openai_server::OpenAiServer;
use serde_json::Value;

use super::stop_method::{RunStopMethod, STARVED};
use crate::support::agreement::ensure;
use crate::support::fault::Fault;
use crate::support::wait::within;
use crate::support::{Ended, FACT_MAX, Place, Running, agreement};

/// A hanging run, with the resources that make it hang.
pub(super) struct HangingRun {
    pub(super) running: Running,
    /// The model server, if the test checks it after the run.
    server: Option<OpenAiServer>,
    fault: Option<Fault>,
    /// Resources that are dropped together with the run.
    held: Vec<Box<dyn Any>>,
}

impl From<Running> for HangingRun {
    fn from(running: Running) -> Self {
        Self {
            running,
            server: None,
            fault: None,
            held: Vec::new(),
        }
    }
}

impl HangingRun {
    /// Waits until `fact` detects that the run hangs. A run with a deadline may end before that.
    #[track_caller]
    pub(super) fn once(self, what: &str, mut fact: impl FnMut() -> bool) -> Self {
        let there = within(FACT_MAX, || {
            (fact() || self.running.ends_within(Duration::ZERO)).then_some(())
        });
        assert!(there.is_some(), "never seen: {what}: {:#?}", self.running);
        self
    }

    /// Waits until the file exists.
    #[track_caller]
    pub(super) fn once_there(self, file: &Path) -> Self {
        self.once("what hangs", || file.exists())
    }

    /// Waits until a fault has hit a system call. Keeps the fault until the end of the run.
    #[track_caller]
    pub(super) fn once_hit(self, fault: Fault) -> Self {
        self.once("a call that hangs", || !fault.seen().is_empty())
            .with(fault)
    }

    /// Keeps a fault until the end of the run.
    pub(super) fn with(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Replaces the rules of the run's fault.
    pub(super) fn set(self, rules: &str) -> Self {
        self.fault.iter().for_each(|fault| fault.set(rules));
        self
    }

    /// Keeps this server, to check it after the run.
    pub(super) fn against(mut self, server: OpenAiServer) -> Self {
        self.server = Some(server);
        self
    }

    /// Keeps a resource open until the end of the run.
    pub(super) fn holding(mut self, thing: impl Any) -> Self {
        self.held.push(Box::new(thing));
        self
    }
}

/// Expected end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedEnd {
    /// The run ends as expected for its stop method.
    Stopped,
    /// The turn was committed before the stop, and stays committed.
    Committed,
    /// The commit was in progress. Its result is unknown.
    Unconfirmed,
    /// The commit was in progress: it has succeeded, or its result is unknown.
    NotStopped,
    /// The turn is either stopped or committed.
    Either,
}

/// A place where a run can hang.
#[derive(Clone, Copy)]
pub(super) struct Stall {
    begin: fn(&Place, &str) -> HangingRun,
    ends: ExpectedEnd,
    item: Option<[&'static str; 3]>,
    is_quiet: bool,
    format: &'static str,
    is_seen: bool,
    unsaid: Option<&'static str>,
}

impl Stall {
    /// Creates a stall. `begin` starts a run with the given arguments, and returns when the run hangs.
    pub(super) const fn new(begin: fn(&Place, &str) -> HangingRun) -> Self {
        Self {
            begin,
            ends: ExpectedEnd::Stopped,
            item: None,
            is_quiet: true,
            format: "--json",
            is_seen: true,
            unsaid: None,
        }
    }

    /// Sets the expected end of the run.
    pub(super) const fn ends(self, ends: ExpectedEnd) -> Self {
        Self { ends, ..self }
    }

    /// Sets the expected item of the hanging work in the receipt: its kind, the method that ended the work, and the
    /// proof of its end.
    pub(super) const fn item(self, item: [&'static str; 3]) -> Self {
        Self {
            item: Some(item),
            ..self
        }
    }

    /// Allows work that still runs after the stop, if the receipt lists this work.
    pub(super) const fn not_quiet(self) -> Self {
        Self {
            is_quiet: false,
            ..self
        }
    }

    /// Runs with `--stream-json`, because the test detects the stall in the stream of events.
    pub(super) const fn streaming(self) -> Self {
        Self {
            format: "--stream-json",
            ..self
        }
    }

    /// Runs without an envelope for the test, because the output has no reader or is for people.
    pub(super) const fn unseen(self, format: &'static str) -> Self {
        Self {
            format,
            is_seen: false,
            ..self
        }
    }

    /// Sets a text that must not be in the output, because the text would be false.
    pub(super) const fn no_word_of(self, unsaid: &'static str) -> Self {
        Self {
            unsaid: Some(unsaid),
            ..self
        }
    }

    /// Stops a hanging run with each of these methods. Each method gets a separate run, and all runs are concurrent.
    #[track_caller]
    pub(super) fn check(self, methods: &[RunStopMethod]) {
        let broken: Vec<String> = std::thread::scope(|threads| {
            let start = |method: &RunStopMethod| {
                let method = *method;
                (method, threads.spawn(move || self.check_method(method)))
            };
            let running: Vec<_> = methods.iter().map(start).collect();
            let end = |(method, thread): (RunStopMethod, std::thread::ScopedJoinHandle<'_, _>)| {
                let checked: Result<(), String> = match thread.join() {
                    Ok(checked) => checked,
                    Err(_panic) => Err("see the panic above".into()),
                };
                checked.err().map(|why| format!("{method:?}: {why}"))
            };
            running.into_iter().filter_map(end).collect()
        });
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }

    fn check_method(self, method: RunStopMethod) -> Result<(), String> {
        let place = Place::new();
        let HangingRun {
            running,
            server,
            held: _held,
            ..
        } = (self.begin)(&place, &format!("{} {}", self.format, method.args()));
        let (ended, starved) = method.stop(running)?;
        let lie = |what: String| format!("{what}: {ended:#?}");
        if ended.stderr.contains("panicked") {
            return Err(lie("a panic".into()));
        }
        if let Some(word) = self.unsaid.filter(|word| ended.stderr.contains(word)) {
            return Err(lie(format!("{word} is not true")));
        }
        check_server(server.as_ref()).map_err(lie)?;
        if !self.is_seen {
            return self.check_unseen(method, &place, &ended).map_err(lie);
        }
        let envelope = agreement::envelope(&ended).map_err(lie)?;
        self.check_ending(method, &ended, starved, &envelope)
            .map_err(lie)?;
        agreement::check(&place, &envelope).map(drop).map_err(lie)
    }

    fn check_ending(
        self,
        method: RunStopMethod,
        ended: &Ended,
        starved: Duration,
        envelope: &Value,
    ) -> Result<(), String> {
        let is_completed = envelope["stop_reason"] == "completed";
        let (code, reason) = match (self.ends, is_completed) {
            (ExpectedEnd::Committed, _) | (ExpectedEnd::Either | ExpectedEnd::NotStopped, true) => {
                (0, "completed")
            }
            (ExpectedEnd::Unconfirmed, _) | (ExpectedEnd::NotStopped, false) => (1, "error"),
            (ExpectedEnd::Stopped, _) | (ExpectedEnd::Either, false) => method.ending(),
        };
        if (ended.code, &envelope["stop_reason"]) != (code, &reason.into()) {
            return Err(format!("not {reason}, {code}"));
        }
        let receipt = &envelope["receipt"];
        if reason == "error" {
            let kind = &envelope["error"]["kind"];
            return match (kind, &receipt["conversation"]) {
                (kind, conversation) if kind == "store" && conversation == "unknown" => Ok(()),
                _ => Err("not an error of the store with a conversation that is unknown".into()),
            };
        }
        if receipt.is_null() {
            // On a busy machine, the deadline may have come before this point was reached.
            let may_be = self.item.is_none() || method == RunStopMethod::Timeout;
            return ensure(may_be, || "no receipt of what hung".into());
        }
        if reason == "completed" && self.item.is_none() {
            return Ok(());
        }
        let [kind, detail] = method.cause();
        // A completed run may reach its end before the deadline. If it then stops other work, the cause of this stop is
        // the end of the run, and not the deadline.
        let by_itself = reason == "completed" && method == RunStopMethod::Timeout;
        if !by_itself && (receipt["cause"]["kind"] != kind || receipt["cause"]["detail"] != detail)
        {
            return Err(format!("not the cause {kind} ({detail})"));
        }
        let is_in_envelope = reason == "completed" || envelope["cause"]["kind"] == kind;
        ensure(is_in_envelope, || "no cause in the envelope".into())?;
        if receipt["quiet"] == true {
            return self
                .item
                .map_or(Ok(()), |item| check_item(method, receipt, item));
        }
        // After a second Ctrl-C, or if the run had to wait for a processor, the time may be too short to prove the end
        // of the work.
        let has_no_time = method == RunStopMethod::CtrlCTwice || starved > STARVED;
        let may_be_left = !self.is_quiet || has_no_time;
        ensure(may_be_left, || "not quiet".into())
    }

    /// Checks a run without an envelope: its exit code, the remaining processes, and the end of the turn in the log.
    fn check_unseen(
        self,
        method: RunStopMethod,
        place: &Place,
        ended: &Ended,
    ) -> Result<(), String> {
        let (code, reason) = method.ending();
        if ended.code != code {
            return Err(format!("not exit code {code}"));
        }
        // After a second Ctrl-C the time may be too short to prove the end of the work. The output must then report this,
        // and the keepers end the work later.
        let reports_work =
            method == RunStopMethod::CtrlCTwice && ended.stderr.contains("STILL RUNS");
        let limit = if reports_work {
            FACT_MAX
        } else {
            Duration::ZERO
        };
        let gone = within(limit, || place.leftovers().is_empty().then_some(()));
        if self.is_quiet && gone.is_none() {
            return Err(format!("still there: {:#?}", place.leftovers()));
        }
        let logged = agreement::last_stop_reason(place)?;
        ensure(logged.is_none_or(|logged| logged == reason), || {
            "another stop reason in the log".into()
        })
    }
}

/// Checks that the receipt has an item of this kind, with this method and this proof.
fn check_item(
    method: RunStopMethod,
    receipt: &Value,
    [kind, how, verified]: [&str; 3],
) -> Result<(), String> {
    let items = receipt["items"].as_array().map_or(&[][..], Vec::as_slice);
    let item = items.iter().find(|item| item["kind"] == kind);
    let Some(item) = item else {
        // On a busy machine, the deadline may have come before this point was reached.
        return ensure(method == RunStopMethod::Timeout, || {
            format!("no {kind} in the receipt")
        });
    };
    let is_so = item["state"] == "stopped" && item["how"] == how && item["verified"] == verified;
    ensure(is_so, || {
        format!("not stopped by {how}, verified by {verified}: {item:#}")
    })
}

/// Checks that the process has closed its connection to the fake model provider.
fn check_server(server: Option<&OpenAiServer>) -> Result<(), String> {
    let Some(server) = server else {
        return Ok(());
    };
    let closed = server.wait_until_blocking(FACT_MAX, |seen| seen.open() == 0);
    closed.map(drop).map_err(|error| format!("{error:?}"))
}
