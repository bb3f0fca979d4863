//! Methods of stopping a run.

use std::fmt;
use std::str::FromStr;

use allstop_core::{CauseKind, Extent};
use allstop_session::FollowUp;

/// Method of stopping a run at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMethod {
    /// One stop of this extent (part of the work) with this cause.
    Stop(Extent, CauseKind),
    /// The caller that waits for the run leaves.
    Drop,
    /// A deadline that passes at this moment of the paused clock.
    Deadline,
    /// A user stops the turn, and stops it again this number of points later. In the driver by moment, the number is in
    /// milliseconds.
    Again(u32),
    /// A user stops the turn. This number of points later, a stop covers the whole process.
    Wider(u32),
    /// A user stops the turn. This number of points later, the user demands force at once, without the rest of the
    /// grace (the time in which work may end by itself).
    Force(u32),
    /// The store fails, beginning with the append at this point.
    Store(StoreFault),
    /// A user sends another message under this policy. Only for sessions, like the next two methods.
    Send(FollowUp),
    /// The session is closed.
    Close,
    /// The last turn is undone.
    Undo,
    /// `kill -9` of the process that runs the scenario with a store on disk.
    Kill,
}

/// Every cause that a caller can give, in the order of the design's list of causes.
pub const CAUSES: [CauseKind; 11] = [
    CauseKind::User,
    CauseKind::Superseded,
    CauseKind::Deadline,
    CauseKind::Inactivity,
    CauseKind::Budget,
    CauseKind::Guardrail,
    CauseKind::Parent,
    CauseKind::Shutdown,
    CauseKind::LeaseLost,
    CauseKind::Disconnect,
    CauseKind::Failure,
];

/// Every extent. Only the extents of a session can contain background work.
const EXTENTS: [Extent; 6] = [
    Extent::Call,
    Extent::Turn,
    Extent::TurnAndBackground,
    Extent::Session,
    Extent::Subtree,
    Extent::Process,
];

impl StopMethod {
    /// The most common stop: a user stops the turn.
    pub const USER: Self = Self::Stop(Extent::Turn, CauseKind::User);

    /// Every method. A second stop comes `after` points after the first stop.
    fn all(after: u32) -> impl Iterator<Item = Self> {
        let stops = EXTENTS
            .into_iter()
            .flat_map(|extent| CAUSES.map(|cause| Self::Stop(extent, cause)));
        let others = [
            Self::Drop,
            Self::Deadline,
            Self::Again(after),
            Self::Wider(after),
            Self::Force(after),
            Self::Close,
            Self::Undo,
            Self::Kill,
        ];
        let faults = StoreFault::ALL.map(Self::Store);
        let sends = FollowUp::ALL.map(Self::Send);
        stops.chain(others).chain(faults).chain(sends)
    }

    /// Describes the method for a reader who sees the name of the method for the first time.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Stop(Extent::Turn, CauseKind::User) => "a user stops the turn".to_owned(),
            Self::Stop(extent, cause) => format!("a stop of the {extent}, with cause {cause}"),
            Self::Drop => "whoever waits for the run goes away".to_owned(),
            Self::Deadline => "a deadline passes".to_owned(),
            Self::Again(after) => format!("a user stops the turn, and again {after} points later"),
            Self::Wider(after) => {
                format!("a user stops the turn, and the process shuts down {after} points later")
            }
            Self::Force(after) => {
                format!(
                    "a user stops the turn, and does not wait for the grace {after} points later"
                )
            }
            Self::Store(fault) => fault.describe().to_owned(),
            Self::Send(policy) => format!("a message is sent that is to {policy}"),
            Self::Close => "the session is closed".to_owned(),
            Self::Undo => "the last turn is to be taken back".to_owned(),
            Self::Kill => "kill -9 of the process".to_owned(),
        }
    }

    /// Distance of the second stop in points; `None` if the method has only one stop.
    pub(crate) fn second_after(self) -> Option<u32> {
        match self {
            Self::Again(after) | Self::Wider(after) | Self::Force(after) => Some(after),
            _ => None,
        }
    }
}

impl fmt::Display for StopMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stop(extent, cause) => write!(f, "{extent}:{cause}"),
            Self::Drop => f.write_str("drop"),
            Self::Deadline => f.write_str("deadline"),
            Self::Again(after) => write!(f, "again+{after}"),
            Self::Wider(after) => write!(f, "wider+{after}"),
            Self::Force(after) => write!(f, "force+{after}"),
            Self::Store(fault) => write!(f, "store:{fault}"),
            Self::Send(policy) => write!(f, "send:{policy}"),
            Self::Close => f.write_str("close"),
            Self::Undo => f.write_str("undo"),
            Self::Kill => f.write_str("kill"),
        }
    }
}

/// Fault of the store, beginning with a chosen append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFault {
    /// The store refuses this append, and then works again.
    RefusesOnce,
    /// The store refuses this append and all later appends, as if the disk were full.
    Refuses,
    /// Like `Refuses`, but a user also stops the turn at the same moment.
    RefusesAtStop,
    /// The store does not answer, and a user stops the turn. After the time limit of the stop, the store writes and
    /// answers.
    AnswersLate,
    /// Like `AnswersLate`, but the store delays the ending of the stopped turn instead of this append.
    EndsLate,
    /// Like `AnswersLate`, but the store has then written nothing. Callers that still wait get the error that the
    /// result is unknown.
    Forgets,
}

impl StoreFault {
    /// Every fault.
    pub const ALL: [Self; 6] = [
        Self::RefusesOnce,
        Self::Refuses,
        Self::RefusesAtStop,
        Self::AnswersLate,
        Self::EndsLate,
        Self::Forgets,
    ];

    /// True if the store gives no answer for some time.
    pub(crate) fn stalls(self) -> bool {
        matches!(self, Self::AnswersLate | Self::EndsLate | Self::Forgets)
    }

    /// True if a user stops the turn when the store fails.
    pub(crate) fn has_stop(self) -> bool {
        self == Self::RefusesAtStop || self.stalls()
    }

    fn describe(self) -> &'static str {
        match self {
            Self::RefusesOnce => "the store refuses this append",
            Self::Refuses => "the store refuses this append and all that follow",
            Self::RefusesAtStop => "the store refuses every append, and a user stops the turn",
            Self::AnswersLate => {
                "the store does not answer before the time of a user's stop is over"
            }
            Self::EndsLate => {
                "a user stops the turn, and the store does not answer the turn's ending"
            }
            Self::Forgets => {
                "the store does not answer, a user stops the turn, and nothing is written"
            }
        }
    }
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RefusesOnce => "refuses_once",
            Self::Refuses => "refuses",
            Self::RefusesAtStop => "refuses_at_stop",
            Self::AnswersLate => "answers_late",
            Self::EndsLate => "ends_late",
            Self::Forgets => "forgets",
        })
    }
}

/// Reason why a text is not the name of a method.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no way to stop: write turn:user, call:user, process:shutdown, drop, deadline, again+1, wider+1, force+1, store:refuses, send:interrupt, close, undo or kill"
)]
pub struct UnknownStopMethod(String);

impl FromStr for StopMethod {
    type Err = UnknownStopMethod;

    fn from_str(text: &str) -> Result<Self, UnknownStopMethod> {
        // Only methods with a second stop contain a number.
        let after = text
            .split_once('+')
            .and_then(|(_, after)| after.parse().ok());
        let mut all = Self::all(after.unwrap_or_default());
        all.find(|method| method.to_string() == text)
            .ok_or_else(|| UnknownStopMethod(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_methods_parse_as_they_are_printed() {
        for method in StopMethod::all(1).chain(StopMethod::all(30)) {
            assert_eq!(method.to_string().parse::<StopMethod>().unwrap(), method);
        }
        assert!("turn:nobody".parse::<StopMethod>().is_err());
        assert!("again".parse::<StopMethod>().is_err());
    }
}
