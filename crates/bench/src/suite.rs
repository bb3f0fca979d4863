//! The figures of one benchmark program.

use std::process::ExitCode;

use crate::figure::Figure;
use crate::row::FigureRow;

/// The figures of one benchmark program: measures each figure, prints its rows, and counts the missed goals.
#[derive(Debug)]
#[must_use = "`finish` tells whether a goal was missed"]
pub struct BenchSuite {
    words: Vec<String>,
    rows_printed: usize,
    missed: usize,
}

impl BenchSuite {
    /// Selects the figures whose name contains one of the program's arguments. Without arguments, selects all figures.
    pub fn from_args() -> Self {
        // Ignore `--bench`, which Cargo adds.
        let words = std::env::args()
            .skip(1)
            .filter(|word| !word.starts_with('-'));
        Self::of_words(words.collect())
    }

    fn of_words(words: Vec<String>) -> Self {
        Self {
            words,
            rows_printed: 0,
            missed: 0,
        }
    }

    /// True if the figure with this name is selected.
    pub fn wants(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word))
    }

    /// If a figure is selected, measures it and prints its rows.
    pub fn run(&mut self, figure: Figure<'_>) {
        if self.wants(&figure.name) {
            for row in figure.measure() {
                self.print(&row);
            }
        }
    }

    /// Prints a counted value with its upper limit.
    pub fn count(&mut self, name: &str, found: f64, at_most: Option<f64>) {
        if self.wants(name) {
            self.print(&FigureRow::count(name, found, at_most));
        }
    }

    /// Exit code of the program. The code reports a failure if a goal was missed.
    pub fn finish(self) -> ExitCode {
        ExitCode::from(u8::from(self.missed > 0))
    }

    #[expect(clippy::print_stdout, reason = "rows are the output of a benchmark")]
    fn print(&mut self, row: &FigureRow) {
        if self.rows_printed == 0 {
            println!("{}", FigureRow::heading());
        }
        self.rows_printed += 1;
        self.missed += usize::from(row.missed());
        println!("{row}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_select_figures() {
        let suite = |words: &[&str]| {
            BenchSuite::of_words(words.iter().map(|word| (*word).to_owned()).collect())
        };
        assert!(suite(&[]).wants("a durable step"));
        assert!(suite(&["stop", "step"]).wants("a durable step"));
        assert!(!suite(&["stop"]).wants("a durable step"));
    }

    #[test]
    fn a_missed_goal_fails_the_program() {
        let code = |found| {
            let mut suite = BenchSuite::of_words(Vec::new());
            suite.count("syncs", found, Some(4.0));
            suite.finish()
        };
        assert_eq!(code(4.0), ExitCode::SUCCESS);
        assert_eq!(code(5.0), ExitCode::FAILURE);
    }
}
