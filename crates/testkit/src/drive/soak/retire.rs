//! A session from life to life: what its users were told, and its check and removal once it has become long.

use std::sync::Arc;

use allstop_core::receipt::ReceiptItem;
use allstop_core::record::SessionRecord;
use allstop_core::turn::SessionState;
use allstop_core::{MessageId, Receipt, SessionId};
use allstop_log::remove_session;
use allstop_session::{MessageOutcome, Sessions};

use super::SoakState;
use crate::check::background;
use crate::drive::read_all;
use crate::observe::{RunObservation, ToldFacts, ToldOutcome};

/// A session from life to life.
#[derive(Debug)]
pub(super) struct KeptSession {
    pub(super) id: SessionId,
    pub(super) is_made: bool,
    /// Messages that were taken, those that a crash lost included.
    pub(super) messages: u64,
    told: ToldFacts,
}

impl KeptSession {
    pub(super) fn new(id: SessionId) -> Self {
        Self {
            id,
            is_made: false,
            messages: 0,
            told: ToldFacts::default(),
        }
    }

    /// Keeps the outcome of a message. If hours passed at once meanwhile, recovery may be the one that writes it.
    pub(super) fn came_to(&mut self, id: &MessageId, outcome: &MessageOutcome, has_jumped: bool) {
        self.told.outcomes.push(ToldOutcome {
            may_be_recovered: has_jumped,
            ..ToldOutcome::of(id, outcome)
        });
    }

    /// The closed session, as its log has it.
    pub(super) fn observe(self, records: Vec<SessionRecord>) -> RunObservation {
        RunObservation {
            // One that cannot be folded is seen by the checkers.
            state: SessionState::fold(&records).ok(),
            records_after_next: records.clone(),
            records,
            told: Some(self.told),
            ..RunObservation::default()
        }
    }
}

/// Checks a session that is closed, removes it, and puts a new one in its place.
pub(super) async fn retire(state: &mut SoakState, number: usize, sessions: &Sessions) {
    let new = state.new_session();
    let Some(place) = state.sessions.get_mut(number) else {
        return;
    };
    let old = std::mem::replace(place, new);
    let log = Arc::clone(&state.log);
    let mut records = read_all(&*log, &old.id).await;
    if background(&records).is_ok_and(|open| !open.is_empty()) {
        // Of a life that crashed. A session accounts for such work when it is first used, and nobody has used it since.
        match sessions.resume(old.id.clone()).await {
            Ok(session) => {
                let _too_short_or_not = session.compact().await;
                session.close().await;
            }
            Err(error) => state.broken(format!("{} is not resumed: {error}", old.id)),
        }
        records = read_all(&*log, &old.id).await;
    }
    *state.figure("sessions checked") += 1;
    *state.figure("records") += records.len() as u64;
    *state.figure("messages of these records") += old.messages;
    let id = old.id.clone();
    state.observed(&id, &old.observe(records));
    if let Err(error) = remove_session(&*log, &id).await {
        state.broken(format!("{id} is not removed: {error}"));
    }
}

/// True if all has ended that the receipt covers, but for commands that were detached while they were being stopped:
/// those run on, and it says so.
pub(super) async fn is_quiet(state: &SoakState, number: usize, receipt: &Receipt) -> bool {
    if receipt.quiet() || receipt.outcome().is_some() {
        return true;
    }
    let Some(kept) = state.sessions.get(number) else {
        return false;
    };
    let records = read_all(&*state.log, &kept.id).await;
    let is_let_go = |item: &ReceiptItem| {
        let is_it = |record: &SessionRecord| matches!(record, SessionRecord::BackgroundDetached { id } if id.as_str() == &*item.id);
        records.iter().any(is_it)
    };
    let mut running = receipt
        .items()
        .iter()
        .filter(|item| item.state.breaks_quiet());
    running.all(is_let_go)
}
