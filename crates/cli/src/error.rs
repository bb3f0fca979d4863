//! Failure of a command: one line, a hint if there is one, and the exit code.

use allstop_agent::{TurnError, TurnErrorKind};
use allstop_core::StopReason;
use allstop_runtime::{ConfigError, Envelope, StartError};

/// Failure of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CliError {
    /// One line.
    pub(crate) message: String,
    /// The remedy; may be several lines.
    pub(crate) hint: Option<String>,
    /// 2 for wrong usage, 1 for a failure.
    pub(crate) code: u8,
}

impl CliError {
    /// Wrong flags or configuration: nothing ran.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
            code: 2,
        }
    }

    /// A failure.
    pub(crate) fn failure(message: impl Into<String>) -> Self {
        Self {
            code: 1,
            ..Self::usage(message)
        }
    }

    /// The same, with what to do about it.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The envelope of a run that this kept from starting, as JSON. Wrong usage has none.
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
