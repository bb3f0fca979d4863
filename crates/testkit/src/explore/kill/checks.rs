//! What must hold of a store whose writer was killed.

use std::collections::BTreeSet;

use allstop_core::StopReason;
use allstop_core::record::SessionRecord as R;
use allstop_core::turn::SessionState;

use super::sessions;
use super::told::Told;
use crate::check::{self, FailureClass, Invariant, Undisturbed, Violation};
use crate::explore::point::{Moment, Point};

/// What a killed process left.
#[derive(Debug)]
pub struct Killed {
    /// The number of the point at which it was killed.
    pub point: u32,
    /// What the same run leaves undisturbed.
    pub undisturbed: Undisturbed,
    /// What its user was told, where it is a session.
    pub told: Told,
    /// The records in its store.
    pub records: Vec<R>,
    /// The records that resuming the session added.
    pub recovered: Vec<R>,
    /// The session, resumed.
    pub state: SessionState,
    /// How the next message ended.
    pub next: Option<StopReason>,
    /// The records when that was over.
    pub records_after_next: Vec<R>,
}

/// One promise about a store whose writer was killed.
#[derive(Debug)]
pub struct KillChecker {
    /// Its name.
    pub name: &'static str,
    /// Which promise.
    pub invariant: Invariant,
    /// What users see where it is broken.
    pub class: FailureClass,
    check: fn(&Killed) -> Result<(), String>,
}

/// Every one of them.
pub const KILL_CHECKERS: [KillChecker; 10] = [
    KillChecker {
        name: "kill_durable",
        invariant: Invariant::NoHalfTurn,
        class: FailureClass::CorruptHistory,
        check: what_was_appended_is_there,
    },
    KillChecker {
        name: "kill_recovery",
        invariant: Invariant::NoHalfTurn,
        class: FailureClass::CorruptHistory,
        check: recovery_ends_the_turn,
    },
    KillChecker {
        name: "kill_journal",
        invariant: Invariant::NoSilentRepeat,
        class: FailureClass::RepeatedEffect,
        check: no_started_call_is_forgotten,
    },
    KillChecker {
        name: "kill_usage",
        invariant: Invariant::NoLostBill,
        class: FailureClass::LostBill,
        check: no_bill_is_lost,
    },
    KillChecker {
        name: "kill_told",
        invariant: Invariant::NoHalfTurn,
        class: FailureClass::LostBill,
        check: sessions::what_was_told_is_there,
    },
    KillChecker {
        name: "kill_background",
        invariant: Invariant::NoSecondEnding,
        class: FailureClass::OrphanWork,
        check: sessions::background_is_accounted_for,
    },
    KillChecker {
        name: "kill_messages",
        invariant: Invariant::NoSecondEnding,
        class: FailureClass::StaleReply,
        check: sessions::no_message_comes_twice,
    },
    KillChecker {
        name: "kill_endings",
        invariant: Invariant::NoSecondEnding,
        class: FailureClass::WorkAfterStop,
        check: |killed| check::endings(&killed.records_after_next),
    },
    KillChecker {
        name: "kill_history",
        invariant: Invariant::NoInvalidHistory,
        class: FailureClass::CorruptHistory,
        check: |killed| check::history(&check::conversation_of(&killed.records_after_next)),
    },
    KillChecker {
        name: "kill_next_message",
        invariant: Invariant::NoInvalidHistory,
        class: FailureClass::CorruptHistory,
        check: the_next_message_works,
    },
];

pub(super) fn check(killed: &Killed) -> Vec<Violation> {
    let broken = KILL_CHECKERS.iter().filter_map(|checker| {
        let what = (checker.check)(killed).err()?;
        Some(Violation {
            checker: checker.name,
            invariant: checker.invariant,
            class: checker.class,
            what,
        })
    });
    broken.collect()
}

/// A store that cannot be gone on with.
pub(super) fn unreadable(what: String) -> Violation {
    Violation {
        checker: "kill_recovery",
        invariant: Invariant::NoHalfTurn,
        class: FailureClass::CorruptHistory,
        what,
    }
}

impl Killed {
    /// The points that it passed, the last one included.
    fn passed(&self) -> &[Point] {
        let len = self.undisturbed.points.len();
        let points = self.undisturbed.points.get(..=self.point as usize);
        points.unwrap_or(self.undisturbed.points.get(..len).unwrap_or_default())
    }

    /// The calls that the store says were open.
    fn open_calls(&self) -> BTreeSet<&str> {
        let mut open = BTreeSet::new();
        for record in &self.records {
            match record {
                R::CallStarted { call, .. } => drop(open.insert(call.id.as_str())),
                R::CallFinished { id, .. } => drop(open.remove(id.as_str())),
                R::TurnCommitted { .. } | R::TurnStopped { .. } => open.clear(),
                _ => {}
            }
        }
        open
    }
}

/// Each append that the log had taken is in the store to the record, and nothing else is.
fn what_was_appended_is_there(killed: &Killed) -> Result<(), String> {
    let durable = killed
        .passed()
        .iter()
        .filter(|point| point.what == "log_append" && point.moment == Moment::Inside);
    let expected = killed.undisturbed.records_before
        + durable
            .map(|point| point.of.split('+').count())
            .sum::<usize>();
    if killed.records.len() != expected {
        return Err(format!(
            "{} records are in the store, {expected} were appended",
            killed.records.len()
        ));
    }
    let mut pairs = killed.records.iter().zip(&killed.undisturbed.records);
    match pairs.find(|(here, there)| check::without_chance(here) != check::without_chance(there)) {
        Some((here, there)) => Err(format!("the store holds {here:?}, appended was {there:?}")),
        None => Ok(()),
    }
}

/// Wherever it is cut, and here: what was committed stays, the open turn ends by a crash, nothing else changes.
fn recovery_ends_the_turn(killed: &Killed) -> Result<(), String> {
    check::recovers_from_everywhere(&killed.records)?;
    if killed.state.conversation().messages != check::conversation_of(&killed.records) {
        return Err("resuming changed the conversation".to_owned());
    }
    if killed.state.open_turn().is_some() {
        return Err("the turn is open after resuming".to_owned());
    }
    let all = [killed.records.as_slice(), &killed.recovered].concat();
    if !killed.records_after_next.starts_with(&all) {
        return Err("the store does not hold what was there and what recovery added".to_owned());
    }
    let is_crash = |record: &R| match record {
        R::TurnStopped { reason, cause, .. } => {
            *reason == StopReason::Error && cause.detail.as_deref() == Some("crash")
        }
        _ => false,
    };
    match killed.recovered.last() {
        Some(ending) if !is_crash(ending) => {
            Err(format!("recovery ended the turn with {ending:?}"))
        }
        _ => Ok(()),
    }
}

/// Whatever had begun is in the journal, and what was open is unknown from then on.
fn no_started_call_is_forgotten(killed: &Killed) -> Result<(), String> {
    let began = killed.passed().iter().filter(|point| point.what == "tool");
    for point in began {
        let written = killed.records.iter().any(
            |record| matches!(record, R::CallStarted { call, .. } if *call.id.as_str() == *point.of),
        );
        if !written {
            return Err(format!("{} began and is not in the store", point.of));
        }
    }
    let unknown: BTreeSet<&str> = match killed.state.turns().last() {
        Some(turn) if !killed.recovered.is_empty() => turn
            .unknown_calls
            .iter()
            .map(|call| call.id.as_str())
            .collect(),
        _ => BTreeSet::new(),
    };
    let open = killed.open_calls();
    if !open.is_subset(&unknown) {
        return Err(format!("open were {open:?}, unknown are {unknown:?}"));
    }
    Ok(())
}

/// What the store had of the bill stays.
fn no_bill_is_lost(killed: &Killed) -> Result<(), String> {
    let (before, after) = (check::metered(&killed.records), killed.state.metered());
    if before == after {
        return Ok(());
    }
    Err(format!(
        "the store said {before:?}, resumed it is {after:?}"
    ))
}

fn the_next_message_works(killed: &Killed) -> Result<(), String> {
    match (killed.next, killed.undisturbed.next_must) {
        (Some(reason), Some(must)) if reason != must => {
            Err(format!("the next message ended with {}", reason.as_str()))
        }
        (None, _) => Err("the next message has no outcome".to_owned()),
        _ => Ok(()),
    }
}
