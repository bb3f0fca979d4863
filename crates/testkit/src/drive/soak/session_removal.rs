//! A session that exists across process runs: the facts that were delivered to its users, and the check and removal of
//! the session when it is long.

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
use crate::observe::{DeliveredFacts, DeliveredOutcome, RunObservation};

/// A session that exists across process runs.
#[derive(Debug)]
pub(super) struct KeptSession {
    pub(super) id: SessionId,
    pub(super) is_made: bool,
    /// Number of accepted messages, including the messages that a crash lost.
    pub(super) messages: u64,
    delivered: DeliveredFacts,
}

impl KeptSession {
    pub(super) fn new(id: SessionId) -> Self {
        Self {
            id,
            is_made: false,
            messages: 0,
            delivered: DeliveredFacts::default(),
        }
    }

    /// Stores the outcome of a message. If the clock has jumped by hours since the message was sent, recovery may have
    /// written the ending.
    pub(super) fn came_to(&mut self, id: &MessageId, outcome: &MessageOutcome, has_jumped: bool) {
        self.delivered.outcomes.push(DeliveredOutcome {
            may_be_recovered: has_jumped,
            ..DeliveredOutcome::of(id, outcome)
        });
    }

    /// Observation of the closed session, from its log.
    pub(super) fn observe(self, records: Vec<SessionRecord>) -> RunObservation {
        RunObservation {
            // `None` if no state can be computed from the records. The checkers report such records.
            state: SessionState::fold(&records).ok(),
            records_after_next: records.clone(),
            records,
            delivered_facts: Some(self.delivered),
            ..RunObservation::default()
        }
    }
}

/// Checks a closed session, removes it, and replaces it with a new one.
pub(super) async fn check_and_replace(state: &mut SoakState, number: usize, sessions: &Sessions) {
    let new = state.new_session();
    let Some(place) = state.sessions.get_mut(number) else {
        return;
    };
    let old = std::mem::replace(place, new);
    let log = Arc::clone(&state.log);
    let mut records = read_all(&*log, &old.id).await;
    if background(&records).is_ok_and(|open| !open.is_empty()) {
        // A process run that crashed leaves background work that has no end in the log. A session records the end of
        // such work when the session is first used, and this session was not used since the crash.
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

/// True if all work that the receipt of a stop covers has ended. Commands that were detached during the stop are an
/// exception: they continue, and the receipt names them.
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
