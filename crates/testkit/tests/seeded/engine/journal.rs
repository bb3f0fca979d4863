//! Journal of the sloppy engine. The journal writes records with the session, which refuses illegal records. The
//! journal then writes the refused records directly to the log.

use allstop_agent::RunHistory;
use allstop_core::TurnNumber;
use allstop_core::record::SessionRecord;
use allstop_core::turn::Conversation;
use allstop_log::session::{encode, stream_of};
use allstop_log::{AppendIds, RecordBytes, SessionError, SessionWriter, Version};

/// Reason why the records are possibly not written.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Unwritten {
    /// The store refused the records.
    Refused,
    /// The store has not answered.
    MayBe,
}

pub(super) struct Journal {
    session: SessionWriter,
    /// Version of the log after records were written directly to the log; `None` if no records were written in this
    /// way.
    beside: Option<Version>,
}

impl Journal {
    pub(super) fn new(session: SessionWriter) -> Self {
        Self {
            session,
            beside: None,
        }
    }

    pub(super) fn next_turn(&self) -> TurnNumber {
        self.session.state().next_turn()
    }

    pub(super) fn conversation(&self) -> &std::sync::Arc<Conversation> {
        self.session.state().conversation()
    }

    pub(super) fn session(&self) -> &SessionWriter {
        &self.session
    }

    /// Tries to finish an append that the store has not answered.
    pub(super) async fn settle(&mut self) {
        // The next append tries this once more.
        drop(self.session.settle().await);
    }

    /// Takes the records that the store refused, or that were not sent to the store.
    pub(super) fn take_refused_records(&mut self) -> Vec<SessionRecord> {
        self.session.take_refused_records()
    }

    /// Writes records as one append. Records that the session refuses are written directly to the log. In this way the
    /// engine creates broken logs.
    pub(super) async fn append(&mut self, records: Vec<SessionRecord>) -> Result<(), Unwritten> {
        if records.is_empty() {
            return Ok(());
        }
        if self.beside.is_none() {
            match self.session.append(records.clone()).await {
                Ok(()) => return Ok(()),
                Err(SessionError::Illegal(_)) => self.beside = Some(self.session.version()),
                Err(SessionError::Indeterminate) => return Err(Unwritten::MayBe),
                Err(_) => return Err(Unwritten::Refused),
            }
        }
        let Some(version) = self.beside else {
            return Ok(());
        };
        let encoded = records.iter().map(|record| {
            let mut bytes = Vec::new();
            encode(record, &mut bytes);
            RecordBytes::from(bytes)
        });
        let (stream, id) = (stream_of(self.session.id()), AppendIds::new().next_id());
        let appended = self
            .session
            .log()
            .append(&stream, version, id, encoded.collect())
            .await;
        self.beside = Some(appended.expect("nobody else writes here"));
        Ok(())
    }

    /// Returns the session for the next run. If records were written directly to the log, only the conversation of the
    /// session remains.
    pub(super) fn into_history(self) -> RunHistory {
        match self.beside {
            None => RunHistory::Logged(Box::new(self.session)),
            Some(_) => RunHistory::bare(
                self.session.id().clone(),
                std::sync::Arc::clone(self.conversation()),
            ),
        }
    }
}
