//! A line of the output of `allstop doctor`.

use allstop_terminal::{Style, Styled, Symbol, TextRole, TextTable, styled};
use serde::Serialize;

use crate::error::CliError;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckState {
    Good,
    /// A run is possible, but without a part that the user may expect.
    Warning,
    /// The problem prevents a run.
    Bad,
}

/// Result of the check of one part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct DoctorRow {
    pub(super) name: &'static str,
    pub(super) state: CheckState,
    pub(super) message: String,
    /// Advice, which may have several lines.
    pub(super) hint: Option<String>,
}

/// Advice on a problem without a specific remedy.
const REPEAT: &str = "fix this, then run `allstop doctor` again";

impl DoctorRow {
    pub(super) fn good(name: &'static str, message: impl Into<String>) -> Self {
        Self {
            name,
            state: CheckState::Good,
            message: message.into(),
            hint: None,
        }
    }

    pub(super) fn warning(name: &'static str, message: impl Into<String>, hint: &str) -> Self {
        Self {
            state: CheckState::Warning,
            hint: Some(hint.to_owned()),
            ..Self::good(name, message)
        }
    }

    pub(super) fn bad(name: &'static str, message: impl Into<String>, hint: &str) -> Self {
        Self {
            state: CheckState::Bad,
            ..Self::warning(name, message, hint)
        }
    }

    pub(super) fn of_problem(name: &'static str, problem: &CliError) -> Self {
        Self {
            state: CheckState::Bad,
            hint: Some(problem.hint.clone().unwrap_or_else(|| REPEAT.to_owned())),
            ..Self::good(name, &problem.message)
        }
    }
}

/// Renders the rows. The advice on a problem follows below its row.
pub(super) fn render(rows: &[DoctorRow], style: Style, columns: usize) -> Styled {
    let mut table = TextTable::default();
    for row in rows {
        let (role, sign) = match row.state {
            CheckState::Good => (TextRole::Good, style.symbol(Symbol::Good)),
            CheckState::Warning => (TextRole::Warning, "!"),
            CheckState::Bad => (TextRole::Bad, style.symbol(Symbol::Bad)),
        };
        let sign = style.paint(role, sign);
        table.row([styled![sign, " ", row.name], row.message.as_str().into()]);
        for hint in row.hint.iter().flat_map(|hint| hint.lines()) {
            let hint = style.paint(TextRole::Dim, format_args!("to do: {hint}"));
            table.row([Styled::default(), hint]);
        }
    }
    table.render_in(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_stands_below_what_is_wrong() {
        let rows = [
            DoctorRow::good("store", "it opens"),
            DoctorRow::bad("model", "no model", "name one\nor set a key"),
            DoctorRow::warning("terminal", "dumb", "set TERM"),
        ];
        let shown = render(&rows, Style::new(false, true), usize::MAX);
        assert_eq!(
            shown.shown(),
            "✓ store     it opens\n✗ model     no model\n            to do: name one\n            to do: or set a key\n! terminal  dumb\n            to do: set TERM\n"
        );
    }
}
