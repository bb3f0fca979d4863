//! A case with broken promises, as text for people: the violations, the points, and the command that repeats the case.

use std::fmt;

use super::case_name::{CaseName, VARIABLE};
use crate::check::CHECKERS;
use crate::observe::Point;
use crate::violation::Violation;

/// Number of points before the failure that the report shows. This is enough to see the step of the turn.
const POINTS_BEFORE: usize = 16;

/// Number of points after the failure that the report shows. This is enough to see all steps of the stop and the ending
/// of the turn.
const POINTS_AFTER: usize = 24;

/// A case with broken promises.
#[derive(Debug, Clone, Default)]
pub struct Failure {
    /// The case with which the failure can be repeated; `None` if the scenario is broken even without a stop.
    pub case: Option<CaseName>,
    /// Promises that were broken.
    pub violations: Vec<Violation>,
    pub(super) point: Option<Point>,
    /// The points around the failure.
    points: Vec<Point>,
    /// For a failure that does not belong to a point: the place of the failure, and the variable that repeats the
    /// failure.
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

    /// A failure at a random moment. `replay` is the variable, with its value, that repeats the failure.
    pub(crate) fn of_moment(place: String, replay: String, violations: Vec<Violation>) -> Self {
        Self {
            moment: Some((place, replay)),
            violations,
            ..Self::default()
        }
    }

    /// Mark that the report shows at a point: the point of the stop, or the point of the second stop.
    fn mark(&self, point: &Point) -> Option<&'static str> {
        let (first, method) = (self.point.as_ref()?, self.case.as_ref()?.method);
        let later = point.number.checked_sub(first.number)?;
        match method.second_after() {
            _ if later == 0 => Some("stopped here"),
            Some(after) if later == after => Some("and here the second time"),
            _ => None,
        }
    }

    /// Writes the points around the failure. Polls that follow each other share one line, because a single poll has no
    /// meaning.
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
        // The broken rule comes first, because it explains the other lines.
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
                writeln!(f, "  by {method}: {}", method.describe())?;
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
