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

/// Notes of what really happened. Clones share them.
#[derive(Clone, Default)]
pub struct RunWitness {
    state: Arc<Mutex<WitnessState>>,
}

#[derive(Default)]
struct WitnessState {
    now: Order,
    lived: Vec<WitnessedLife>,
    events: Vec<(Order, AgentEvent)>,
    requests: Vec<Vec<Arc<Message>>>,
    delivered: Usage,
    received: Vec<Order>,
    answers: Vec<WitnessedAnswer>,
    endings: Vec<CallEnding>,
    /// Numbers of durable records, with the moment from which each holds.
    durable: Vec<(Order, u64)>,
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
        state.lived.push(WitnessedLife {
            kind,
            id: id.into(),
            began,
            ended: None,
        });
        LifeGuard {
            witness: self.clone(),
            at: state.lived.len() - 1,
        }
    }

    /// A tool's call begins: until it ends its scope is known, so that it can be stopped alone.
    pub(crate) fn begin_call(&self, id: &str, scope: &Scope) -> LifeGuard {
        let guard = self.begin(ItemKind::ToolCall, id);
        self.state.lock().calls.push((guard.at, scope.clone()));
        guard
    }

    /// The scope of the call that began last and runs.
    pub(crate) fn running_call(&self) -> Option<Scope> {
        let state = self.state.lock();
        state.calls.last().map(|(_, scope)| scope.clone())
    }

    /// Its id.
    pub(crate) fn running_call_id(&self) -> Option<CallId> {
        let state = self.state.lock();
        let (at, _) = state.calls.last()?;
        Some(state.lived.get(*at)?.id.as_ref().into())
    }

    /// A live event was sent.
    pub(crate) fn note_event(&self, event: AgentEvent) {
        let now = self.now();
        self.state.lock().events.push((now, event));
    }

    /// A model was asked.
    pub(crate) fn note_request(&self, messages: Vec<Arc<Message>>) {
        self.state.lock().requests.push(messages);
    }

    /// A model said what it cost, and that was received.
    pub(crate) fn note_usage(&self, usage: Usage) {
        self.state.lock().delivered += usage;
    }

    /// Something of a model's answer arrived.
    pub(crate) fn note_received(&self) {
        let now = self.now();
        self.state.lock().received.push(now);
    }

    /// A model's answer came to its end.
    pub(crate) fn note_answer(&self, answer: WitnessedAnswer) {
        self.state.lock().answers.push(answer);
    }

    /// A tool's call has ended.
    pub(crate) fn note_call_ending(&self, ending: CallEnding) {
        self.state.lock().endings.push(ending);
    }

    /// The ends of the tools' calls.
    pub fn call_endings(&self) -> Vec<CallEnding> {
        self.state.lock().endings.clone()
    }

    /// So many records of the session are durable.
    pub(crate) fn note_durable(&self, records: u64) {
        let now = self.now();
        self.state.lock().durable.push((now, records));
    }

    /// When something of a model's answers arrived, piece by piece.
    pub fn received(&self) -> Vec<Order> {
        self.state.lock().received.clone()
    }

    /// The answers of models that came to their end.
    pub fn answers(&self) -> Vec<WitnessedAnswer> {
        self.state.lock().answers.clone()
    }

    /// Number of records of the session that were durable then.
    pub fn durable(&self, at: Order) -> usize {
        let state = self.state.lock();
        let before = state.durable.iter().filter(|(since, _)| *since < at);
        before
            .map(|(_, records)| *records as usize)
            .max()
            .unwrap_or_default()
    }

    /// Everything that ran so far.
    pub fn lived(&self) -> Vec<WitnessedLife> {
        self.state.lock().lived.clone()
    }

    /// Everything that was shown live, in order.
    pub fn events(&self) -> Vec<(Order, AgentEvent)> {
        self.state.lock().events.clone()
    }

    /// Messages that the model was sent, request by request.
    pub fn requests(&self) -> Vec<Vec<Arc<Message>>> {
        self.state.lock().requests.clone()
    }

    /// Usage that the model reported.
    pub fn delivered(&self) -> Usage {
        self.state.lock().delivered
    }
}

impl fmt::Debug for RunWitness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunWitness").finish_non_exhaustive()
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
        if let Some(lived) = state.lived.get_mut(self.at) {
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
