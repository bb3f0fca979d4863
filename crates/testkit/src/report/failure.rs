//! A case in which something was broken, as people read it: what, where, how to see it again.

use std::fmt;

use super::case_name::{CaseName, VARIABLE};
use crate::check::CHECKERS;
use crate::observe::Point;
use crate::violation::Violation;

/// Number of points that are shown before a failure: enough to see which step of the turn it is.
const POINTS_BEFORE: usize = 16;

/// Number of points that are shown after it: enough for the ladder of a stop and the ending of the turn.
const POINTS_AFTER: usize = 24;

/// A case in which something was broken.
#[derive(Debug, Clone, Default)]
pub struct Failure {
    /// The case, for seeing it again; none where the scenario is broken without a stop.
    pub case: Option<CaseName>,
    /// Promises that were broken.
    pub violations: Vec<Violation>,
    pub(super) point: Option<Point>,
    /// Those around it.
    points: Vec<Point>,
    /// Place of a failure that is not at a point, and the variable that repeats it.
    moment: Option<(String, String)>,
}

impl Failure {
    pub(crate) fn of_case(
        case: CaseName,
        point: &Point,
        all: &[Point],
        violations: Vec<Violation>,
    ) -> Self {
        let points = if violations.is_empty() {
            Vec::new()
        } else {
            let from = (point.number as usize).saturating_sub(POINTS_BEFORE);
            let around = all.iter().skip(from);
            around.take(POINTS_BEFORE + POINTS_AFTER).cloned().collect()
        };
        Self {
            case: Some(case),
            violations,
            point: Some(point.clone()),
            points,
            moment: None,
        }
    }

    pub(crate) fn of_undisturbed(violations: Vec<Violation>) -> Self {
        Self {
            violations,
            ..Self::default()
        }
    }

    /// A failure at a random moment. `replay` is the variable that has it again, with its value.
    pub(crate) fn of_moment(place: String, replay: String, violations: Vec<Violation>) -> Self {
        Self {
            moment: Some((place, replay)),
            violations,
            ..Self::default()
        }
    }

    /// Mark of a point on which the stop falls, or the second one.
    fn mark(&self, point: &Point) -> Option<&'static str> {
        let (first, method) = (self.point.as_ref()?, self.case.as_ref()?.method);
        let later = point.number.checked_sub(first.number)?;
        match method.second_after() {
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
            if CHECKERS.iter().any(|known| known.name == *checker) {
                writeln!(f, "    (the promise: {invariant})")?;
            }
        }
        if let Some((place, replay)) = &self.moment {
            return writeln!(f, "\n  {place}\n\n  see it again: {replay} cargo test");
        }
        match (&self.case, &self.point) {
            (Some(CaseName { method, .. }), Some(point)) => {
                writeln!(f, "\n  stopped at {point}")?;
                writeln!(f, "  by {method}: {}", method.in_words())?;
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
