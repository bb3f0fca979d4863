//! Witness of a run. The parts of the run (models, tools, hooks) record their own work in notes. So the notes do not
//! depend on the reports of the tested engine.
//!
//! All notes have one common order: a number that grows with each note. So a checker can find out which work was alive
//! when the receipt of a stop was delivered, and whether work began after a stop was accepted.

use std::fmt;
use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::receipt::ItemKind;
use allstop_core::{CallId, CauseKind, Message, ToolCall, Usage};
use allstop_scope::Scope;
use parking_lot::Mutex;

/// A position in the order of the notes.
pub type Order = u64;

/// A piece of work that ran.
#[derive(Debug, Clone)]
pub struct ObservedWork {
    /// Kind of work.
    pub kind: ItemKind,
    /// Identity of the work: a call's id, a hook's name, or a process's marker.
    pub id: Arc<str>,
    /// Position in the order of the notes at which the work began.
    pub began: Order,
    /// Position at which the work ended; `None` if the work still runs.
    pub ended: Option<Order>,
}

impl ObservedWork {
    /// True if the work belongs to the turn and does not run in the background.
    pub fn is_foreground(&self) -> bool {
        self.kind != ItemKind::Background
    }

    /// True if the work ran at this position in the order.
    pub fn was_alive(&self, at: Order) -> bool {
        self.began <= at && self.ended.is_none_or(|ended| ended > at)
    }
}

impl fmt::Display for ObservedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.id)
    }
}

/// The end of a tool call, as the tool saw it.
#[derive(Debug, Clone)]
pub struct CallEnding {
    /// The call's id.
    pub id: Arc<str>,
    /// True if the call returned a result, false if the call returned an error; `None` if the call was dropped or
    /// panicked.
    pub succeeded: Option<bool>,
    /// Cause of the stop of the call's scope; `None` if the scope was not stopped before the call ended.
    pub cause: Option<CauseKind>,
}

/// A model's answer that was complete.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WitnessedAnswer {
    /// Text of the answer.
    pub text: String,
    /// Tool calls of the answer.
    pub calls: Vec<ToolCall>,
}

/// All notes that the parts made during a run.
#[derive(Debug, Clone, Default)]
pub struct WitnessNotes {
    /// All work that ran.
    pub work: Vec<ObservedWork>,
    /// All live events, in order.
    pub events: Vec<(Order, AgentEvent)>,
    /// Messages of each request to the model. After the run, the test sends one more message; the requests that answer
    /// this message are included.
    pub requests: Vec<Vec<Arc<Message>>>,
    /// Usage that the model reported and that the agent received.
    pub delivered: Usage,
    /// Positions in the order at which the pieces of a model's answers arrived.
    pub received: Vec<Order>,
    /// The complete answers of models.
    pub answers: Vec<WitnessedAnswer>,
    /// The ends of the tool calls.
    pub call_endings: Vec<CallEnding>,
    /// Each entry has the number of durable records of the session, and the position from which this number is valid.
    pub durable: Vec<(Order, u64)>,
}

impl WitnessNotes {
    /// Number of records of the session that were durable at this position.
    pub fn durable(&self, at: Order) -> usize {
        let before = self.durable.iter().filter(|(since, _)| *since < at);
        let newest = before.map(|(_, records)| *records as usize).max();
        newest.unwrap_or_default()
    }
}

/// Witness to which the parts of a run report their work. Clones share the notes.
#[derive(Debug, Clone, Default)]
pub struct RunWitness {
    state: Arc<Mutex<WitnessState>>,
}

#[derive(Debug, Default)]
struct WitnessState {
    now: Order,
    notes: WitnessNotes,
    /// Scopes of the running calls, each with its index in `work`.
    calls: Vec<(usize, Scope)>,
}

impl RunWitness {
    /// Takes the next position in the order.
    pub fn now(&self) -> Order {
        let mut state = self.state.lock();
        state.now += 1;
        state.now
    }

    /// Records that work begins. When the guard is dropped, the work counts as ended.
    pub fn begin(&self, kind: ItemKind, id: impl Into<Arc<str>>) -> WorkGuard {
        let began = self.now();
        let mut state = self.state.lock();
        let work = &mut state.notes.work;
        work.push(ObservedWork {
            kind,
            id: id.into(),
            began,
            ended: None,
        });
        WorkGuard {
            witness: self.clone(),
            at: work.len() - 1,
        }
    }

    /// Records that a tool call begins. Keeps the scope of the call until the call ends, so that a test can stop only
    /// this call.
    pub(crate) fn begin_call(&self, id: &str, scope: &Scope) -> WorkGuard {
        let guard = self.begin(ItemKind::ToolCall, id);
        self.state.lock().calls.push((guard.at, scope.clone()));
        guard
    }

    /// Id and scope of the running call that began last.
    pub(crate) fn running_call(&self) -> Option<(CallId, Scope)> {
        let state = self.state.lock();
        let (at, scope) = state.calls.last()?;
        let work = state.notes.work.get(*at)?;
        Some((work.id.as_ref().into(), scope.clone()))
    }

    /// Records an event at the next position.
    pub(crate) fn note(&self, note: impl FnOnce(&mut WitnessNotes, Order)) {
        let now = self.now();
        note(&mut self.state.lock().notes, now);
    }

    /// The notes so far.
    pub fn notes(&self) -> WitnessNotes {
        self.state.lock().notes.clone()
    }
}

/// Guard of running work. When the guard is dropped, the work counts as ended.
#[derive(Debug)]
#[must_use = "dropping it says that it has ended"]
pub struct WorkGuard {
    witness: RunWitness,
    at: usize,
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        let ended = self.witness.now();
        let mut state = self.witness.state.lock();
        if let Some(work) = state.notes.work.get_mut(self.at) {
            work.ended = Some(ended);
        }
        let (over, running) = std::mem::take(&mut state.calls)
            .into_iter()
            .partition::<Vec<_>, _>(|(at, _)| *at == self.at);
        state.calls = running;
        drop(state);
        // Release the lock first, because dropping the last handle of a scope does more work.
        drop(over);
    }
}
