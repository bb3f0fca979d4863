//! The error of a configuration file, in one line.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Error of a configuration file, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Path of the file.
    pub file: PathBuf,
    /// Line and column, counted from 1; `None` if unknown. The column counts characters.
    pub at: Option<(usize, usize)>,
    /// The error, and the expected value.
    pub message: String,
    /// Remedy.
    pub hint: String,
}

/// Hint that refers to the description of all keys.
const HINT: &str = "`allstop schema config` describes every key";

impl ConfigError {
    pub(super) fn of_file(file: &Path, message: impl Into<String>, hint: &str) -> Self {
        Self {
            file: file.to_owned(),
            at: None,
            message: one_line(&message.into()),
            hint: hint.to_owned(),
        }
    }

    /// Error at a byte range of the text.
    pub(super) fn at(file: &Path, text: &str, span: Option<Range<usize>>, message: &str) -> Self {
        Self {
            at: span.map(|span| line_and_column(text, span.start)),
            ..Self::of_file(file, message, HINT)
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ConfigError {}

fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join(", ")
}

/// Returns the line and column of a byte, both counted from 1.
pub(super) fn line_and_column(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    (line, column)
}
