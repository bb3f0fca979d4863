//! Ctrl-R: searches for an earlier line by its text.

use super::history::InputHistory;
use super::keys::Key;

/// A search through earlier lines, newest first.
#[derive(Debug, Default)]
pub struct HistorySearch {
    query: String,
    found: Option<HistoryMatch>,
}

/// A line that contains the search text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryMatch {
    /// Number of the line in the history.
    pub index: usize,
    /// The line.
    pub line: String,
    /// Position of the match in the line, in bytes.
    pub at: usize,
}

/// Result of a pressed key.
#[derive(Debug, PartialEq, Eq)]
pub enum SearchStep {
    /// The search continues.
    Continues,
    /// The search is cancelled. The input line shows the draft again, which is the text before the search.
    Cancelled,
    /// The search has ended with the found line, to which the key applies. `None` if no line was found, so the key
    /// applies to the draft.
    Ended(Option<String>),
}

impl HistorySearch {
    /// The search text.
    pub fn query(&self) -> &str {
        &self.query
    }

    /// The found line, and the position of the cursor in this line. An empty line if no line was found.
    pub fn shown(&self) -> (&str, usize) {
        let found = self.found.as_ref();
        found.map_or(("", 0), |found| (&found.line, found.at))
    }

    /// Handles a pressed key.
    pub fn press(&mut self, key: &Key, history: &InputHistory) -> SearchStep {
        match key {
            Key::Letter(c) => {
                self.query.push(*c);
                // Searches from the shown line on, because this line may also contain the longer query.
                self.look(history, self.index());
            }
            Key::Paste(text) => {
                self.query.push_str(text);
                self.look(history, self.index());
            }
            Key::Backspace => {
                self.query.pop();
                self.look(history, None);
            }
            // If there is no older line, the last match stays.
            Key::Search if self.index() == Some(0) => {}
            Key::Search => {
                let older = self.index().map(|index| index - 1);
                let found = history.find(&self.query, older);
                self.found = found.or_else(|| self.found.take());
            }
            Key::OpenEditor | Key::Escape => return SearchStep::Cancelled,
            _ => return SearchStep::Ended(self.found.take().map(|found| found.line)),
        }
        SearchStep::Continues
    }

    fn index(&self) -> Option<usize> {
        Some(self.found.as_ref()?.index)
    }

    fn look(&mut self, history: &InputHistory, from: Option<usize>) {
        self.found = history.find(&self.query, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> InputHistory {
        let mut history = InputHistory::in_memory();
        for line in ["cargo test", "git status", "cargo build", "git log"] {
            history.add(line);
        }
        history
    }

    fn pressed(keys: &[Key]) -> HistorySearch {
        let (history, mut search) = (history(), HistorySearch::default());
        for key in keys {
            assert_eq!(search.press(key, &history), SearchStep::Continues);
        }
        search
    }

    #[test]
    fn search_finds_the_newest_first_and_then_older_ones() {
        let (c, a) = (Key::Letter('c'), Key::Letter('a'));
        let newest = [c, a];
        assert_eq!(pressed(&newest).shown(), ("cargo build", 0));
        let older = [&newest[..], &[Key::Search]].concat();
        assert_eq!(pressed(&older).shown(), ("cargo test", 0));
        let none_older = [&older[..], &[Key::Search]].concat();
        assert_eq!(pressed(&none_older).shown(), ("cargo test", 0));
        let wider = [
            &older[..],
            &[Key::Backspace, Key::Backspace, Key::Letter('g')],
        ]
        .concat();
        assert_eq!(pressed(&wider).shown(), ("git log", 0));
        assert_eq!(pressed(&[Key::Paste("zz".into())]).shown(), ("", 0));
    }

    #[test]
    fn any_other_key_is_for_the_line_that_was_found() {
        let mut search = pressed(&[Key::Paste("stat".into())]);
        let found = SearchStep::Ended(Some("git status".into()));
        assert_eq!(search.press(&Key::Left, &history()), found);
        let mut given_up = pressed(&[Key::Letter('g')]);
        assert_eq!(
            given_up.press(&Key::OpenEditor, &history()),
            SearchStep::Cancelled
        );
        let mut nothing = HistorySearch::default();
        assert_eq!(
            nothing.press(&Key::Enter, &history()),
            SearchStep::Ended(None)
        );
    }
}
