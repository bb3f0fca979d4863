//! A case in which something was broken, as people read it: what, where, how to see it again.

use std::fmt;

use allstop_core::{CauseKind, Extent};

use super::aftermath::Aftermath;
use super::point::Point;
use super::replay::{CaseName, VARIABLE};
use super::way::Way;
use crate::check::{CHECKERS, Invariant, SESSION_CHECKERS, Violation};

/// How many points before a failure are shown: enough to see which step of the turn it is.
const POINTS_BEFORE: usize = 16;

/// How many points after it: enough for the ladder of a stop and the ending of the turn.
const POINTS_AFTER: usize = 24;

/// A case in which something was broken.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The case, for seeing it again; none where the scenario is broken without a stop.
    pub case: Option<CaseName>,
    /// What was broken.
    pub violations: Vec<Violation>,
    pub(super) point: Option<Point>,
    /// Those around it.
    points: Vec<Point>,
}

impl Failure {
    pub(crate) fn of_case(
        case: CaseName,
        point: &Point,
        aftermath: &Aftermath,
        violations: Vec<Violation>,
    ) -> Self {
        let points = if violations.is_empty() {
            Vec::new()
        } else {
            let from = (point.number as usize).saturating_sub(POINTS_BEFORE);
            let all = aftermath.points.iter().skip(from);
            all.take(POINTS_BEFORE + POINTS_AFTER).cloned().collect()
        };
        Self {
            case: Some(case),
            violations,
            point: Some(point.clone()),
            points,
        }
    }

    pub(crate) fn of_undisturbed(violations: Vec<Violation>) -> Self {
        Self {
            case: None,
            violations,
            point: None,
            points: Vec::new(),
        }
    }

    /// What falls on a point: the stop, or the second one.
    fn mark(&self, point: &Point) -> Option<&'static str> {
        let (first, way) = (self.point.as_ref()?, self.case.as_ref()?.way);
        let later = point.number.checked_sub(first.number)?;
        match way.second_after() {
            _ if later == 0 => Some("stopped here"),
            Some(after) if later == after => Some("and here the second time"),
            _ => None,
        }
    }

    /// The points around it. Polls in a row say nothing by themselves and are one line.
    fn write_points(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_poll = |point: &Point| !point.is_semantic() && self.mark(point).is_none();
        for row in self.points.chunk_by(|a, b| is_poll(a) && is_poll(b)) {
            let Some(point) = row.first() else { continue };
            match self.mark(point) {
                Some(mark) => writeln!(f, "  > {point}   <- {mark}")?,
                None if is_poll(point) => writeln!(f, "      … polls: {}", row.len())?,
                None => writeln!(f, "    {point}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The broken rule is read first: without it nothing says what to look for in the rest.
        for Violation {
            checker,
            invariant,
            what,
            ..
        } in &self.violations
        {
            writeln!(f, "  {checker}: {what}")?;
            if CHECKERS
                .iter()
                .chain(&SESSION_CHECKERS)
                .any(|known| known.name == *checker)
            {
                writeln!(f, "    (the promise: {})", in_plain(*invariant))?;
            }
        }
        match (&self.case, &self.point) {
            (Some(CaseName { way, .. }), Some(point)) => {
                writeln!(f, "\n  stopped at {point}")?;
                writeln!(f, "  by {way}: {}", in_words(*way))?;
            }
            _ => writeln!(f, "\n  without any stop")?,
        }
        if !self.points.is_empty() {
            writeln!(f)?;
            self.write_points(f)?;
        }
        match &self.case {
            Some(case) => {
                let quoted = case.to_string().replace('\'', r"'\''");
                writeln!(f, "\n  see it again: {VARIABLE}='{quoted}' cargo test")
            }
            None => Ok(()),
        }
    }
}

/// A promise without its number, which says nothing to somebody who has not read the list.
fn in_plain(promise: Invariant) -> String {
    let text = promise.to_string();
    text.trim_start_matches(|char: char| char == ' ' || char.is_ascii_digit())
        .to_owned()
}

/// What a way to stop does, for somebody who meets its name for the first time.
fn in_words(way: Way) -> String {
    match way {
        Way::Stop(Extent::Turn, CauseKind::User) => "a user stops the turn".to_owned(),
        Way::Stop(extent, cause) => format!("a stop of the {extent}, with cause {cause}"),
        Way::Drop => "whoever waits for the run goes away".to_owned(),
        Way::Deadline => "a deadline passes".to_owned(),
        Way::Again(after) => format!("a user stops the turn, and again {after} points later"),
        Way::Wider(after) => {
            format!("a user stops the turn, and the process shuts down {after} points later")
        }
        Way::Force(after) => {
            format!("a user stops the turn, and does not wait for the grace {after} points later")
        }
        Way::Store(fault) => fault.in_words().to_owned(),
        Way::Send(policy) => format!("a message is sent that is to {policy}"),
        Way::Close => "the session is closed".to_owned(),
        Way::Undo => "the last turn is to be taken back".to_owned(),
        Way::Kill => "kill -9 of the process".to_owned(),
    }
}
