//! The committed conversation of a session: immutable, shared, and replaced as a whole.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, TurnNumber};
use crate::message::{InvalidHistory, Message, ToolCall, check_history};
use crate::receipt::ItemState;
use crate::turn::effects::{CallEffect, LostTurn, TurnEffects, fingerprint, limit_lost};
use crate::turn::lost_note::named_in_note;
use crate::usage::Usage;

/// Committed part of a session, shared in an `Arc`. Each commit creates a new `Conversation`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// Every message, shared with drafts, requests and records.
    pub messages: Vec<Arc<Message>>,
    /// Number of turns: committed turns, and stopped turns with kept messages. Compacted turns count too.
    pub turns: u32,
    /// The start of each turn whose messages are all in `messages` (not replaced by a summary), in the order of the
    /// turns.
    pub spans: Vec<TurnSpan>,
    /// Usage of the turns: the committed total.
    pub usage: Usage,
    /// Turns whose calls have had effects that the messages do not show. The next turn reports them to the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostTurn>,
}

/// One turn in a conversation. The turn ends at the start of the next turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnSpan {
    /// Number of the turn.
    pub turn: TurnNumber,
    /// Index of the first message of the turn.
    pub start: u32,
    /// Effects that an undo of the turn leaves behind. `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    undo: Option<Arc<EffectsOfUndo>>,
}

/// Effects that an undo of a turn leaves behind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct EffectsOfUndo {
    /// Effects of the calls of the turn.
    own: TurnEffects,
    /// Lost turns that this turn has reported to the model.
    reported: Vec<LostTurn>,
}

/// The end of a turn, as far as the conversation is concerned.
pub(crate) struct EndedTurn<'a, I> {
    pub(crate) turn: TurnNumber,
    /// The user's message.
    pub(crate) input: &'a Arc<str>,
    /// Messages that the turn adds. If there are none, the turn was rolled back.
    pub(crate) messages: I,
    /// Tokens that the turn adds to the committed total.
    pub(crate) usage: Usage,
    /// Calls of the turn that may have changed something.
    pub(crate) effects: &'a TurnEffects,
    /// True if a guardrail refused the turn: its texts must not reach the model.
    pub(crate) is_refused: bool,
}

impl Conversation {
    /// The conversation after a turn. If this is the only handle of the conversation, moves the existing messages.
    /// Otherwise clones the pointers to them.
    pub(crate) fn after_turn<I>(self: Arc<Self>, ended: EndedTurn<'_, I>) -> Arc<Self>
    where
        I: IntoIterator<Item = Arc<Message>>,
        I::IntoIter: ExactSizeIterator + Clone,
    {
        let messages = ended.messages.into_iter();
        let (shown, rest) = ended.effects.split(messages.clone());
        let lost = LostTurn::new(ended.turn, ended.input, rest, ended.is_refused);
        let lost = lost.map(|lost| lost.partly_kept(messages.len() > 0));
        if messages.len() == 0 && lost.is_none() {
            return self;
        }
        let mut next = Arc::try_unwrap(self).unwrap_or_else(|shared| {
            let mut all = Vec::with_capacity(shared.messages.len() + messages.len());
            all.extend_from_slice(&shared.messages);
            Self {
                messages: all,
                turns: shared.turns,
                spans: shared.spans.clone(),
                usage: shared.usage,
                lost: shared.lost.clone(),
            }
        });
        if messages.len() > 0 {
            let undo = EffectsOfUndo {
                own: shown,
                // The first message of the turn has reported these turns.
                reported: std::mem::take(&mut next.lost),
            };
            let is_empty = undo.own.is_empty() && undo.reported.is_empty();
            next.spans.push(TurnSpan {
                turn: ended.turn,
                start: next.messages.len() as u32,
                undo: (!is_empty).then(|| Arc::new(undo)),
            });
            next.messages.extend(messages);
            next.turns = next.turns.saturating_add(1);
            next.usage += ended.usage;
        }
        next.lost.extend(lost);
        limit_lost(&mut next.lost);
        Arc::new(next)
    }

    /// The call with an uncertain outcome that this call would repeat. A later call with the same tool and arguments and
    /// with a known outcome settles the matter: a person has allowed it.
    pub fn uncertain_call(&self, call: &ToolCall) -> Option<&CallEffect> {
        let fingerprint = fingerprint(&call.name, &call.arguments);
        let lost = self.lost.iter().rev().map(|turn| &turn.effects);
        let spans = self
            .spans
            .iter()
            .rev()
            .filter_map(|span| span.undo.as_ref());
        let of_spans = spans.flat_map(|undo| {
            let reported = undo.reported.iter().rev().map(|turn| &turn.effects);
            std::iter::once(&undo.own).chain(reported)
        });
        let newest = lost
            .chain(of_spans)
            .find_map(|effects| effects.last_like(fingerprint));
        newest.filter(|before| before.is_uncertain())
    }

    /// True if this turn has this call, and the call may have changed something.
    pub(super) fn has_call(&self, turn: TurnNumber, id: &CallId) -> bool {
        let is_in = |lost: &LostTurn| lost.turn == turn && lost.effects.has(id);
        self.lost.iter().any(is_in)
            || self.spans.iter().any(|span| {
                let is_own = |undo: &EffectsOfUndo| span.turn == turn && undo.own.has(id);
                let undo = span.undo.as_ref();
                undo.is_some_and(|undo| is_own(undo) || undo.reported.iter().any(is_in))
            })
    }

    /// Records that the work of a call runs in the background.
    pub(super) fn work_started(&mut self, turn: TurnNumber, id: &CallId) {
        self.change_call(turn, id, CallEffect::work_started);
    }

    /// Records the end of work that a call has started in the background. If the outcome of a sub-agent is unknown, the
    /// next turn reports the calls that it had made before it moved to the background. Nothing else names them.
    pub(super) fn work_ended(&mut self, turn: TurnNumber, id: &CallId, state: &ItemState) {
        self.change_call(turn, id, |call| call.work_ended(state));
        if !matches!(state, ItemState::Unknown { .. }) {
            return;
        }
        let Some(span) = self.spans.iter_mut().find(|span| span.turn == turn) else {
            return;
        };
        let Some(undo) = &mut span.undo else { return };
        let calls = Arc::make_mut(undo).own.take_nested(id);
        let start = span.start;
        let effects = TurnEffects { calls, omitted: 0 };
        let before = LostTurn::new(turn, &self.user_text(start), effects, false);
        let Some(mut before) = before.map(|before| before.partly_kept(true)) else {
            return;
        };
        let place = self.lost.partition_point(|lost| lost.turn < turn);
        match self.lost.get_mut(place).filter(|lost| lost.turn == turn) {
            Some(rest) => {
                before.effects.calls.append(&mut rest.effects.calls);
                rest.effects.calls = before.effects.calls;
            }
            None => self.lost.insert(place, before),
        }
        limit_lost(&mut self.lost);
    }

    fn change_call(&mut self, turn: TurnNumber, id: &CallId, change: impl Fn(&mut CallEffect)) {
        let of_turn = |lost: &&mut LostTurn| lost.turn == turn;
        for lost in self.lost.iter_mut().filter(of_turn) {
            lost.change_call(id, &change);
        }
        for span in &mut self.spans {
            let Some(undo) = &mut span.undo else { continue };
            let has_lost = undo.reported.iter().any(|lost| lost.turn == turn);
            if span.turn != turn && !has_lost {
                continue;
            }
            let undo = Arc::make_mut(undo);
            if span.turn == turn {
                undo.own.change_call(id, &change);
            }
            for lost in undo.reported.iter_mut().filter(of_turn) {
                lost.change_call(id, &change);
            }
        }
    }

    /// Lost turns, oldest first: those that a turn of this conversation has reported to the model, and those that the
    /// next turn reports.
    pub fn all_lost(&self) -> impl Iterator<Item = &LostTurn> {
        let spans = self.spans.iter().filter_map(|span| span.undo.as_ref());
        spans.flat_map(|undo| &undo.reported).chain(&self.lost)
    }

    /// Lost turns, with the calls that the next turn names to the model. The other calls are only counted.
    pub fn reported_by_next_turn(&self) -> Vec<LostTurn> {
        named_in_note(&self.lost)
    }

    /// Calls of this turn that the next turn reports to the model. `None` unless this turn is the last lost turn.
    pub fn lost_calls_of(&self, turn: TurnNumber) -> Option<&LostTurn> {
        self.lost.last().filter(|lost| lost.turn == turn)
    }

    /// Removes the last turn, if its messages are all in `messages` (not replaced by a summary).
    pub(crate) fn without_last_turn(self: Arc<Self>) -> Arc<Self> {
        let mut next = Arc::unwrap_or_clone(self);
        if let Some(last) = next.spans.pop() {
            let input = next.user_text(last.start);
            next.messages.truncate(last.start as usize);
            next.turns = next.turns.saturating_sub(1);
            for lost in &mut next.lost {
                lost.is_partly_kept &= lost.turn != last.turn;
            }
            if let Some(undo) = last.undo {
                let EffectsOfUndo { own, reported } = Arc::unwrap_or_clone(undo);
                // An earlier undo, of a later turn, is listed after this turn.
                let later = std::mem::take(&mut next.lost);
                next.lost = reported;
                next.lost
                    .extend(LostTurn::new(last.turn, &input, own, false));
                next.lost.extend(later);
                limit_lost(&mut next.lost);
            }
        }
        Arc::new(next)
    }

    /// Text of the first user's message from this index on.
    fn user_text(&self, start: u32) -> Arc<str> {
        let mut messages = self.messages.iter().skip(start as usize);
        let text = messages.find_map(|message| match &**message {
            Message::User { text, .. } => Some(Arc::clone(text)),
            _ => None,
        });
        text.unwrap_or_default()
    }

    /// Replaces the first messages with a summary. `None` if the dropped messages are not whole turns.
    pub(crate) fn compacted(
        &self,
        messages_dropped: u32,
        turns_dropped: u32,
        summary: Option<&Arc<str>>,
    ) -> Option<Arc<Self>> {
        let dropped = turns_dropped as usize;
        let end = match self.spans.get(dropped) {
            Some(next) => next.start,
            None => self.messages.len() as u32,
        };
        if dropped == 0 || dropped > self.spans.len() || end != messages_dropped {
            return None;
        }
        let mut messages = Vec::with_capacity(self.messages.len() - end as usize + 1);
        let text = summary.cloned();
        messages.extend(text.map(|text| Arc::new(Message::Summary { text })));
        let shift = end - messages.len() as u32;
        messages.extend_from_slice(&self.messages[end as usize..]);
        let spans = self.spans.iter().skip(dropped);
        let spans = spans.map(|span| TurnSpan {
            start: span.start - shift,
            ..span.clone()
        });
        Some(Arc::new(Self {
            spans: spans.collect(),
            messages,
            turns: self.turns,
            usage: self.usage,
            lost: self.lost.clone(),
        }))
    }

    /// Checks that a provider would accept the messages: each tool call must have one result.
    ///
    /// # Errors
    /// Returns the first violation.
    pub fn check(&self) -> Result<(), InvalidHistory> {
        check_history(self.messages.iter().map(AsRef::as_ref))
    }
}
