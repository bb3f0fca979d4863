//! Where the records go: the session, which refuses what cannot follow, and past it, because this engine does not care.

use allstop_agent::History;
use allstop_core::TurnNumber;
use allstop_core::record::SessionRecord;
use allstop_core::turn::Conversation;
use allstop_log::session::{encode, stream_of};
use allstop_log::{AppendIds, RecordBytes, SessionError, SessionStream, Version};

pub(super) struct Journal {
    session: SessionStream,
    /// Where the log is, once something was written past the session.
    beside: Option<Version>,
}

impl Journal {
    pub(super) fn new(session: SessionStream) -> Self {
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

    pub(super) fn session(&self) -> &SessionStream {
        &self.session
    }

    /// Writes records as one. What the session refuses is written all the same: that is how broken logs come about.
    pub(super) async fn append(&mut self, records: Vec<SessionRecord>) {
        if records.is_empty() {
            return;
        }
        if self.beside.is_none() {
            match self.session.append(records.clone()).await {
                Ok(()) => return,
                Err(SessionError::Illegal(_)) => self.beside = Some(self.session.version()),
                Err(error) => panic!("the log takes records: {error}"),
            }
        }
        let Some(version) = self.beside else { return };
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
    }

    /// The session, to go on with; whoever wrote past it has none any more.
    pub(super) fn into_history(self) -> History {
        match self.beside {
            None => History::Logged(Box::new(self.session)),
            Some(_) => History::bare(
                self.session.id().clone(),
                std::sync::Arc::clone(self.conversation()),
            ),
        }
    }
}
