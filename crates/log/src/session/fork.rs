//! Copy of a conversation into a new session.

use std::sync::Arc;

use allstop_core::record::SessionRecord;
use allstop_core::{SessionId, Timestamp, TurnNumber};

use super::SessionError;
use super::fold::visit_records;
use super::writer::SessionWriter;
use crate::Log;

/// Copies the ended turns of a session into a new session, with their numbers and compactions; if `before` is given, only
/// the turns before this turn. Background work and its receipts stay with the first session, which may be open. The new
/// session has its id and the time of its opening.
///
/// **Cancel safety**: if the future is dropped, the new session may have only a part of the turns.
///
/// # Errors
/// Returns [`SessionError::NotFound`] if the first session does not exist, [`SessionError::Exists`] if the new session does,
/// or an error of the store. A new session whose turns could not be written is deleted.
pub async fn fork_session(
    log: &Arc<dyn Log>,
    from: &SessionId,
    (to, at): (SessionId, Timestamp),
    before: Option<TurnNumber>,
) -> Result<(), SessionError> {
    let mut copied = CopiedTurns {
        before,
        ..CopiedTurns::default()
    };
    visit_records(&**log, from, |record| copied.visit(record)).await?;
    let folder = copied
        .folder
        .ok_or_else(|| SessionError::NotFound(from.clone()))?;
    let mut writer = SessionWriter::create(Arc::clone(log), to, at, folder, None).await?;
    for records in copied.groups {
        if let Err(error) = writer.append(records).await {
            let _deleted_or_left = writer.delete().await;
            return Err(error);
        }
    }
    Ok(())
}

/// Records of a new session.
#[derive(Debug, Default)]
struct CopiedTurns {
    before: Option<TurnNumber>,
    folder: Option<Arc<str>>,
    /// Records of one turn, or one record between two turns.
    groups: Vec<Vec<SessionRecord>>,
    /// Records of a turn without an end so far.
    open: Vec<SessionRecord>,
    is_done: bool,
}

impl CopiedTurns {
    fn visit(&mut self, record: &SessionRecord) {
        match record {
            SessionRecord::SessionOpened { folder, .. } => {
                self.folder.get_or_insert_with(|| Arc::clone(folder));
            }
            _ if self.is_done => {}
            SessionRecord::TurnStarted { turn, .. }
                if self.before.is_some_and(|before| *turn >= before) =>
            {
                self.is_done = true;
            }
            SessionRecord::TurnStarted { .. } => {
                let mut record = record.clone();
                if let SessionRecord::TurnStarted {
                    owner, reported, ..
                } = &mut record
                {
                    // The new session has no background work, and no process runs its turns.
                    (*owner, *reported) = (None, Vec::new());
                }
                self.open = vec![record];
            }
            SessionRecord::MessageSteered { .. }
            | SessionRecord::CallStarted { .. }
            | SessionRecord::CallFinished { .. }
            | SessionRecord::MessagesKept { .. } => self.open.push(record.clone()),
            SessionRecord::TurnCommitted { .. } | SessionRecord::TurnStopped { .. } => {
                self.open.push(record.clone());
                self.groups.push(std::mem::take(&mut self.open));
            }
            SessionRecord::SettingsChanged { .. }
            | SessionRecord::Compacted { .. }
            | SessionRecord::TurnUndone { .. } => self.groups.push(vec![record.clone()]),
            SessionRecord::Stopped { .. }
            | SessionRecord::Metered { .. }
            | SessionRecord::BackgroundStarted { .. }
            | SessionRecord::BackgroundDetached { .. }
            | SessionRecord::BackgroundEnded { .. } => {}
        }
    }
}
