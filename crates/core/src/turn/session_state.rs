//! A session's state: a fold over the records of its log.

use std::sync::Arc;

use crate::ids::{BackgroundId, SessionId, TurnNumber};
use crate::message::{Message, check_history};
use crate::record::SessionRecord;
use crate::stop_reason::StopReason;
use crate::time::Timestamp;
use crate::turn::conversation::Conversation;
use crate::turn::illegal_record::IllegalRecord;
use crate::turn::state::{TurnEvent, TurnState};
use crate::turn::summary::{BackgroundWork, TurnEnding, TurnSummary, excerpt};
use crate::usage::Usage;

/// What the log of a session says, from its first record to the last one applied.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionState {
    opened: Option<Opened>,
    conversation: Arc<Conversation>,
    pub(super) metered: Usage,
    turns: Vec<TurnSummary>,
    /// The turn that has no ending yet; its summary is the last.
    open: Option<TurnState>,
    pub(super) background: Vec<BackgroundWork>,
    /// The background work that the model is told of in the open turn.
    telling: Vec<BackgroundId>,
}

#[derive(Debug, Clone, PartialEq)]
struct Opened {
    session_id: SessionId,
    at: Timestamp,
    folder: Arc<str>,
}

impl SessionState {
    /// Before the first record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Folds a list of records.
    ///
    /// # Errors
    /// The first record that cannot stand where it is.
    pub fn fold<'a>(
        records: impl IntoIterator<Item = &'a SessionRecord>,
    ) -> Result<Self, IllegalRecord> {
        let mut state = Self::new();
        records
            .into_iter()
            .try_for_each(|record| state.apply(record))?;
        Ok(state)
    }

    /// Takes the next record, or refuses it and changes nothing.
    ///
    /// # Errors
    /// If the record cannot stand here.
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
            self.opened = Some(Opened {
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
        }
    }

    /// Says whether these records could be applied, one after another, and applies none: a writer asks before it makes
    /// them durable. It costs the same however many turns the session has.
    ///
    /// # Errors
    /// The first record that could not stand where it would be.
    pub fn check<'a>(
        &self,
        records: impl IntoIterator<Item = &'a SessionRecord>,
    ) -> Result<(), IllegalRecord> {
        let records: Vec<_> = records.into_iter().collect();
        let may_rewrite = records.iter().any(|record| {
            matches!(
                record,
                SessionRecord::Compacted { .. } | SessionRecord::TurnUndone { .. }
            )
        });
        let is_of_background = records.iter().any(|record| {
            matches!(
                record,
                SessionRecord::BackgroundStarted { .. }
                    | SessionRecord::BackgroundDetached { .. }
                    | SessionRecord::BackgroundEnded { .. }
            )
        });
        // All that the transitions look at: the last turn; the background work only where it changes, because all that
        // a session ever had is there; the conversation only where it is rewritten.
        let mut probe = Self {
            opened: self.opened.clone(),
            turns: self.turns.last().cloned().into_iter().collect(),
            open: self.open.clone(),
            background: if is_of_background {
                self.background.clone()
            } else {
                Vec::new()
            },
            conversation: if may_rewrite {
                Arc::clone(&self.conversation)
            } else {
                Arc::default()
            },
            ..Self::default()
        };
        records
            .into_iter()
            .try_for_each(|record| probe.apply(record))
    }

    fn apply_event(
        &mut self,
        turn: TurnNumber,
        event: TurnEvent<'_>,
        record: &SessionRecord,
    ) -> Result<(), IllegalRecord> {
        let ending = match record {
            SessionRecord::TurnCommitted {
                at,
                messages,
                usage,
                ..
            } => {
                check_messages(turn, messages)?;
                let reason = StopReason::Completed;
                let ending = TurnEnding {
                    at: *at,
                    reason,
                    cause: None,
                    receipt: None,
                };
                Some((ending, messages, *usage))
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
                check_messages(turn, kept)?;
                let (cause, receipt) = (Some(cause.clone()), receipt.clone());
                Some((
                    TurnEnding {
                        at: *at,
                        reason: *reason,
                        cause,
                        receipt,
                    },
                    kept,
                    *usage,
                ))
            }
            _ => None,
        };
        let (Some(open), Some(summary)) = (&mut self.open, self.turns.last_mut()) else {
            return Err(IllegalRecord::TurnNotOpen(turn));
        };
        if open.number() != turn {
            return Err(IllegalRecord::TurnNotOpen(turn));
        }
        open.apply(event)
            .map_err(|source| IllegalRecord::Turn { turn, source })?;
        if let TurnEvent::CallFinished {
            usage: Some(usage), ..
        } = event
        {
            self.metered += usage;
        }
        summary.steps = open.steps();
        summary.metered = open.metered();
        if summary.unknown_calls.len() != open.unknown_calls().len() {
            summary.unknown_calls = open.unknown_calls().to_vec();
        }
        if let Some((ending, messages, usage)) = ending {
            summary.ending = Some(ending);
            self.open = None;
            let telling = std::mem::take(&mut self.telling);
            if !messages.is_empty() {
                let before = std::mem::take(&mut self.conversation);
                self.conversation = before.with_turn(turn, messages.iter().cloned(), usage);
                for work in &mut self.background {
                    work.told |= telling.contains(&work.id);
                }
            }
        }
        Ok(())
    }

    fn apply_other(&mut self, record: &SessionRecord) -> Result<(), IllegalRecord> {
        match record {
            SessionRecord::TurnStarted {
                turn,
                at,
                input,
                owner,
                message,
                told,
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
                self.telling.clone_from(told);
                self.turns.push(TurnSummary {
                    turn: *turn,
                    started_at: *at,
                    input: excerpt(input),
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

    /// What changes the conversation, or costs something, without a turn.
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
                let next = match self.conversation.spans.last() {
                    Some(last) if last.turn == *turn => self.conversation.without_last_turn(),
                    _ => None,
                };
                self.conversation = next.ok_or(IllegalRecord::NotTheLastTurn(*turn))?;
                if let Some(summary) = self.turns.iter_mut().rev().find(|one| one.turn == *turn) {
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

    /// The session's id; `None` before its first record.
    pub fn session_id(&self) -> Option<&SessionId> {
        self.opened.as_ref().map(|opened| &opened.session_id)
    }

    /// When it was opened; `None` before its first record.
    pub fn opened_at(&self) -> Option<Timestamp> {
        self.opened.as_ref().map(|opened| opened.at)
    }

    /// The folder that it was opened in; `None` before its first record.
    pub fn folder(&self) -> Option<&Arc<str>> {
        self.opened.as_ref().map(|opened| &opened.folder)
    }

    /// What is committed, with the committed ledger.
    pub fn conversation(&self) -> &Arc<Conversation> {
        &self.conversation
    }

    /// What every call of every turn used: the metered ledger.
    pub fn metered(&self) -> Usage {
        self.metered
    }

    /// Every turn, in order, stopped ones too.
    pub fn turns(&self) -> &[TurnSummary] {
        &self.turns
    }

    /// The turn that has no ending, if there is one.
    pub fn open_turn(&self) -> Option<&TurnState> {
        self.open.as_ref()
    }

    /// The number that the next turn gets.
    pub fn next_turn(&self) -> TurnNumber {
        TurnNumber(self.turns.last().map_or(0, |last| last.turn.0) + 1)
    }
}

fn check_messages(turn: TurnNumber, messages: &[Arc<Message>]) -> Result<(), IllegalRecord> {
    check_history(messages.iter().map(AsRef::as_ref))
        .map_err(|source| IllegalRecord::History { turn, source })
}
