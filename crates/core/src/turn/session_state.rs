//! State of a session, computed by applying the records of its log in order.

use std::sync::Arc;

use crate::ids::{BackgroundId, SessionId, TurnNumber};
use crate::message::{Message, check_history};
use crate::receipt::Receipt;
use crate::record::SessionRecord;
use crate::session_settings::SessionSettings;
use crate::stop_reason::StopReason;
use crate::time::Timestamp;
use crate::turn::background_index::BackgroundIndex;
use crate::turn::conversation::{Conversation, EndedTurn};
use crate::turn::effects::{LostTurn, TurnEffects};
use crate::turn::illegal_record::IllegalRecord;
use crate::turn::state::{TurnEvent, TurnState};
use crate::turn::stop::lost_unless_written;
use crate::turn::summary::{INPUT_EXCERPT_CHARS, TurnEnding, TurnSummary, excerpt};
use crate::usage::Usage;

/// State of a session according to its log, up to the last applied record.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionState {
    pub(super) opened: Option<SessionOpening>,
    /// Settings of the most recent opening that recorded its settings.
    pub(super) settings: Option<Arc<SessionSettings>>,
    pub(super) conversation: Arc<Conversation>,
    pub(super) metered: Usage,
    pub(super) turns: Vec<TurnSummary>,
    /// The turn without an ending. The last element of `turns` is the summary of this turn.
    pub(super) open: Option<TurnState>,
    /// Time of the last record of the open turn that has a time.
    pub(super) open_at: Option<Timestamp>,
    /// Messages of the open turn that stay in the conversation if its process dies.
    pub(super) open_kept: Vec<Arc<Message>>,
    pub(super) background: BackgroundIndex,
    /// Background work that the open turn reports to the model.
    pub(super) reporting: Vec<BackgroundId>,
    /// Receipt of the last stop. A receipt is the result of a stop.
    pub(super) last_receipt: Option<Arc<Receipt>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct SessionOpening {
    pub(super) session_id: SessionId,
    pub(super) at: Timestamp,
    pub(super) folder: Arc<str>,
}

impl SessionState {
    /// The state before the first record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Computes the state from a list of records.
    ///
    /// # Errors
    /// Returns the first record that is not allowed at its position.
    pub fn fold<'a>(
        records: impl IntoIterator<Item = &'a SessionRecord>,
    ) -> Result<Self, IllegalRecord> {
        let mut state = Self::new();
        records
            .into_iter()
            .try_for_each(|record| state.apply(record))?;
        Ok(state)
    }

    /// Applies the next record. If the record is not allowed here, changes nothing.
    ///
    /// # Errors
    /// If the record is not allowed here.
    pub fn apply(&mut self, record: &SessionRecord) -> Result<(), IllegalRecord> {
        if let SessionRecord::SessionOpened {
            session_id,
            at,
            folder,
        } = record
        {
            if self.opened.is_some() {
                return Err(IllegalRecord::OpenedTwice);
            }
            let (session_id, folder) = (session_id.clone(), Arc::clone(folder));
            self.opened = Some(SessionOpening {
                session_id,
                at: *at,
                folder,
            });
            return Ok(());
        }
        if self.opened.is_none() {
            return Err(IllegalRecord::NotOpened);
        }
        match TurnEvent::of(record) {
            Some((turn, event)) => self.apply_event(turn, event, record),
            None => self.apply_other(record),
        }?;
        if let SessionRecord::TurnStarted { at, .. }
        | SessionRecord::CallStarted { at, .. }
        | SessionRecord::MessageSteered { at, .. } = record
        {
            self.open_at = Some(*at);
        }
        Ok(())
    }

    /// Checks whether these records can be applied one after another, without applying them. A writer calls this
    /// function before it appends the records. The cost does not depend on the number of turns.
    ///
    /// # Errors
    /// Returns the first record that would not be allowed at its position.
    pub fn check<'a>(
        &self,
        records: impl IntoIterator<Item = &'a SessionRecord, IntoIter: Clone>,
    ) -> Result<(), IllegalRecord> {
        let mut records = records.into_iter();
        if self.open.is_some() && records.clone().all(is_of_open_turn) {
            // Fast path for most appends. To check an event of the open turn, only the state of this turn is needed.
            let mut open = self.open.as_ref().map(TurnState::without_effects);
            return records.try_for_each(|record| {
                let Some((turn, event)) = TurnEvent::of(record) else {
                    return Ok(());
                };
                open = open.take().filter(|open| open.ending().is_none());
                apply_to_turn(open.as_mut(), turn, event, record).map(|_| ())
            });
        }
        let may_rewrite = records.clone().any(|record| {
            matches!(
                record,
                SessionRecord::Compacted { .. } | SessionRecord::TurnUndone { .. }
            )
        });
        let background_ids = records.clone().filter_map(|record| match record {
            SessionRecord::BackgroundStarted { id, .. }
            | SessionRecord::BackgroundDetached { id }
            | SessionRecord::BackgroundEnded { id, .. } => Some(id),
            _ => None,
        });
        // Copies only the parts that the transitions read. These are the last turn, the background work that the
        // records name, and the conversation if a record changes it. A session keeps all of its past background work,
        // so a full copy would be slow.
        let mut probe = Self {
            opened: self.opened.clone(),
            turns: self.turns.last().cloned().into_iter().collect(),
            open: self.open.as_ref().map(TurnState::without_effects),
            background: self.background.only(background_ids),
            conversation: if may_rewrite {
                Arc::clone(&self.conversation)
            } else {
                Arc::default()
            },
            ..Self::default()
        };
        records.try_for_each(|record| probe.apply(record))
    }

    fn apply_event(
        &mut self,
        turn: TurnNumber,
        event: TurnEvent<'_>,
        record: &SessionRecord,
    ) -> Result<(), IllegalRecord> {
        let open = apply_to_turn(self.open.as_mut(), turn, event, record)?;
        if let TurnEvent::CallFinished {
            usage: Some(usage), ..
        } = event
        {
            self.metered += usage;
        }
        if let Some(summary) = self.turns.last_mut() {
            summary.steps = open.steps();
            summary.metered = open.metered();
            // The list of unknown calls only grows. Therefore the first `known` calls are already in the summary.
            let known = summary.unknown_calls.len();
            let new = open.unknown_calls().get(known..).unwrap_or_default();
            summary.unknown_calls.extend_from_slice(new);
        }
        match record {
            SessionRecord::TurnCommitted {
                at,
                messages,
                usage,
                ..
            } => {
                let ending = TurnEnding {
                    at: *at,
                    reason: StopReason::Completed,
                    cause: None,
                    receipt: None,
                };
                self.end_turn(turn, ending, messages, *usage);
            }
            SessionRecord::TurnStopped {
                at,
                reason,
                cause,
                receipt,
                kept,
                usage,
                ..
            } => {
                let ending = TurnEnding {
                    at: *at,
                    reason: *reason,
                    cause: Some(cause.clone()),
                    receipt: receipt.clone(),
                };
                if let Some(receipt) = receipt {
                    self.add_receipt(receipt);
                }
                self.end_turn(turn, ending, kept, *usage);
            }
            _ => {}
        }
        Ok(())
    }

    /// Keeps this receipt if its stop was requested later than the stop of the last receipt. The receipts in the log
    /// may be in another order than their requests.
    fn add_receipt(&mut self, receipt: &Arc<Receipt>) {
        let last = self.last_receipt.as_ref();
        if last.is_none_or(|last| last.request().order() <= receipt.request().order()) {
            self.last_receipt = Some(Arc::clone(receipt));
        }
    }

    /// Ends the open turn and adds these messages to the conversation.
    fn end_turn(
        &mut self,
        turn: TurnNumber,
        ending: TurnEnding,
        messages: &[Arc<Message>],
        usage: Usage,
    ) {
        let open = self.open.take();
        self.open_kept.clear();
        self.open_at = None;
        let is_refused = ending.reason == StopReason::Guardrail;
        let Some(summary) = self.turns.last_mut() else {
            return;
        };
        summary.ending = Some(ending);
        let before = std::mem::take(&mut self.conversation);
        self.conversation = before.after_turn(EndedTurn {
            turn,
            input: &summary.input,
            messages: messages.iter().cloned(),
            usage,
            effects: open
                .as_ref()
                .map_or(&TurnEffects::default(), TurnState::effects),
            is_refused,
        });
        let reporting = std::mem::take(&mut self.reporting);
        if !messages.is_empty() {
            for id in &reporting {
                if let Some(work) = self.background.get_mut(id) {
                    work.reported = true;
                }
            }
        }
    }

    fn apply_other(&mut self, record: &SessionRecord) -> Result<(), IllegalRecord> {
        match record {
            SessionRecord::TurnStarted {
                turn,
                at,
                input,
                owner,
                message,
                reported,
                ..
            } => {
                if let Some(open) = &self.open {
                    let open = open.number();
                    return Err(IllegalRecord::TurnStillOpen { turn: *turn, open });
                }
                let expected = self.next_turn();
                if *turn != expected {
                    return Err(IllegalRecord::NotTheNextTurn {
                        turn: *turn,
                        expected,
                    });
                }
                self.open = Some(TurnState::new(*turn));
                self.reporting.clone_from(reported);
                self.turns.push(TurnSummary {
                    turn: *turn,
                    started_at: *at,
                    input: excerpt(input, INPUT_EXCERPT_CHARS),
                    owner: owner.clone(),
                    message: message.clone(),
                    steps: 0,
                    metered: Usage::default(),
                    unknown_calls: Vec::new(),
                    undone: false,
                    ending: None,
                });
            }
            SessionRecord::BackgroundStarted { .. }
            | SessionRecord::BackgroundDetached { .. }
            | SessionRecord::BackgroundEnded { .. } => return self.apply_background(record),
            SessionRecord::SettingsChanged { settings, .. } => {
                self.settings = Some(Arc::clone(settings));
            }
            SessionRecord::Stopped { receipt } => self.add_receipt(receipt),
            SessionRecord::MessagesKept { turn, messages } => {
                // A reader that does not know this record skips it, so it is never illegal.
                if self
                    .open
                    .as_ref()
                    .is_some_and(|open| open.number() == *turn)
                {
                    self.open_kept.extend(messages.iter().cloned());
                }
            }
            SessionRecord::Compacted { .. }
            | SessionRecord::TurnUndone { .. }
            | SessionRecord::Metered { .. } => return self.apply_between_turns(record),
            SessionRecord::SessionOpened { .. }
            | SessionRecord::MessageSteered { .. }
            | SessionRecord::CallStarted { .. }
            | SessionRecord::CallFinished { .. }
            | SessionRecord::TurnCommitted { .. }
            | SessionRecord::TurnStopped { .. } => {}
        }
        Ok(())
    }

    /// Applies a record that is written between two turns, and changes the conversation or adds usage.
    fn apply_between_turns(&mut self, record: &SessionRecord) -> Result<(), IllegalRecord> {
        match record {
            SessionRecord::Compacted {
                messages_dropped,
                turns_dropped,
                summary,
                usage,
                ..
            } => {
                self.check_between_turns()?;
                let (messages, turns) = (*messages_dropped, *turns_dropped);
                let next = self
                    .conversation
                    .compacted(messages, turns, summary.as_ref());
                self.conversation = next.ok_or(IllegalRecord::NotWholeTurns { messages, turns })?;
                self.metered += *usage;
            }
            SessionRecord::TurnUndone { turn, .. } => {
                self.check_between_turns()?;
                let last = self.conversation.spans.last();
                if last.is_none_or(|last| last.turn != *turn) {
                    return Err(IllegalRecord::NotTheLastTurn(*turn));
                }
                self.conversation = std::mem::take(&mut self.conversation).without_last_turn();
                // The list is sorted by the number of the turn. After a restart from a snapshot, the list may lack this
                // turn.
                if let Ok(place) = self.turns.binary_search_by_key(turn, |one| one.turn)
                    && let Some(summary) = self.turns.get_mut(place)
                {
                    summary.undone = true;
                }
            }
            SessionRecord::Metered { usage, .. } => self.metered += *usage,
            _ => {}
        }
        Ok(())
    }

    fn check_between_turns(&self) -> Result<(), IllegalRecord> {
        match &self.open {
            Some(open) => Err(IllegalRecord::TurnUnderWay(open.number())),
            None => Ok(()),
        }
    }

    /// The session's id. `None` before the first record.
    pub fn session_id(&self) -> Option<&SessionId> {
        self.opened.as_ref().map(|opened| &opened.session_id)
    }

    /// Time of the opening. `None` before the first record.
    pub fn opened_at(&self) -> Option<Timestamp> {
        self.opened.as_ref().map(|opened| opened.at)
    }

    /// Working folder at the opening. `None` before the first record.
    pub fn folder(&self) -> Option<&Arc<str>> {
        self.opened.as_ref().map(|opened| &opened.folder)
    }

    /// Settings of the most recent opening that recorded its settings. `None` if no opening recorded settings.
    pub fn settings(&self) -> Option<&Arc<SessionSettings>> {
        self.settings.as_ref()
    }

    /// The committed conversation, with the committed usage.
    pub fn conversation(&self) -> &Arc<Conversation> {
        &self.conversation
    }

    /// Usage of all calls of all turns: the metered total.
    pub fn metered(&self) -> Usage {
        self.metered
    }

    /// All turns, including stopped turns, in order. If the state was restored from a
    /// [snapshot](crate::turn::SessionSnapshot), the list starts with the last turn before the snapshot.
    pub fn turns(&self) -> &[TurnSummary] {
        &self.turns
    }

    /// Receipt of the last stop of the session or of one of its parts.
    pub fn last_receipt(&self) -> Option<&Arc<Receipt>> {
        self.last_receipt.as_ref()
    }

    /// The turn without an ending. `None` between two turns.
    pub fn open_turn(&self) -> Option<&TurnState> {
        self.open.as_ref()
    }

    /// True if messages of the open turn stay in the conversation, even if the process of the turn dies.
    pub fn keeps_open_turn(&self) -> bool {
        !self.open_kept.is_empty()
    }

    /// Calls of the open turn that may have changed something and that stay out of the conversation if the process of the
    /// turn has died. `None` without such calls.
    pub fn lost_calls_of_open_turn(&self) -> Option<LostTurn> {
        let open = self.open.as_ref()?;
        let input = &self.turns.last()?.input;
        lost_unless_written(
            (open.number(), input),
            open.effects(),
            &self.open_kept,
            false,
        )
    }

    /// The number of the next turn.
    pub fn next_turn(&self) -> TurnNumber {
        TurnNumber(self.turns.last().map_or(0, |last| last.turn.0) + 1)
    }
}

/// True if only the state of the open turn is needed to check the record.
fn is_of_open_turn(record: &SessionRecord) -> bool {
    TurnEvent::of(record).is_some() || matches!(record, SessionRecord::MessagesKept { .. })
}

/// Applies a record to the open turn: first checks the messages of the record, then its event.
fn apply_to_turn<'a>(
    open: Option<&'a mut TurnState>,
    turn: TurnNumber,
    event: TurnEvent<'_>,
    record: &SessionRecord,
) -> Result<&'a mut TurnState, IllegalRecord> {
    match record {
        SessionRecord::TurnCommitted { messages, .. }
        | SessionRecord::TurnStopped { kept: messages, .. } => check_messages(turn, messages)?,
        _ => {}
    }
    let open = open.filter(|open| open.number() == turn);
    let open = open.ok_or(IllegalRecord::TurnNotOpen(turn))?;
    open.apply(event)
        .map_err(|source| IllegalRecord::Turn { turn, source })?;
    Ok(open)
}

fn check_messages(turn: TurnNumber, messages: &[Arc<Message>]) -> Result<(), IllegalRecord> {
    check_history(messages.iter().map(AsRef::as_ref))
        .map_err(|source| IllegalRecord::History { turn, source })
}
