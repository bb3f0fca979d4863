//! Failure of a command: one line, an optional hint, and the kind, which decides the exit code.

use std::io;
use std::path::Path;

use allstop_agent::{TurnError, TurnErrorKind};
use allstop_core::StopReason;
use allstop_runtime::{ConfigError, Envelope, StartError, StartErrorKind};
use serde::Serialize;

use crate::json_document::DocumentSchema;
use crate::shell_quote::quoted;

/// Failure of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CliError {
    /// The message, a single line.
    pub(crate) message: String,
    /// The remedy; may have several lines.
    pub(crate) hint: Option<String>,
    /// Kind of the failure.
    pub(crate) kind: CliErrorKind,
}

/// Kinds of failure, for scripts. Each kind has one exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CliErrorKind {
    /// Flags, files or the configuration are wrong. Nothing was done.
    Usage,
    /// Nothing has the given id or name.
    NotFound,
    /// Another process uses the session or the store. The same command can succeed later.
    Busy,
    /// Any other failure.
    Failed,
}

impl CliErrorKind {
    /// The exit code of the command.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Usage | Self::NotFound => 2,
            Self::Busy | Self::Failed => 1,
        }
    }
}

/// Form of the JSON that a command prints after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorForm {
    /// No JSON: people read the output.
    Text,
    /// The object of [`DocumentSchema::Error`].
    Document,
    /// The envelope of a run: the JSON object with its result. A usage error has no envelope, but the object of
    /// [`DocumentSchema::Error`].
    Envelope,
}

/// Keys of the object of [`DocumentSchema::Error`].
#[derive(Debug, Serialize)]
pub(crate) struct ErrorKeys<'a> {
    error: ErrorReport<'a>,
    exit_code: u8,
}

/// A failure in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorReport<'a> {
    kind: CliErrorKind,
    message: &'a str,
    hint: Option<&'a str>,
}

impl CliError {
    /// Error for invalid flags or configuration; no work was started.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
            kind: CliErrorKind::Usage,
        }
    }

    /// Error for an id or a name that nothing has.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::usage(message).kind(CliErrorKind::NotFound)
    }

    /// Sets the kind.
    #[must_use]
    pub(crate) fn kind(mut self, kind: CliErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// The exit code of the command.
    pub(crate) fn code(&self) -> u8 {
        self.kind.exit_code()
    }

    /// True if nothing has the given id or name.
    pub(crate) fn is_not_found(&self) -> bool {
        self.kind == CliErrorKind::NotFound
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
        Self::usage(message).kind(CliErrorKind::Failed)
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

    /// The failure as JSON in this form; `None` for [`ErrorForm::Text`].
    pub(crate) fn json(&self, form: ErrorForm) -> Option<String> {
        match form {
            ErrorForm::Text => None,
            ErrorForm::Envelope if self.code() != 2 => self.envelope(),
            ErrorForm::Document | ErrorForm::Envelope => {
                let keys = ErrorKeys {
                    error: self.report(),
                    exit_code: self.code(),
                };
                Some(DocumentSchema::Error.line(&keys))
            }
        }
    }

    /// The failure as a part of a JSON object.
    pub(crate) fn report(&self) -> ErrorReport<'_> {
        ErrorReport {
            kind: self.kind,
            message: &self.message,
            hint: self.hint.as_deref(),
        }
    }

    /// Envelope of a run that failed to start because of this error.
    fn envelope(&self) -> Option<String> {
        let error = TurnError {
            kind: match self.kind {
                CliErrorKind::Busy => TurnErrorKind::Busy,
                _ => TurnErrorKind::System,
            },
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
            kind: match error.kind {
                StartErrorKind::UnknownSession => CliErrorKind::NotFound,
                StartErrorKind::SessionInUse => CliErrorKind::Busy,
                kind if kind.is_usage() => CliErrorKind::Usage,
                _ => CliErrorKind::Failed,
            },
            message: error.message,
            // The library names the option; a person sets it by a flag.
            hint: error.hint.map(|hint| {
                let option = "the base URL of your own server";
                hint.replace(option, "--base-url with your own server")
            }),
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
