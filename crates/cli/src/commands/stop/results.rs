//! Answers of `allstop stop`.

use allstop_core::{Receipt, SessionId, StopReason};
use serde::Serialize;

use crate::error::CliError;

/// Result of the stop of one session, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct SessionStopLine {
    pub(super) schema: &'static str,
    pub(super) session_id: SessionId,
    /// Stop reason of the last turn, if the session ended before the stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stop_reason: Option<StopReason>,
    pub(super) receipt: Receipt,
}

impl SessionStopLine {
    pub(super) fn new(session_id: SessionId, receipt: Receipt) -> Self {
        Self {
            schema: "allstop.stop/1",
            session_id,
            stop_reason: None,
            receipt,
        }
    }
}

/// Results of the stopped sessions, and failures with the work that could not be stopped.
#[derive(Debug, Default)]
pub(super) struct StopResults {
    pub(super) answers: Vec<SessionStopLine>,
    pub(super) problems: Vec<CliError>,
}
