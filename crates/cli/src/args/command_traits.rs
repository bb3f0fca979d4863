//! Properties of a command that decide how the process starts and how it reports a failure.

use std::path::Path;

#[cfg(feature = "mcp-server")]
use super::McpAction;
use super::{CliCommand, SessionsAction, StoreAction, TraceArgs};
use crate::error::ErrorForm;

impl CliCommand {
    /// File that replaces standard output.
    pub(crate) fn output_file(&self) -> Option<&Path> {
        match self {
            Self::Run(args) => args.files.output.as_deref(),
            _ => None,
        }
    }

    /// File for the receipt of a run.
    pub(crate) fn receipt_file(&self) -> Option<&Path> {
        match self {
            Self::Run(args) => args.files.receipt_file.as_deref(),
            _ => None,
        }
    }

    /// Flags of the traces; `None` for a command without traces.
    pub(crate) fn traces(&self) -> Option<&TraceArgs> {
        match self {
            Self::Run(args) => Some(&args.traces),
            Self::Chat(args) => Some(&args.with.traces),
            Self::Serve(args) => Some(&args.execution.traces),
            #[cfg(feature = "nats")]
            Self::Worker(args) => Some(&args.execution.traces),
            #[cfg(feature = "copilot")]
            Self::Copilot(args) => Some(&args.traces),
            Self::Sessions(args) => match &args.command {
                SessionsAction::Resume(args) => Some(&args.with.traces),
                SessionsAction::Look(_) => None,
            },
            _ => None,
        }
    }

    /// True for the server of programs that use a Copilot SDK.
    pub(crate) fn serves_programs(&self) -> bool {
        #[cfg(feature = "copilot")]
        if let Self::Copilot(_) = self {
            return true;
        }
        false
    }

    /// True if the command runs agents, whose tools start other programs.
    pub(crate) fn runs_agents(&self) -> bool {
        match self {
            Self::Run(_) | Self::Chat(_) | Self::Serve(_) | Self::Demo(_) => true,
            #[cfg(feature = "nats")]
            Self::Worker(_) => true,
            #[cfg(feature = "copilot")]
            Self::Copilot(_) => true,
            #[cfg(feature = "mcp-server")]
            Self::Mcp(args) => matches!(args.action, McpAction::Serve(_)),
            Self::Sessions(args) => matches!(args.command, SessionsAction::Resume(_)),
            _ => false,
        }
    }

    /// True if the command prints a result on standard output; false if it serves clients or a user at the terminal.
    pub(crate) fn prints_result(&self) -> bool {
        let is_run = matches!(self, Self::Run(_));
        is_run || !(self.runs_agents() || matches!(self, Self::Init(_)))
    }

    /// True if only errors and questions go to standard error.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self, Self::Run(args) if args.files.quiet)
    }

    /// Form of the JSON that the caller expects after a failure.
    pub(crate) fn error_form(&self) -> ErrorForm {
        let wants_json = match self {
            Self::Run(args) if args.output.json || args.output.stream_json => {
                return ErrorForm::Envelope;
            }
            Self::Chat(args) => args.with.json || args.with.stream_json,
            Self::Ps(args) => args.json,
            Self::Stop(args) => args.shown.json,
            Self::Watch(args) => args.json,
            Self::Receipt(args) => args.shown.json,
            #[cfg(feature = "nats")]
            Self::Workers(args) => args.json,
            Self::Tasks(args) => args.command.wants_json(),
            Self::Demo(args) => args.json,
            Self::Sessions(args) => match &args.command {
                SessionsAction::Look(command) => command.wants_json(),
                SessionsAction::Resume(args) => args.with.json || args.with.stream_json,
            },
            Self::Store(args) => matches!(args.action, StoreAction::Check { json: true }),
            Self::Doctor(args) => args.json,
            _ => false,
        };
        if wants_json {
            ErrorForm::Document
        } else {
            ErrorForm::Text
        }
    }
}
