//! Observation of one run: all facts that a checker may need. Every driver creates such observations.

mod delivered;
mod facts;
mod point;
mod witness;

pub(crate) use delivered::DeliveryJournal;
pub use delivered::{DeliveredFacts, DeliveredOutcome};
pub use facts::{
    Disturbance, MachineSnapshot, ObservedEffect, ObservedStop, SentMessage, SessionObservation,
    StopAnswer,
};
pub(crate) use point::{APPEND, EVENT, RECORD};
pub use point::{Moment, POLL, Point, Points};
pub use witness::{
    CallEnding, ObservedWork, Order, RunWitness, WitnessNotes, WitnessedAnswer, WorkGuard,
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

/// Text of the message that is sent after each run. The session must accept this message.
pub const NEXT_MESSAGE: &str = "the next message";

/// Maximum time that a stop may take on a paused clock.
pub(crate) const ANSWERED_WITHIN: Duration = GRACE_DEFAULT.saturating_add(FORCE_MAX);

/// Kind of evidence that an observation can contain. A checker applies if the observation contains the evidence that
/// the checker needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvidenceKind {
    /// Records of the log.
    Records,
    /// The run was observed to its end: the stops, their answers, and the outcome of the run.
    Run,
    /// Points that the run passed.
    Points,
    /// The notes of the run's parts (models, tools, hooks) about their work, in one common order.
    Witness,
    /// The observations of a session's user and subscriber, in the same order as the notes of the parts.
    Session,
    /// Records and outcomes that were delivered to the user.
    Delivered,
    /// Tool calls that ran. The parts saw the calls, or the calls had effects outside the process.
    Calls,
    /// The result of the message that was sent after the run.
    Next,
    /// A killed process.
    Kill,
    /// Observations of the machine.
    Machine,
}

/// Observation of one run.
#[derive(Debug, Clone, Default)]
pub struct RunObservation {
    /// Run of the same case without a stop. `None` if this run itself has no stop, or if the driver's runs are never
    /// equal.
    pub undisturbed: Option<Arc<RunObservation>>,
    /// Point at which the driver stopped the run.
    pub point: Option<u32>,
    /// True if the run was observed to its end, so that `stops`, `turns` and `over` are valid.
    pub is_followed: bool,
    /// True if the parts have recorded their work, so that `notes` and `points` are valid.
    pub is_witnessed: bool,
    /// Every point that the run passed.
    pub points: Vec<Point>,
    /// Settings of the subject, which is the tested agent or another engine.
    pub settings: Settings,
    /// Requested stops, in order.
    pub stops: Vec<ObservedStop>,
    /// The final stop of all work, which comes after the next message.
    pub last_stop: Option<ObservedStop>,
    /// Maximum time that a stop of this run may take.
    pub answered_within: Duration,
    /// Moment at which the caller left; `None` if the caller stayed.
    pub caller_gone: Option<Disturbance>,
    /// Fault of the store; `None` if the store had no fault.
    pub store_fault: Option<StoreFault>,
    /// Deadline that the driver set from outside.
    pub deadline: Option<Duration>,
    /// Outcome of each turn; `None` if no caller received the outcomes.
    pub turns: Option<Vec<TurnOutcome>>,
    /// Position of the end of the run in the order of the notes.
    pub over: Order,
    /// Time of the end on the clock of the run.
    pub over_at: Duration,
    /// True if the run did not end within the time limit.
    pub hung: bool,
    /// Number of records before the first point.
    pub records_before: usize,
    /// Records of the session when the run was over.
    pub records: Vec<SessionRecord>,
    /// The session's state in memory at the end of the run; after a kill, the resumed state.
    pub state: Option<SessionState>,
    /// Notes of the parts.
    pub notes: WitnessNotes,
    /// Usage that the model had reported before the run was over.
    pub delivered: Usage,
    /// Tokens of the budget that were still reserved when the run was over.
    pub reserved_tokens: u64,
    /// Ending of the message that was sent after the run.
    pub next: Option<StopReason>,
    /// Required ending of the next message; `None` if any ending is allowed.
    pub next_must: Option<StopReason>,
    /// Records of the session after the end of the next message.
    pub records_after_next: Vec<SessionRecord>,
    /// Number of tasks that were alive after the final stop.
    pub tasks_left: usize,
    /// Work, processes, files and connections that remained after the final stop.
    pub work_left: Vec<String>,
    /// Real processes that the run started outside its scopes, and that had to be killed, in the form `4711 (sleep)`.
    pub processes_left: Vec<String>,
    /// Violations that the scenario's own checks found.
    pub own: Vec<Violation>,
    /// Observations of a session's user and subscriber; `None` if the run had no session.
    pub session: Option<SessionObservation>,
    /// Records and outcomes that were delivered to the user.
    pub delivered_facts: Option<DeliveredFacts>,
    /// Observations of the machine, one for each receipt.
    pub snapshots: Vec<MachineSnapshot>,
    /// Effects that calls had outside the process, in order.
    pub effects: Vec<ObservedEffect>,
    /// The kill; `None` if the process was not killed.
    pub kill: Option<ObservedKill>,
}

/// Kill of the process that played the run.
#[derive(Debug, Clone, Default)]
pub struct ObservedKill {
    /// Records that were added when the session of the killed process was resumed.
    pub recovered: Vec<SessionRecord>,
    /// Reason why there is no observation: the process was not killed, or its store cannot be read.
    pub failure: Option<String>,
}

impl RunObservation {
    /// Run of the same case without a stop. If this run has no stop, returns this run.
    pub fn undisturbed(&self) -> &Self {
        self.undisturbed.as_deref().unwrap_or(self)
    }

    /// True if the observation contains this kind of evidence.
    pub fn has(&self, evidence: EvidenceKind) -> bool {
        let kill = self.kill.as_ref();
        let has_failed = kill.is_some_and(|kill| kill.failure.is_some());
        match evidence {
            EvidenceKind::Records => !has_failed,
            EvidenceKind::Points => !self.points.is_empty() && !has_failed,
            EvidenceKind::Run => self.is_followed,
            EvidenceKind::Witness => self.is_witnessed,
            EvidenceKind::Calls => self.is_witnessed || !self.snapshots.is_empty(),
            EvidenceKind::Session => self.session.is_some(),
            EvidenceKind::Delivered => self.delivered_facts.is_some() && !has_failed,
            EvidenceKind::Next => self.is_followed || self.kill.is_some() && !has_failed,
            EvidenceKind::Kill => self.kill.is_some(),
            EvidenceKind::Machine => !self.snapshots.is_empty(),
        }
    }

    /// Policy for the messages of a stopped turn. `None` in a session, because there each message also has a policy
    /// that affects the turn.
    pub(crate) fn stop_policy(&self) -> Option<StopPolicy> {
        let is_run = self.is_followed && self.session.is_none();
        is_run.then_some(self.settings.stop_policy)
    }

    /// Records from which `state` is computed. After a kill they include the records that the recovery added.
    pub(crate) fn folded_records(&self) -> Cow<'_, [SessionRecord]> {
        match &self.kill {
            Some(kill) => [self.records.as_slice(), &kill.recovered].concat().into(),
            None => self.records.as_slice().into(),
        }
    }

    /// True if the store has answered all requests, so that the session knows the content of its log.
    pub(crate) fn is_settled(&self) -> bool {
        self.store_fault.is_none_or(|fault| !fault.stalls())
    }

    /// The requested stops, and the final stop.
    pub(crate) fn all_stops(&self) -> impl Iterator<Item = &ObservedStop> {
        self.stops.iter().chain(&self.last_stop)
    }

    /// Stops that found something to stop, with their answers.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (&ObservedStop, &StopAnswer)> {
        self.all_stops()
            .filter_map(|asked| Some((asked, asked.answer.as_ref()?)))
            .filter(|(_, answer)| answer.receipt.outcome().is_none())
    }

    /// The points at which commits were sent to the log. The agent decides on the commit just before, and there is no
    /// point between the decision and the sending.
    pub(crate) fn commits(&self) -> impl Iterator<Item = &Point> {
        let is_commit =
            |point: &&Point| point.is_append() && point.subject.contains("turn_committed");
        self.points.iter().filter(is_commit)
    }

    /// Tool calls that really ran.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &ObservedWork> {
        let is_call = |work: &&ObservedWork| work.kind == ItemKind::ToolCall;
        self.notes.work.iter().filter(is_call)
    }

    /// True if a stop found that everything had already ended. A stop of a single call does not count.
    pub fn nothing_to_do(&self) -> bool {
        // Only the first stop counts. A second stop finds nothing to stop if the first stop has ended everything.
        let first = self.stops.iter().find(|stop| stop.extent != Extent::Call);
        let answer = first.and_then(|stop| stop.answer.as_ref());
        let outcome = answer.and_then(|answer| answer.receipt.outcome());
        outcome.is_some_and(|outcome| outcome != NothingToStop::NotFound)
    }

    /// The first stop from outside that ends the run. `None` for a session, because a session continues after a stop.
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
