//! Earlier states of the line that a person edits, for an undo.

/// Maximum number of states.
const STATES_MAX: usize = 100;
/// Maximum bytes of all states.
const BYTES_MAX: usize = 1024 * 1024;

/// Earlier states of a line.
#[derive(Debug, Default)]
pub(super) struct EditHistory {
    states: Vec<(String, usize)>,
    /// True if the last change added a letter of a word. The next such letter belongs to the same step.
    is_in_word: bool,
}

impl EditHistory {
    /// Keeps the state before a change. `adds_letter` is true if the change adds a letter of a word.
    pub(super) fn keep(&mut self, line: &str, cursor: usize, adds_letter: bool) {
        let continues = adds_letter && self.is_in_word;
        self.is_in_word = adds_letter;
        if continues || self.states.last().is_some_and(|(last, _)| last == line) {
            return;
        }
        self.states.push((line.to_owned(), cursor));
        let bytes =
            |states: &[(String, usize)]| states.iter().map(|(line, _)| line.len()).sum::<usize>();
        while self.states.len() > STATES_MAX || bytes(&self.states) > BYTES_MAX {
            self.states.remove(0);
        }
    }

    /// The last state that differs from the present line.
    pub(super) fn undo(&mut self, line: &str) -> Option<(String, usize)> {
        self.is_in_word = false;
        while let Some(state) = self.states.pop() {
            if state.0 != line {
                return Some(state);
            }
        }
        None
    }

    /// Forgets all states, because the line was sent.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
