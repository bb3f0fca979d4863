//! Name of one case: `scenario/point/method`. A case is a run that is stopped at a point by a method, and its name
//! repeats a failure.

use std::fmt;
use std::io::Write as _;
use std::str::FromStr;

use crate::stop_method::{StopMethod, UnknownStopMethod};

/// Environment variable that limits an exploration to one case: `ALLSTOP_EXPLORE=parallel_tools/34/turn:user`.
pub const VARIABLE: &str = "ALLSTOP_EXPLORE";

/// One case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseName {
    /// The scenario.
    pub scenario: String,
    /// The number of the point.
    pub point: u32,
    /// Method of the stop.
    pub method: StopMethod,
}

impl fmt::Display for CaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.scenario, self.point, self.method)
    }
}

/// Reason why a text is not the name of a case.
#[derive(Debug, thiserror::Error)]
pub enum UnknownCase {
    /// The text does not have three parts.
    #[error("{0:?} is no case: write scenario/point/way, as a failure prints it")]
    Form(String),
    /// The method is unknown.
    #[error(transparent)]
    StopMethod(#[from] UnknownStopMethod),
}

impl FromStr for CaseName {
    type Err = UnknownCase;

    fn from_str(text: &str) -> Result<Self, UnknownCase> {
        let form = || UnknownCase::Form(text.to_owned());
        // The scenario's name may contain slashes.
        let mut parts = text.rsplitn(3, '/');
        let method = parts.next().ok_or_else(form)?;
        let point = parts.next().ok_or_else(form)?;
        let scenario = parts.next().ok_or_else(form)?;
        Ok(Self {
            scenario: scenario.to_owned(),
            point: point.parse().map_err(|_| form())?,
            method: method.parse()?,
        })
    }
}

/// The case that the environment variable names; `None` if the variable is not set.
///
/// # Panics
/// Panics if the variable does not name a case. An exploration of all cases would hide the mistake.
pub(crate) fn asked_for() -> Option<CaseName> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a failure is seen again from the command line of any test runner"
    )]
    let text = std::env::var(VARIABLE).ok()?;
    match text.parse() {
        Ok(case) => Some(case),
        Err(wrong) => panic!("{VARIABLE}: {wrong}"),
    }
}

/// True if this scenario is to be explored: the environment names no case, or a case of this scenario.
pub(crate) fn is_asked_for(scenario: &str) -> bool {
    asked_for().is_none_or(|case| case.scenario == scenario)
}

/// Prints on standard error that a scenario was skipped. Otherwise a skipped scenario would look like a scenario
/// without failures.
pub(crate) fn print_skipped(scenario: &str) {
    let said = format!("{scenario}: skipped, because {VARIABLE} asks for another case\n");
    // Ignores a failed write.
    let _written = std::io::stderr().write_all(said.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_parse_as_they_are_printed() {
        let case = CaseName {
            scenario: "agents/parallel tools".to_owned(),
            point: 34,
            method: StopMethod::Again(2),
        };
        assert_eq!(case.to_string(), "agents/parallel tools/34/again+2");
        assert_eq!(case.to_string().parse::<CaseName>().unwrap(), case);
        assert!("parallel/x/drop".parse::<CaseName>().is_err());
    }
}
