//! The effect of a tool call, for people: the change of a file as a unified diff. The diff exists before the call, as a
//! preview, and after the call.
//!
//! The model never receives the diff, which is separate from the text for the model. The tool computes the diff:
//! [`Tool::preview`](crate::Tool::preview) for the person who is asked to permit the call, and
//! [`CallLink::changed`](crate::CallLink::changed) after the call.

#[cfg(feature = "shell")]
mod diff;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "shell")]
pub(crate) use diff::{DiffLimits, file_change};

/// Effect that a tool call would have, as far as the tool can determine the effect without running the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectPreview {
    /// The call would change a file.
    Change(FileChange),
    /// The tool cannot determine the effect.
    Unavailable {
        /// Reason, for people. Not escaped.
        reason: String,
    },
}

/// Change of a file, as a unified diff for people. Texts are file content and not escaped: escape them before display.
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

/// One line of a unified diff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffLine {
    /// Kind of line.
    pub kind: DiffLineKind,
    /// Text of the line, without the sign and the line end.
    pub text: String,
}

/// Kind of a line of a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiffLineKind {
    /// Position of the following lines: `@@ -1,3 +1,4 @@`.
    Place,
    /// Unchanged.
    Context,
    /// Added.
    Added,
    /// Removed.
    Removed,
    /// A remark that the previous line has no line end.
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
