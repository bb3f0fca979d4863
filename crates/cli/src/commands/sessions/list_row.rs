//! One session of the list.

use std::sync::Arc;

use allstop_core::counted::counted;
use allstop_core::image::text_with_images;
use allstop_core::process::ProcessIdentity;
use allstop_core::record::SessionRecord;
use allstop_core::{SessionId, StopReason, Timestamp, error_chain};
use allstop_log::session::{decode, stream_of};
use allstop_log::{
    ListedSession, Log, LogError, SessionError, SessionSummary, Version, read_session_end,
};
use allstop_runtime::scan_orphans;
use allstop_terminal::TextRole;
use serde::Serialize;

use crate::display::{age, describe_stop_reason};
use crate::host::ProcessHost;
use crate::short_id::short;

/// Number of records that are read from the beginning of a session to find the first prompt. Few records can come
/// before it: the opening, the settings, and notes on work.
const FIRST_RECORDS: usize = 8;

/// A session of the list, as `--json` prints it. Every key is always present.
#[derive(Debug, Serialize)]
pub(super) struct SessionRow {
    pub(super) session_id: SessionId,
    /// Number in the list, from 1. The session with the newest record has number 1.
    pub(super) number: usize,
    /// End of the id: a short form that also identifies the session.
    pub(super) handle: String,
    /// Number of the session's last record.
    version: u64,
    turns: Option<usize>,
    last_stop_reason: Option<StopReason>,
    turn_open: Option<bool>,
    active_at: Option<Timestamp>,
    /// Process that has the session open.
    owner: Option<ProcessIdentity>,
    pub(super) first_prompt: Option<Arc<str>>,
    /// Working folder of the last opening.
    folder: Option<Arc<str>>,
    /// Model of the last opening, if the log contains the model.
    model: Option<Arc<str>>,
    base_url: Option<Arc<str>>,
    /// Background work that runs although no process has the session open.
    left_work: Vec<Arc<str>>,
    problem: Option<String>,
}

impl SessionRow {
    /// Reads the first records of the session, and all records from the last compaction (summary of older turns) on.
    ///
    /// # Errors
    /// If the store fails. The row of an unreadable session contains the problem instead.
    pub(super) async fn read(
        log: &dyn Log,
        number: usize,
        listed: ListedSession,
    ) -> Result<Self, LogError> {
        let summary = SessionSummary::read(log, listed).await?;
        let readable = summary.problem.is_none();
        let mut row = Self {
            number,
            handle: short(summary.id.as_str()).to_owned(),
            session_id: summary.id,
            version: summary.version.0,
            turns: readable.then_some(summary.turns),
            last_stop_reason: summary.last_stop_reason,
            turn_open: readable.then_some(summary.turn_open),
            active_at: summary.active_at,
            owner: summary.owner,
            first_prompt: None,
            folder: None,
            model: None,
            base_url: None,
            left_work: Vec::new(),
            problem: summary.problem.as_ref().map(|problem| error_chain(problem)),
        };
        if readable {
            match row.read_details(log).await {
                Ok(()) => {}
                Err(SessionError::Log(error)) => return Err(error),
                Err(problem) => row.problem = Some(error_chain(&problem)),
            }
        }
        Ok(row)
    }

    async fn read_details(&mut self, log: &dyn Log) -> Result<(), SessionError> {
        let stream = stream_of(&self.session_id);
        let first = log.read(&stream, Version(1), FIRST_RECORDS).await?;
        self.first_prompt = first.iter().find_map(|(_, bytes)| match decode(bytes) {
            Ok(Some(SessionRecord::TurnStarted { input, images, .. })) if input.is_empty() => {
                Some(text_with_images("", images).into())
            }
            Ok(Some(SessionRecord::TurnStarted { input, .. })) => Some(input),
            _ => None,
        });
        let (state, _) = read_session_end(log, &self.session_id).await?;
        self.folder = state.folder().cloned();
        if let Some(settings) = state.settings() {
            self.folder = Some(Arc::clone(&settings.folder));
            self.model.clone_from(&settings.model);
            self.base_url.clone_from(&settings.base_url);
        }
        if self.owner.is_none() {
            let works = scan_orphans(&state).into_iter();
            let left = works.filter(|work| work.alive);
            self.left_work = left.map(|work| work.name).collect();
        }
        Ok(())
    }

    /// Short facts: age, number of turns, stop reason of the last turn unless it completed, model, folder.
    pub(super) fn facts(&self, now: Timestamp) -> Vec<String> {
        let turns = self
            .turns
            .map(|turns| counted(turns as u64, "turn", "turns"));
        let ending = self
            .last_stop_reason
            .filter(|_| self.turn_open == Some(false));
        let ending = ending.filter(|reason| *reason != StopReason::Completed);
        [
            self.active_at.map(|at| age(at, now)),
            turns,
            ending.map(describe_stop_reason),
            self.model.as_deref().map(model_name),
            self.folder.as_deref().map(ProcessHost::below_home),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Notable states, one line per state.
    pub(super) fn state(&self) -> Vec<(TextRole, String)> {
        if let Some(problem) = &self.problem {
            return vec![(TextRole::Bad, problem.clone())];
        }
        let mut said = Vec::new();
        match (&self.owner, self.turn_open == Some(true)) {
            (Some(owner), true) => {
                said.push((
                    TextRole::Good,
                    format!("a turn runs in process {}", owner.pid),
                ));
            }
            (Some(owner), false) => {
                said.push((TextRole::Good, format!("in use by process {}", owner.pid)));
            }
            (None, true) => {
                let words = "a turn has no end in the log, after a crash or a failed store; the next open closes it";
                said.push((TextRole::Warning, words.to_owned()));
            }
            (None, false) => {}
        }
        if !self.left_work.is_empty() {
            let works = self.left_work.join(", ");
            said.push((
                TextRole::Warning,
                format!("left running in the background: {works}"),
            ));
        }
        said
    }
}

/// Shortens the path of a scripted model, which the log contains in full, to its file name.
fn model_name(model: &str) -> String {
    match model.strip_prefix("script:") {
        Some(path) => format!("script:{}", path.rsplit('/').next().unwrap_or(path)),
        None => model.to_owned(),
    }
}
