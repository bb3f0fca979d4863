//! Effect of records about background work on the state of a session.

use std::sync::Arc;

use crate::ids::BackgroundId;
use crate::record::{Attachment, SessionRecord};
use crate::turn::illegal_record::IllegalRecord;
use crate::turn::session_state::SessionState;
use crate::turn::summary::RecordedWork;

impl SessionState {
    pub(super) fn apply_background(&mut self, record: &SessionRecord) -> Result<(), IllegalRecord> {
        match record {
            SessionRecord::BackgroundStarted {
                id,
                turn,
                call_id,
                name,
                kind,
                attachment,
                process,
                keeper,
                marker,
                output,
            } => {
                if self.background.get(id).is_some() {
                    return Err(IllegalRecord::BackgroundStartedTwice(id.clone()));
                }
                self.background.push(RecordedWork {
                    id: id.clone(),
                    turn: *turn,
                    call_id: call_id.clone(),
                    name: Arc::clone(name),
                    kind: *kind,
                    attachment: *attachment,
                    process: process.clone(),
                    keeper: keeper.clone(),
                    marker: marker.clone(),
                    output: output.clone(),
                    ended: None,
                    answer: None,
                    reported: false,
                });
            }
            SessionRecord::BackgroundDetached { id } => {
                self.running(id)?.attachment = Attachment::Detached;
            }
            SessionRecord::BackgroundEnded {
                id,
                state,
                exit_code,
                usage,
                answer,
            } => {
                let work = self.running(id)?;
                work.ended = Some((state.clone(), *exit_code));
                work.answer.clone_from(answer);
                self.metered += usage.unwrap_or_default();
            }
            _ => {}
        }
        Ok(())
    }

    fn running(&mut self, id: &BackgroundId) -> Result<&mut RecordedWork, IllegalRecord> {
        let found = self.background.get_mut(id);
        let running = found.filter(|work| work.ended.is_none());
        running.ok_or_else(|| IllegalRecord::BackgroundNotRunning(id.clone()))
    }

    /// Attached background work that has ended, but whose end no turn of the conversation has reported to the model
    /// yet. An idle session waits for attached work.
    pub fn unreported_background(&self) -> impl Iterator<Item = &RecordedWork> {
        let ended = |work: &&RecordedWork| {
            work.ended.is_some() && !work.reported && work.attachment == Attachment::Attached
        };
        self.background.all().iter().filter(ended)
    }

    /// All background work, including ended work, in the order in which it started. If the state was restored from a
    /// snapshot, the list does not contain work that ended before the snapshot and is no longer needed.
    pub fn background(&self) -> &[RecordedWork] {
        self.background.all()
    }
}
