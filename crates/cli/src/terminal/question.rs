//! Permission questions at the terminal: open, answered, closed, and the reply that is being typed. No I/O.
//!
//! Invariants:
//! 1. A key is never the answer to a question that opened after it was pressed, nor to one that is closed.
//! 2. An answer that comes too late is held back: where messages are typed too, it is not sent as one at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use allstop_tools::PermissionAnswer;

use super::editor::{EditResult, LineEditor};
use super::input_line::InputLine;
use super::keys::Key;
use super::text::{Style, Styled, TextRole, styled};

/// Time after a question closes in which y/n/a is held back: a person who was about to answer has seen by then that the
/// question is gone. As a message the word might stop the turn.
const LATE_ANSWER: Duration = Duration::from_secs(2);

/// An open question, as far as its answer is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TerminalQuestion {
    /// Number of the question in this process: 1, 2, 3 …
    pub(crate) number: u64,
    /// The call that it is about, by the calls that it lies in.
    pub(crate) call: String,
    /// The calls that `always` would allow.
    pub(crate) always: String,
}

/// Result of a key while a question is open.
#[derive(Debug, PartialEq)]
pub(crate) enum QuestionReply {
    /// No answer yet.
    Pending,
    /// The question of this number has its answer.
    AnswerResult(u64, PermissionAnswer),
    /// A line that is no answer.
    Other(String),
}

/// The open questions, answered one after the other, and the reply that is being typed.
#[derive(Debug, Default)]
pub(crate) struct QuestionQueue {
    reply: LineEditor,
    open: VecDeque<TerminalQuestion>,
    /// Several questions were open at once: until none is, the prompt names the call.
    names_call: bool,
    /// When the last question closed, until an answer to it was held back.
    closed_at: Option<Instant>,
}

impl QuestionQueue {
    /// Opens a question.
    pub(crate) fn open(&mut self, question: TerminalQuestion) {
        self.open.push_back(question);
        self.names_call |= self.open.len() > 1;
        if self.open.len() == 1 {
            self.reply.replace("");
        }
    }

    /// Closes a question that was answered or withdrawn.
    pub(crate) fn close(&mut self, number: u64, now: Instant) {
        self.closed_at = Some(now);
        let shown = self.open.front().map(|question| question.number);
        self.open.retain(|question| question.number != number);
        self.names_call &= !self.open.is_empty();
        if shown == Some(number) {
            // Text typed for that question is no answer to the next.
            self.reply.replace("");
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The reply that is being typed, while a question is open.
    pub(crate) fn reply_mut(&mut self) -> Option<&mut LineEditor> {
        (!self.is_empty()).then_some(&mut self.reply)
    }

    /// Handles a key; `None` if no question is open. An empty line is no answer: Enter is pressed too easily.
    pub(crate) fn press(&mut self, key: Key, now: Instant) -> Option<QuestionReply> {
        let number = self.open.front()?.number;
        // A reply has one line, so Ctrl-J ends it too.
        let key = if key == Key::NewLine { Key::Enter } else { key };
        let answer = match self.reply.press(key) {
            EditResult::EndOfInput => PermissionAnswer::Deny,
            EditResult::Submitted(line) => match answer_of(&line) {
                Some(answer) => answer,
                None if line.trim().is_empty() => return Some(QuestionReply::Pending),
                None => return Some(QuestionReply::Other(line)),
            },
            _ => return Some(QuestionReply::Pending),
        };
        self.close(number, now);
        Some(QuestionReply::AnswerResult(number, answer))
    }

    /// Denies the question in front, where nobody can answer any more. Its number.
    pub(super) fn deny(&mut self, now: Instant) -> Option<u64> {
        let number = self.open.front()?.number;
        self.close(number, now);
        Some(number)
    }

    /// True if this line answers a question that has closed just now. Holds back one line only.
    pub(crate) fn holds_back(&mut self, line: &str, now: Instant) -> bool {
        let is_late = |closed: Instant| now < closed + LATE_ANSWER;
        let holds = self.closed_at.is_some_and(is_late) && answer_of(line).is_some();
        if holds {
            self.closed_at = None;
        }
        holds
    }

    /// The line that the reply is typed into; `None` if no question is open.
    pub(crate) fn input_line(&self, style: Style) -> Option<InputLine> {
        let question = self.open.front()?;
        let call = if self.names_call {
            format!("{}: ", question.call)
        } else {
            String::new()
        };
        let always = &question.always;
        let sign = style.pick("›", ">");
        Some(InputLine {
            above: Vec::new(),
            prefix: styled![format!(
                "  {call}[y]es, once  [a]lways: {always}  [n]o {sign} "
            )],
            text: self.reply.text().to_owned(),
            cursor: self.reply.cursor(),
            style,
            is_echoed: false,
        })
    }
}

/// The lines of a question above its input line. `asker`: the sub-agent that asks.
pub(super) fn question_lines(style: Style, text: &str, call: &str, asker: Option<&str>) -> Styled {
    let asks = style.paint(TextRole::Warning, "? Allow");
    let text = style.paint(TextRole::Strong, text);
    let call = style.paint(TextRole::Dim, format_args!("({call})"));
    let mut lines = Styled::default();
    lines.push_line(&styled![asks, " ", text, " ", call]);
    if let Some(asker) = asker {
        let asker = format_args!("  asked by {asker}");
        lines.push_line(&style.paint(TextRole::Dim, asker));
    }
    lines
}

/// The answer that a line gives; `None` if it is no answer.
fn answer_of(line: &str) -> Option<PermissionAnswer> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(PermissionAnswer::AllowOnce),
        "a" | "always" => Some(PermissionAnswer::AllowForSession),
        "n" | "no" => Some(PermissionAnswer::Deny),
        _ => None,
    }
}
