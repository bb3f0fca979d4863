//! The effect of a call for people: the change of a file as a unified diff, before the call runs and after it.
//!
//! It is beside the text for the model, which never gets it. A tool computes it: [`Tool::preview`](crate::Tool::preview)
//! for the person who is asked to permit the call, and [`CallLink::changed`](crate::CallLink::changed) when it is done.

mod diff;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use diff::file_change;

/// Effect that a call would have, as far as its tool can tell without doing it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectPreview {
    /// It would change a file.
    Change(FileChange),
    /// The tool cannot tell.
    Unavailable {
        /// Reason, for people. Not escaped.
        reason: String,
    },
}

/// Change of a file, as a unified diff for people. Texts are as they are in the file: whoever shows them escapes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// The file, as the tool names it.
    pub path: String,
    /// Number of added lines.
    pub added: usize,
    /// Number of removed lines.
    pub removed: usize,
    /// Lines of the diff, bounded.
    pub lines: Vec<DiffLine>,
    /// Lines of the diff that are not in `lines`.
    pub lines_left_out: usize,
    /// Reason for a diff without lines: the content is no text, or too long.
    pub note: Option<String>,
}

impl FileChange {
    /// A change without a diff, with the reason.
    pub(crate) fn without_lines(path: &str, note: String) -> Self {
        Self {
            path: path.to_owned(),
            added: 0,
            removed: 0,
            lines: Vec::new(),
            lines_left_out: 0,
            note: Some(note),
        }
    }
}

/// One line of a unified diff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffLine {
    /// Kind of line.
    pub kind: DiffLineKind,
    /// Its text, without the sign and the line end.
    pub text: String,
}

/// Kind of a line of a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiffLineKind {
    /// Place of the lines that follow: `@@ -1,3 +1,4 @@`.
    Place,
    /// Unchanged.
    Context,
    /// Added.
    Added,
    /// Removed.
    Removed,
    /// A remark on the line before: it has no line end.
    Remark,
}

impl DiffLineKind {
    /// The sign in front of such a line.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Place => "",
            Self::Context => " ",
            Self::Added => "+",
            Self::Removed => "-",
            Self::Remark => "\\ ",
        }
    }
}

/// Limits of a diff.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiffLimits {
    /// Maximum number of lines.
    pub(crate) lines_max: usize,
    /// Maximum size of all lines, in bytes.
    pub(crate) bytes_max: usize,
    /// Time after which the rest counts as changed, without a search for equal lines.
    pub(crate) search_time: Duration,
}

impl DiffLimits {
    /// For a question: a person should see all of it before an answer. More than this nobody reads on a terminal.
    pub(crate) const QUESTION: Self = Self {
        lines_max: 10_000,
        bytes_max: 1024 * 1024,
        search_time: Duration::from_secs(1),
    };
    /// For the transcript and for events, of which thousands may wait for a slow receiver.
    pub(crate) const EVENT: Self = Self {
        lines_max: 400,
        bytes_max: 32 * 1024,
        search_time: Duration::from_millis(200),
    };
}
