//! Effect of records about background work on the state of a session.

use std::sync::Arc;

use crate::ids::{BackgroundId, CallId, TurnNumber};
use crate::receipt::ItemState;
use crate::record::{Attachment, SessionRecord};
use crate::turn::effects::CallEffect;
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
                let mut turns = self.turns.iter().rev();
                let of_turn = turns.find(|summary| summary.turn == *turn);
                let message = of_turn.and_then(|summary| summary.message.clone());
                self.background.push(RecordedWork {
                    id: id.clone(),
                    turn: *turn,
                    message,
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
                self.work_started(*turn, call_id);
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
                let (turn, call_id) = (work.turn, work.call_id.clone());
                self.work_ended(turn, &call_id, state);
                self.metered += usage.unwrap_or_default();
            }
            _ => {}
        }
        Ok(())
    }

    /// The call that has started the work has no known outcome until the work ends.
    fn work_started(&mut self, turn: TurnNumber, call: &CallId) {
        match &mut self.open {
            Some(open) if open.number() == turn => open.change_call(call, CallEffect::work_started),
            _ if self.conversation.has_call(turn, call) => {
                Arc::make_mut(&mut self.conversation).work_started(turn, call);
            }
            _ => {}
        }
    }

    fn work_ended(&mut self, turn: TurnNumber, call: &CallId, state: &ItemState) {
        match &mut self.open {
            Some(open) if open.number() == turn => {
                open.change_call(call, |call| call.work_ended(state));
            }
            _ if self.conversation.has_call(turn, call) => {
                Arc::make_mut(&mut self.conversation).work_ended(turn, call, state);
            }
            _ => {}
        }
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
