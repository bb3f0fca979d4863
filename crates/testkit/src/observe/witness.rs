//! Witness of a run: notes of the parts themselves, not of what was reported of them.
//!
//! Everything is put in one order: a number that grows with each thing that is noted. So a checker can ask what was
//! alive when a receipt was given, and whether something began after a stop had been accepted.

use std::fmt;
use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::receipt::ItemKind;
use allstop_core::{CallId, CauseKind, Message, ToolCall, Usage};
use allstop_scope::Scope;
use parking_lot::Mutex;

/// A place in the order of what happened.
pub type Order = u64;

/// Something that ran.
#[derive(Debug, Clone)]
pub struct WitnessedLife {
    /// Kind of thing.
    pub kind: ItemKind,
    /// Its identity: a call's id, a hook's name, a process's marker.
    pub id: Arc<str>,
    /// When it began.
    pub began: Order,
    /// When it ended, if it has.
    pub ended: Option<Order>,
}

impl WitnessedLife {
    /// True if it belongs to the turn, and not to the background.
    pub fn is_foreground(&self) -> bool {
        self.kind != ItemKind::Background
    }

    /// True if it ran then.
    pub fn was_alive(&self, at: Order) -> bool {
        self.began <= at && self.ended.is_none_or(|ended| ended > at)
    }
}

impl fmt::Display for WitnessedLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.id)
    }
}

/// The end of a tool's call, seen by the tool.
#[derive(Debug, Clone)]
pub struct CallEnding {
    /// The call's id.
    pub id: Arc<str>,
    /// True if it returned a result, false if an error. `None`: it was dropped, or panicked.
    pub succeeded: Option<bool>,
    /// Cause of the stop of its scope, if it was stopped by then.
    pub cause: Option<CauseKind>,
}

/// An answer of a model that came to its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WitnessedAnswer {
    /// All its text.
    pub text: String,
    /// The calls that it asked for.
    pub calls: Vec<ToolCall>,
}

/// Notes of what really happened, as they are at the end.
#[derive(Debug, Clone, Default)]
pub struct WitnessNotes {
    /// Everything that ran.
    pub lived: Vec<WitnessedLife>,
    /// Everything that was shown live, in order.
    pub events: Vec<(Order, AgentEvent)>,
    /// Messages that the model was sent, request by request, those of the next message included.
    pub requests: Vec<Vec<Arc<Message>>>,
    /// Usage that the model reported, as far as that was received.
    pub delivered: Usage,
    /// When something of a model's answers arrived, piece by piece.
    pub received: Vec<Order>,
    /// The answers of models that came to their end.
    pub answers: Vec<WitnessedAnswer>,
    /// The ends of the tools' calls.
    pub call_endings: Vec<CallEnding>,
    /// Numbers of durable records of the session, with the moment from which each holds.
    pub durable: Vec<(Order, u64)>,
}

impl WitnessNotes {
    /// Number of records of the session that were durable then.
    pub fn durable(&self, at: Order) -> usize {
        let before = self.durable.iter().filter(|(since, _)| *since < at);
        let newest = before.map(|(_, records)| *records as usize).max();
        newest.unwrap_or_default()
    }
}

/// Witness to whom the parts of a run tell what they do. Clones are the same witness.
#[derive(Debug, Clone, Default)]
pub struct RunWitness {
    state: Arc<Mutex<WitnessState>>,
}

#[derive(Debug, Default)]
struct WitnessState {
    now: Order,
    notes: WitnessNotes,
    /// Of the calls that run, by their place in `lived`.
    calls: Vec<(usize, Scope)>,
}

impl RunWitness {
    /// The next place in the order.
    pub fn now(&self) -> Order {
        let mut state = self.state.lock();
        state.now += 1;
        state.now
    }

    /// Something begins; it ends when the guard is dropped.
    pub fn begin(&self, kind: ItemKind, id: impl Into<Arc<str>>) -> LifeGuard {
        let began = self.now();
        let mut state = self.state.lock();
        let lived = &mut state.notes.lived;
        lived.push(WitnessedLife {
            kind,
            id: id.into(),
            began,
            ended: None,
        });
        LifeGuard {
            witness: self.clone(),
            at: lived.len() - 1,
        }
    }

    /// A tool's call begins: until it ends its scope is known, so that it can be stopped alone.
    pub(crate) fn begin_call(&self, id: &str, scope: &Scope) -> LifeGuard {
        let guard = self.begin(ItemKind::ToolCall, id);
        self.state.lock().calls.push((guard.at, scope.clone()));
        guard
    }

    /// The call that began last and runs: its id and its scope.
    pub(crate) fn running_call(&self) -> Option<(CallId, Scope)> {
        let state = self.state.lock();
        let (at, scope) = state.calls.last()?;
        let lived = state.notes.lived.get(*at)?;
        Some((lived.id.as_ref().into(), scope.clone()))
    }

    /// Notes something that happens now.
    pub(crate) fn note(&self, note: impl FnOnce(&mut WitnessNotes, Order)) {
        let now = self.now();
        note(&mut self.state.lock().notes, now);
    }

    /// The notes so far.
    pub fn notes(&self) -> WitnessNotes {
        self.state.lock().notes.clone()
    }
}

/// Something that runs, until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it says that it has ended"]
pub struct LifeGuard {
    witness: RunWitness,
    at: usize,
}

impl Drop for LifeGuard {
    fn drop(&mut self) {
        let ended = self.witness.now();
        let mut state = self.witness.state.lock();
        if let Some(lived) = state.notes.lived.get_mut(self.at) {
            lived.ended = Some(ended);
        }
        let (over, running) = std::mem::take(&mut state.calls)
            .into_iter()
            .partition::<Vec<_>, _>(|(at, _)| *at == self.at);
        state.calls = running;
        drop(state);
        // Outside the lock: the last handle of a scope has work to do.
        drop(over);
    }
}
