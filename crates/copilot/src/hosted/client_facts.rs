//! Facts from clients that events repeat and that the log of the session does not contain. They last as long as the session
//! is open.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allstop_core::{MessageId, TurnNumber};
use parking_lot::Mutex;
use serde_json::{Map, Value};

/// Maximum number of messages, and of calls, with facts. A client shows the facts of recent messages.
const FACTS_MAX: usize = 1_024;

/// Maximum size of a message's facts in bytes. Larger attachments are left out of the event.
const FACTS_BYTES_MAX: usize = 64 * 1_024;

#[derive(Debug)]
pub(crate) struct ClientFacts {
    /// Text that distinguishes the ids of this opening's notes from those of the earlier openings of the session.
    opening: Arc<str>,
    known: Mutex<KnownFacts>,
    approves_all: AtomicBool,
}

#[derive(Debug, Default)]
struct KnownFacts {
    messages: HashMap<MessageId, Map<String, Value>>,
    /// Messages in the order of their arrival.
    order: VecDeque<MessageId>,
    /// Calls whose handler has answered with a rejection.
    rejected: HashSet<String>,
    notes: Vec<SessionNote>,
    /// Facts about the program for the views of MCP servers.
    host_context: Map<String, Value>,
}

/// An event of the history between two turns, which a client has caused, such as a resume of the session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SessionNote {
    /// The last turn before the event.
    pub after: TurnNumber,
    /// The opening of the session.
    pub opening: Arc<str>,
    /// Number of the note in its opening.
    pub number: usize,
    /// Type of the event.
    pub kind: &'static str,
    pub data: Value,
}

impl Default for ClientFacts {
    fn default() -> Self {
        Self {
            opening: ulid::Ulid::generate().to_string().into(),
            known: Mutex::default(),
            approves_all: AtomicBool::default(),
        }
    }
}

impl ClientFacts {
    /// Returns the facts of an opening after these earlier events of the history.
    pub(super) fn with_notes(notes: Vec<SessionNote>) -> Self {
        let facts = Self::default();
        facts.known.lock().notes = notes;
        facts
    }

    /// True if the server allows all calls without a permission question.
    pub(crate) fn approves_all(&self) -> bool {
        self.approves_all.load(Ordering::SeqCst)
    }

    /// Sets whether the server allows all calls. Returns the former value.
    pub(crate) fn set_approves_all(&self, approves_all: bool) -> bool {
        self.approves_all.swap(approves_all, Ordering::SeqCst)
    }

    /// Sets the facts about the program for the views of MCP servers.
    pub(crate) fn set_host_context(&self, context: Map<String, Value>) {
        self.known.lock().host_context = context;
    }

    /// Returns the facts about the program for the views of MCP servers.
    pub(crate) fn host_context(&self) -> Map<String, Value> {
        self.known.lock().host_context.clone()
    }

    /// Stores fields of the event `user.message` for a message.
    pub(crate) fn add_message(&self, id: MessageId, fields: Map<String, Value>) {
        let size = serde_json::to_vec(&fields).map_or(0, |json| json.len());
        if fields.is_empty() || size > FACTS_BYTES_MAX {
            return;
        }
        let mut known = self.known.lock();
        if known.order.len() == FACTS_MAX
            && let Some(oldest) = known.order.pop_front()
        {
            known.messages.remove(&oldest);
        }
        known.order.push_back(id.clone());
        known.messages.insert(id, fields);
    }

    /// Returns fields of the event `user.message` for a message.
    pub(crate) fn message(&self, id: &MessageId) -> Map<String, Value> {
        let known = self.known.lock();
        known.messages.get(id).cloned().unwrap_or_default()
    }

    /// Stores an event of the history.
    pub(crate) fn add_note(
        &self,
        after: TurnNumber,
        kind: &'static str,
        data: Value,
    ) -> SessionNote {
        let mut known = self.known.lock();
        let number = known.notes.last().map_or(0, |last| last.number + 1);
        if known.notes.len() == FACTS_MAX {
            known.notes.remove(0);
        }
        let note = SessionNote {
            after,
            opening: Arc::clone(&self.opening),
            number,
            kind,
            data,
        };
        known.notes.push(note.clone());
        note
    }

    /// Returns the stored events of the history, in their order.
    pub(crate) fn notes(&self) -> Vec<SessionNote> {
        self.known.lock().notes.clone()
    }

    /// Records that the handler of a call has answered with a rejection.
    pub(crate) fn add_rejected(&self, call: &str) {
        let mut known = self.known.lock();
        if known.rejected.len() == FACTS_MAX {
            known.rejected.clear();
        }
        known.rejected.insert(call.to_owned());
    }

    /// True if the handler of the call has answered with a rejection.
    pub(crate) fn is_rejected(&self, call: &str) -> bool {
        self.known.lock().rejected.contains(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_size_of_facts_are_limited() {
        let facts = ClientFacts::default();
        let fields = |len: usize| Map::from_iter([("text".to_owned(), "x".repeat(len).into())]);
        let id = |number: usize| MessageId::new(format!("m{number}"));
        for number in 0..=FACTS_MAX {
            facts.add_message(id(number), fields(1));
        }
        assert!(facts.message(&id(0)).is_empty());
        assert_eq!(facts.message(&id(FACTS_MAX)), fields(1));
        facts.add_message(id(FACTS_MAX + 1), fields(FACTS_BYTES_MAX));
        assert!(facts.message(&id(FACTS_MAX + 1)).is_empty());
    }
}
