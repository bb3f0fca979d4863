//! Observation of one run: everything that a checker can ask for, whichever driver made the run.

mod facts;
mod point;
mod told;
mod witness;

pub use facts::{
    CallEffect, Disturbance, MachineLook, ObservedStop, SentMessage, SessionObservation, StopAnswer,
};
pub(crate) use point::{APPEND, EVENT, RECORD};
pub use point::{Moment, POLL, Point, Points};
pub(crate) use told::ToldNotebook;
pub use told::{ToldFacts, ToldOutcome};
pub use witness::{
    CallEnding, LifeGuard, Order, RunWitness, WitnessNotes, WitnessedAnswer, WitnessedLife,
};

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{Settings, TurnOutcome};
use allstop_core::receipt::{ItemKind, NothingToStop};
use allstop_core::record::SessionRecord;
use allstop_core::turn::{SessionState, StopPolicy};
use allstop_core::{Cause, CauseKind, Extent, StopReason, Usage};
use allstop_scope::{FORCE_MAX, GRACE_DEFAULT};

use crate::stop_method::StoreFault;
use crate::violation::Violation;

/// Text of the message that is sent after each run: the session must take it.
pub const NEXT_MESSAGE: &str = "the next message";

/// Longest time that a stop may take on a paused clock.
pub(crate) const ANSWERED_WITHIN: Duration = GRACE_DEFAULT.saturating_add(FORCE_MAX);

/// Kind of evidence that an observation can hold. A checker applies where its kind is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvidenceKind {
    /// Records of the log.
    Records,
    /// The run was followed to its end: its stops and their answers, its outcome.
    Run,
    /// Points that the run passed.
    Points,
    /// Parts that noted what they did, in one order.
    Witness,
    /// A session's user and subscriber, in the same order.
    Session,
    /// Word that the user was given of records and messages.
    Told,
    /// Calls of tools that ran: seen by the parts, or by their traces in the world.
    Calls,
    /// A message was sent after the run.
    Next,
    /// A killed process.
    Kill,
    /// Looks at the machine.
    Machine,
}

/// Observation of one run.
#[derive(Debug, Clone, Default)]
pub struct RunObservation {
    /// The same run without a stop; none where this is that run, or where no two runs are the same.
    pub undisturbed: Option<Arc<RunObservation>>,
    /// Point at which the driver stopped the run.
    pub point: Option<u32>,
    /// True if the run was followed to its end: `stops`, `turns` and `over` mean something.
    pub is_followed: bool,
    /// True if the parts noted what they did: `notes` and `points` mean something.
    pub is_witnessed: bool,
    /// Every point that the run passed.
    pub points: Vec<Point>,
    /// Settings of the subject.
    pub settings: Settings,
    /// Stops that were asked for, in order.
    pub stops: Vec<ObservedStop>,
    /// Stop of everything, after the next message.
    pub last_stop: Option<ObservedStop>,
    /// Longest time that a stop may take.
    pub answered_within: Duration,
    /// Moment in which the caller went away, if it did.
    pub caller_gone: Option<Disturbance>,
    /// Fault of the store, if it had one.
    pub store_fault: Option<StoreFault>,
    /// Deadline that was set from outside.
    pub deadline: Option<Duration>,
    /// Outcome of each turn, where somebody was there to get it.
    pub turns: Option<Vec<TurnOutcome>>,
    /// End of the run.
    pub over: Order,
    /// The same on the clock of the run.
    pub over_at: Duration,
    /// True if the run did not come to an end.
    pub hung: bool,
    /// Number of records before the first point.
    pub records_before: usize,
    /// Records of the session when the run was over.
    pub records: Vec<SessionRecord>,
    /// Session as its owner held it then; after a kill, as it was resumed.
    pub state: Option<SessionState>,
    /// Notes of the parts.
    pub notes: WitnessNotes,
    /// Usage that the model had reported when the run was over.
    pub delivered: Usage,
    /// Tokens still set aside of the budget when the run was over.
    pub reserved_tokens: u64,
    /// Ending of the message after the run.
    pub next: Option<StopReason>,
    /// Ending that it had to have; `None`: any.
    pub next_must: Option<StopReason>,
    /// Records when that was over too.
    pub records_after_next: Vec<SessionRecord>,
    /// Tasks that were alive when everything was over and stopped.
    pub tasks_left: usize,
    /// Work, processes, files and connections that were still there then.
    pub work_left: Vec<String>,
    /// Real processes that the run started past its scopes, and that had to be killed: `4711 (sleep)`.
    pub processes_left: Vec<String>,
    /// Findings of the scenario's own checks.
    pub own: Vec<Violation>,
    /// Everything that a session's user and subscriber saw, where a session was run.
    pub session: Option<SessionObservation>,
    /// Everything that the user was told of records and messages.
    pub told: Option<ToldFacts>,
    /// Looks at the machine, one for each receipt.
    pub looks: Vec<MachineLook>,
    /// Traces that calls left in the world, in order.
    pub effects: Vec<CallEffect>,
    /// The kill, where the process was killed.
    pub kill: Option<ObservedKill>,
}

/// Kill of the process that ran.
#[derive(Debug, Clone, Default)]
pub struct ObservedKill {
    /// Records that resuming the session added to those of the killed process.
    pub recovered: Vec<SessionRecord>,
    /// Reason why there is nothing to look at: the process was not killed, or its store cannot be read.
    pub failure: Option<String>,
}

impl RunObservation {
    /// The same run without a stop; this one, where it is that run.
    pub fn undisturbed(&self) -> &Self {
        self.undisturbed.as_deref().unwrap_or(self)
    }

    /// True if the observation has this kind of evidence.
    pub fn has(&self, evidence: EvidenceKind) -> bool {
        let kill = self.kill.as_ref();
        let has_failed = kill.is_some_and(|kill| kill.failure.is_some());
        match evidence {
            EvidenceKind::Records => !has_failed,
            EvidenceKind::Points => !self.points.is_empty() && !has_failed,
            EvidenceKind::Run => self.is_followed,
            EvidenceKind::Witness => self.is_witnessed,
            EvidenceKind::Calls => self.is_witnessed || !self.looks.is_empty(),
            EvidenceKind::Session => self.session.is_some(),
            EvidenceKind::Told => self.told.is_some() && !has_failed,
            EvidenceKind::Next => self.is_followed || self.kill.is_some() && !has_failed,
            EvidenceKind::Kill => self.kill.is_some(),
            EvidenceKind::Machine => !self.looks.is_empty(),
        }
    }

    /// Policy that decides what a stopped turn leaves; none in a session, where messages decide it too.
    pub(crate) fn stop_policy(&self) -> Option<StopPolicy> {
        let is_run = self.is_followed && self.session.is_none();
        is_run.then_some(self.settings.stop_policy)
    }

    /// Records of which `state` is the fold: after a kill those of the recovery too.
    pub(crate) fn folded_records(&self) -> Cow<'_, [SessionRecord]> {
        match &self.kill {
            Some(kill) => [self.records.as_slice(), &kill.recovered].concat().into(),
            None => self.records.as_slice().into(),
        }
    }

    /// True if the store has answered everything that it was asked, so that the session knows its log.
    pub(crate) fn is_settled(&self) -> bool {
        self.store_fault.is_none_or(|fault| !fault.stalls())
    }

    /// Stops that were asked for, and the last one.
    pub(crate) fn all_stops(&self) -> impl Iterator<Item = &ObservedStop> {
        self.stops.iter().chain(&self.last_stop)
    }

    /// Stops that found something to do, with their answers.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (&ObservedStop, &StopAnswer)> {
        self.all_stops()
            .filter_map(|asked| Some((asked, asked.answer.as_ref()?)))
            .filter(|(_, answer)| answer.receipt.outcome().is_none())
    }

    /// The moments in which commits were handed to the log. The decision falls just before, and no point lies between.
    pub(crate) fn commits(&self) -> impl Iterator<Item = &Point> {
        let is_commit = |point: &&Point| point.is_append() && point.of.contains("turn_committed");
        self.points.iter().filter(is_commit)
    }

    /// Calls of tools that really ran.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &WitnessedLife> {
        let is_call = |lived: &&WitnessedLife| lived.kind == ItemKind::ToolCall;
        self.notes.lived.iter().filter(is_call)
    }

    /// True if a stop of more than a call was told that everything had ended before it.
    pub fn nothing_to_do(&self) -> bool {
        // Only of the first: a second one finds nothing because the first one did its work.
        let first = self.stops.iter().find(|stop| stop.extent != Extent::Call);
        let answer = first.and_then(|stop| stop.answer.as_ref());
        answer.is_some_and(|answer| answer.receipt.outcome() == Some(NothingToStop::AlreadyEnded))
    }

    /// The first stop from outside that ends the run. A session goes on after a stop: there is none.
    pub fn disturbance(&self) -> Option<Disturbance> {
        if self.session.is_some() {
            return None;
        }
        let stop = self.stops.iter().find(|stop| stop.extent != Extent::Call);
        let stop = stop.map(|stop| Disturbance {
            cause: stop.cause.clone(),
            point: Some(stop.point),
            accepted: Some(stop.accepted),
            at: stop.at,
        });
        let deadline = self.deadline.map(|at| Disturbance {
            cause: Cause::new(CauseKind::Deadline),
            point: None,
            accepted: None,
            at,
        });
        stop.or_else(|| self.caller_gone.clone()).or(deadline)
    }
}
