//! A place where a run can hang, and what must come of it however it is stopped.

use std::any::Any;
use std::path::Path;
use std::time::Duration;

use allstop_testkit::openai_server::OpenAiServer;
use serde_json::Value;

use super::way::{STARVED, Way};
use crate::support::agreement::ensure;
use crate::support::fault::Fault;
use crate::support::wait::within;
use crate::support::{Ended, FACT_MAX, Place, Running, agreement};

/// A run that hangs, with what keeps it so.
pub(super) struct Hanging {
    pub(super) running: Running,
    /// The stalled part, if the test looks at it afterwards.
    server: Option<OpenAiServer>,
    fault: Option<Fault>,
    /// Dropped with it.
    held: Vec<Box<dyn Any>>,
}

impl From<Running> for Hanging {
    fn from(running: Running) -> Self {
        Self {
            running,
            server: None,
            fault: None,
            held: Vec::new(),
        }
    }
}

impl Hanging {
    /// Waits until it hangs: until the fact is there. It may end before, by its deadline.
    #[track_caller]
    pub(super) fn once(self, what: &str, mut fact: impl FnMut() -> bool) -> Self {
        let there = within(FACT_MAX, || {
            (fact() || self.running.ends_within(Duration::ZERO)).then_some(())
        });
        assert!(there.is_some(), "never seen: {what}: {:#?}", self.running);
        self
    }

    /// Waits until the file is there.
    #[track_caller]
    pub(super) fn once_there(self, file: &Path) -> Self {
        self.once("what hangs", || file.exists())
    }

    /// Waits until a call was hit by a fault, and keeps that.
    #[track_caller]
    pub(super) fn once_hit(self, fault: Fault) -> Self {
        self.once("a call that hangs", || !fault.seen().is_empty())
            .with(fault)
    }

    /// With a fault, which is there until the end of the run.
    pub(super) fn with(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Replaces the rules of its fault.
    pub(super) fn set(self, rules: &str) -> Self {
        self.fault.iter().for_each(|fault| fault.set(rules));
        self
    }

    /// Against this server.
    pub(super) fn against(mut self, server: OpenAiServer) -> Self {
        self.server = Some(server);
        self
    }

    /// Keeps something open until its end.
    pub(super) fn holding(mut self, thing: impl Any) -> Self {
        self.held.push(Box::new(thing));
        self
    }
}

/// Ending of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// As the way of its stop says.
    Stopped,
    /// The turn was committed before it was stopped: that stands.
    Committed,
    /// It was to be committed, and nobody knows whether it is.
    Unconfirmed,
    /// It was to be committed: it is, or nobody knows.
    NotStopped,
    /// Stopped or committed.
    Either,
}

/// A place where a run can hang.
#[derive(Clone, Copy)]
pub(super) struct Stall {
    begin: fn(&Place, &str) -> Hanging,
    ends: Ends,
    item: Option<[&'static str; 3]>,
    is_quiet: bool,
    format: &'static str,
    is_seen: bool,
    unsaid: Option<&'static str>,
}

impl Stall {
    /// A run with these arguments that hangs, once `begin` has returned.
    pub(super) const fn new(begin: fn(&Place, &str) -> Hanging) -> Self {
        Self {
            begin,
            ends: Ends::Stopped,
            item: None,
            is_quiet: true,
            format: "--json",
            is_seen: true,
            unsaid: None,
        }
    }

    /// It ends so.
    pub(super) const fn ends(self, ends: Ends) -> Self {
        Self { ends, ..self }
    }

    /// The receipt says this of what hung: kind, how, verified.
    pub(super) const fn item(self, item: [&'static str; 3]) -> Self {
        Self {
            item: Some(item),
            ..self
        }
    }

    /// Something may be left that the receipt names.
    pub(super) const fn not_quiet(self) -> Self {
        Self {
            is_quiet: false,
            ..self
        }
    }

    /// Events tell that it hangs.
    pub(super) const fn streaming(self) -> Self {
        Self {
            format: "--stream-json",
            ..self
        }
    }

    /// There is no envelope to be seen: nobody reads it, or people do.
    pub(super) const fn unseen(self, format: &'static str) -> Self {
        Self {
            format,
            is_seen: false,
            ..self
        }
    }

    /// This would not be true.
    pub(super) const fn no_word_of(self, unsaid: &'static str) -> Self {
        Self {
            unsaid: Some(unsaid),
            ..self
        }
    }

    /// Stops such a run in every way, each in a run of its own, at the same time.
    #[track_caller]
    pub(super) fn check(self, ways: &[Way]) {
        let broken: Vec<String> = std::thread::scope(|threads| {
            let start = |way: &Way| {
                let way = *way;
                (way, threads.spawn(move || self.check_way(way)))
            };
            let running: Vec<_> = ways.iter().map(start).collect();
            let end = |(way, thread): (Way, std::thread::ScopedJoinHandle<'_, _>)| {
                let checked: Result<(), String> = match thread.join() {
                    Ok(checked) => checked,
                    Err(_panic) => Err("see the panic above".into()),
                };
                checked.err().map(|why| format!("{way:?}: {why}"))
            };
            running.into_iter().filter_map(end).collect()
        });
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }

    fn check_way(self, way: Way) -> Result<(), String> {
        let place = Place::new();
        let Hanging {
            running,
            server,
            held: _held,
            ..
        } = (self.begin)(&place, &format!("{} {}", self.format, way.args()));
        let (ended, starved) = way.stop(running)?;
        let lie = |what: String| format!("{what}: {ended:#?}");
        if ended.stderr.contains("panicked") {
            return Err(lie("a panic".into()));
        }
        if let Some(word) = self.unsaid.filter(|word| ended.stderr.contains(word)) {
            return Err(lie(format!("{word} is not true")));
        }
        check_server(server.as_ref()).map_err(lie)?;
        if !self.is_seen {
            return self.check_unseen(way, &place, &ended).map_err(lie);
        }
        let envelope = agreement::envelope(&ended).map_err(lie)?;
        self.check_ending(way, &ended, starved, &envelope)
            .map_err(lie)?;
        agreement::check(&place, &envelope).map(drop).map_err(lie)
    }

    fn check_ending(
        self,
        way: Way,
        ended: &Ended,
        starved: Duration,
        envelope: &Value,
    ) -> Result<(), String> {
        let is_completed = envelope["stop_reason"] == "completed";
        let (code, reason) = match (self.ends, is_completed) {
            (Ends::Committed, _) | (Ends::Either | Ends::NotStopped, true) => (0, "completed"),
            (Ends::Unconfirmed, _) | (Ends::NotStopped, false) => (1, "error"),
            (Ends::Stopped, _) | (Ends::Either, false) => way.ending(),
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
            // A machine that is busy may not have come so far before the deadline.
            let may_be = self.item.is_none() || way == Way::Timeout;
            return ensure(may_be, || "no receipt of what hung".into());
        }
        if reason == "completed" && self.item.is_none() {
            return Ok(());
        }
        let [kind, detail] = way.cause();
        // A run that has completed may end by itself before the deadline, and what it stops then has that cause.
        let by_itself = reason == "completed" && way == Way::Timeout;
        if !by_itself && (receipt["cause"]["kind"] != kind || receipt["cause"]["detail"] != detail)
        {
            return Err(format!("not the cause {kind} ({detail})"));
        }
        if receipt["quiet"] == true {
            return self
                .item
                .map_or(Ok(()), |item| check_item(way, receipt, item));
        }
        // In a hurry, or without a processor, there may be no time for a proof.
        let has_no_time = way == Way::CtrlCTwice || starved > STARVED;
        let may_be_left = !self.is_quiet || has_no_time;
        ensure(may_be_left, || "not quiet".into())
    }

    /// Checks without an envelope: the exit code, leftovers, and the log's ending.
    fn check_unseen(self, way: Way, place: &Place, ended: &Ended) -> Result<(), String> {
        let (code, reason) = way.ending();
        if ended.code != code {
            return Err(format!("not exit code {code}"));
        }
        let left = place.leftovers();
        if self.is_quiet && !left.is_empty() {
            return Err(format!("still there: {left:#?}"));
        }
        let logged = agreement::last_stop_reason(place)?;
        ensure(logged.is_none_or(|logged| logged == reason), || {
            "another stop reason in the log".into()
        })
    }
}

/// The receipt has an item of this kind that was stopped so.
fn check_item(way: Way, receipt: &Value, [kind, how, verified]: [&str; 3]) -> Result<(), String> {
    let items = receipt["items"].as_array().map_or(&[][..], Vec::as_slice);
    let item = items.iter().find(|item| item["kind"] == kind);
    let Some(item) = item else {
        // A machine that is busy may not have come so far before the deadline.
        return ensure(way == Way::Timeout, || format!("no {kind} in the receipt"));
    };
    let is_so = item["state"] == "stopped" && item["how"] == how && item["verified"] == verified;
    ensure(is_so, || {
        format!("not stopped by {how}, verified by {verified}: {item:#}")
    })
}

/// The fake provider saw its connection close.
fn check_server(server: Option<&OpenAiServer>) -> Result<(), String> {
    let Some(server) = server else {
        return Ok(());
    };
    let closed = server.wait_until_blocking(FACT_MAX, |seen| seen.open() == 0);
    closed.map(drop).map_err(|error| format!("{error:?}"))
}
