//! State of the session picker, without a terminal: the effect of each key, and the displayed lines.

use allstop_core::SessionId;
use allstop_terminal::{EditResult, InputLine, Key, LineEditor, Style, Styled, TextRole, styled};

use super::candidate::SessionCandidate;

/// Maximum number of sessions that are shown at once. The key Down scrolls to the other sessions, and typed words
/// select among them.
const SHOWN_MAX: usize = 8;
/// Minimum rows of a terminal on which each session takes two rows and a line explains the keys. On a terminal with
/// fewer rows, each session takes one row.
const ROWS_LOW: usize = 8;

/// State of the choice among sessions, the newest first.
#[derive(Debug)]
pub(super) struct SessionPicker {
    candidates: Vec<SessionCandidate>,
    /// Typed number or words.
    editor: LineEditor,
    /// Index among the matching sessions.
    selected: usize,
}

/// Result of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PickStep {
    /// The user has not chosen yet.
    Pending,
    /// The submitted line matches several sessions, or none. Contains the number of matches.
    Unclear(usize),
    /// The user chose this session.
    Chosen(SessionId),
    /// The user gave up.
    Cancelled,
}

impl SessionPicker {
    pub(super) fn new(candidates: Vec<SessionCandidate>) -> Self {
        Self {
            candidates,
            editor: LineEditor::default(),
            selected: 0,
        }
    }

    /// Handles a key on a terminal that redraws the list after each key.
    pub(super) fn press(&mut self, key: Key) -> PickStep {
        match key {
            Key::Escape | Key::OpenEditor => return PickStep::Cancelled,
            Key::Up => self.selected = self.selected.saturating_sub(1),
            Key::Down => {
                let last = self.matches().len().saturating_sub(1);
                self.selected = last.min(self.selected + 1);
            }
            Key::Enter => {
                let chosen = self.matches().get(self.selected).map(|one| one.id.clone());
                return chosen.map_or(PickStep::Pending, PickStep::Chosen);
            }
            // The input is a single line.
            Key::NewLine => {}
            key => {
                let before = self.editor.text().to_owned();
                if self.editor.press(key) == EditResult::EndOfInput {
                    return PickStep::Cancelled;
                }
                if self.editor.text() != before {
                    self.selected = 0;
                }
            }
        }
        PickStep::Pending
    }

    /// Handles a key on a terminal in line mode, which sends only whole lines.
    pub(super) fn press_in_lines(&mut self, key: Key) -> PickStep {
        if !key.ends_line() {
            return self.press(key);
        }
        let matches = self.matches();
        let typed = self.editor.text().trim();
        let is_number = |one: &&SessionCandidate| one.number.to_string() == typed;
        let step = match matches.as_slice() {
            [first, ..] if typed.is_empty() => PickStep::Chosen(first.id.clone()),
            [only] => PickStep::Chosen(only.id.clone()),
            many => match many.iter().copied().find(is_number) {
                Some(one) => PickStep::Chosen(one.id.clone()),
                None => PickStep::Unclear(many.len()),
            },
        };
        self.editor.replace("");
        step
    }

    /// If the typed text consists of digits, the sessions whose numbers begin with these digits. Without such sessions,
    /// or for any other text, the sessions that contain all typed words.
    fn matches(&self) -> Vec<&SessionCandidate> {
        let typed = self.editor.text().trim().to_lowercase();
        let is_number = !typed.is_empty() && typed.bytes().all(|byte| byte.is_ascii_digit());
        let numbered = |one: &&SessionCandidate| one.number.to_string().starts_with(&typed);
        let by_number: Vec<_> = self.candidates.iter().filter(numbered).collect();
        if is_number && !by_number.is_empty() {
            return by_number;
        }
        let words: Vec<String> = typed.split_whitespace().map(str::to_owned).collect();
        let all = self.candidates.iter();
        all.filter(|one| one.has(&words)).collect()
    }

    /// Input line below the matching sessions, for a terminal with this many rows.
    pub(super) fn input_line(&self, style: Style, rows: usize) -> InputLine {
        let is_low = rows < ROWS_LOW;
        let (rows_each, others) = if is_low { (1, 1) } else { (2, 3) };
        let room = rows.saturating_sub(others + 1) / rows_each;
        let shown = room.clamp(1, SHOWN_MAX);
        let matches = self.matches();
        let first = self.selected / shown * shown;
        let mut above = Vec::new();
        if !is_low {
            above.push(styled!["Choose a session, or type to find it:"]);
        }
        for (at, one) in matches.iter().enumerate().skip(first).take(shown) {
            let [head, facts] = lines_of(one, style, at == self.selected);
            above.push(head);
            above.extend((!is_low).then_some(facts));
        }
        if !is_low {
            let said = match (matches.len(), matches.len().saturating_sub(first + shown)) {
                (0, _) => "no session matches".to_owned(),
                (_, 0) => KEYS.to_owned(),
                (_, below) => format!("{below} more {} {KEYS}", style.pick("↓", "below;")),
            };
            above.push(style.paint(TextRole::Dim, said));
        }
        InputLine {
            above,
            prefix: style.pick("› ", "> ").into(),
            text: self.editor.text().to_owned(),
            cursor: self.editor.cursor(),
            style,
            narrow: None,
            is_echoed: false,
        }
    }

    /// List of all sessions, for a terminal in line mode.
    pub(super) fn list(&self, style: Style) -> Styled {
        let mut list = Styled::default();
        for one in &self.candidates {
            for line in lines_of(one, style, false) {
                list.push_line(&line);
            }
        }
        list
    }
}

const KEYS: &str = "Enter continues, Esc leaves";

/// Two lines of a session: number and prompt, then the facts.
fn lines_of(one: &SessionCandidate, style: Style, is_selected: bool) -> [Styled; 2] {
    let sign = if is_selected {
        style.pick("›", ">")
    } else {
        " "
    };
    let prompt = match &*one.prompt {
        "" => "(no prompt yet)",
        prompt => prompt,
    };
    let number = Styled::text(&one.number.to_string()).pad(4);
    let head = styled![sign, " ", number, Styled::text(prompt)];
    let head = if is_selected {
        style.paint(TextRole::Strong, head)
    } else {
        head
    };
    let facts = one.facts.join(style.pick(" · ", " - "));
    let facts = styled!["      ", Styled::text(&facts)];
    [head, style.paint(TextRole::Dim, facts)]
}

#[cfg(test)]
#[path = "picker_tests.rs"]
mod tests;
