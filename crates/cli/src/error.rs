//! Failure of a command: one line, an optional hint, and the exit code.

use std::io;
use std::path::Path;

use allstop_agent::{TurnError, TurnErrorKind};
use allstop_core::StopReason;
use allstop_runtime::{ConfigError, Envelope, StartError};

use crate::shell_quote::quoted;

/// Failure of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CliError {
    /// The message, a single line.
    pub(crate) message: String,
    /// The remedy; may have several lines.
    pub(crate) hint: Option<String>,
    /// 2 for a usage error, 1 for a failure.
    pub(crate) code: u8,
}

impl CliError {
    /// Error for invalid flags or configuration; no work was started.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
            code: 2,
        }
    }

    /// Error for a feature that this binary was built without.
    pub(crate) fn not_built(subject: &str, feature: &str) -> Self {
        Self::usage(format!(
            "{subject}: this program was built without the feature `{feature}`"
        ))
        .hint(format!(
            "use a released `allstop`, or build it with `--features {feature}`"
        ))
    }

    /// Error for a failure at run time.
    pub(crate) fn failure(message: impl Into<String>) -> Self {
        Self {
            code: 1,
            ..Self::usage(message)
        }
    }

    /// Adds the remedy.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Error for a file that a flag names and that cannot be written. `what` describes its purpose, such as `the
    /// output`.
    pub(crate) fn unwritable(flag: &str, what: &str, path: &Path, error: &io::Error) -> Self {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let (why, hint) = match (error.kind(), folder) {
            (io::ErrorKind::NotFound, Some(folder)) => (
                format!("the folder `{}` does not exist", folder.display()),
                format!(
                    "make it: mkdir -p {}; or name another file: {flag} FILE",
                    quoted(&folder.to_string_lossy())
                ),
            ),
            (io::ErrorKind::PermissionDenied, _) => (
                "permission denied".to_owned(),
                format!("name a file in a folder where you can write: {flag} FILE"),
            ),
            (io::ErrorKind::IsADirectory, _) => (
                "it is a folder".to_owned(),
                format!("name a file in it: {flag} FILE"),
            ),
            _ => (error.to_string(), format!("name another file: {flag} FILE")),
        };
        Self::usage(format!(
            "{what} `{}` cannot be written: {why}",
            path.display()
        ))
        .hint(hint)
    }

    /// Envelope (the JSON object that `run --json` prints) of a run that failed to start because of this error. Usage
    /// errors have no envelope.
    pub(crate) fn envelope(&self) -> Option<String> {
        if self.code == 2 {
            return None;
        }
        let error = TurnError {
            kind: TurnErrorKind::System,
            message: self.message.clone(),
            hint: self.hint.clone(),
        };
        let envelope = Envelope::of_no_run(None, StopReason::Error, Some(error));
        serde_json::to_string(&envelope).ok()
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        Self {
            code: error.kind.exit_code(),
            message: error.message,
            hint: error.hint,
        }
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        StartError::from(error).into()
    }
}

impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> Self {
        Self::failure(format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the message was only `entity not found`. It named neither the file nor the folder nor the flag.
    #[test]
    fn a_file_that_cannot_be_written_has_its_flag_and_its_remedy() {
        let problem = |kind: io::ErrorKind| {
            let path = Path::new("no such/r.json");
            CliError::unwritable("--receipt-file", "the receipt file", path, &kind.into())
        };
        let missing = problem(io::ErrorKind::NotFound);
        assert_eq!(
            missing.message,
            "the receipt file `no such/r.json` cannot be written: the folder `no such` does not exist"
        );
        assert_eq!(
            missing.hint.as_deref(),
            Some("make it: mkdir -p 'no such'; or name another file: --receipt-file FILE")
        );
        let denied = problem(io::ErrorKind::PermissionDenied);
        assert!(denied.message.ends_with("permission denied"), "{denied:?}");
        assert!(denied.hint.unwrap().contains("--receipt-file FILE"));
    }
}
