//! Permission questions at the terminal: the open questions, the effect of each key, and the current reply. No I/O.
//!
//! Invariants:
//! 1. A key press never answers a closed question, nor a question that opened after the key press. A question accepts an
//!    answer only after a quiet moment: a person who is typing when the question appears has not read it.
//! 2. An answer that a person sends just after the question has closed is held back. If the person can also type
//!    messages, the answer is not sent as a message at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::editor::{EditResult, LineEditor};
use super::input_line::{InputLine, NarrowPrefix};
use super::keys::Key;
use super::text::{Style, Styled, TextRole, styled};

/// A reply within this time after a question closes is held back. A person who was about to answer notices within this
/// time that the question is gone. If the reply were sent as a message, the message might stop the turn.
const LATE_ANSWER: Duration = Duration::from_secs(2);

/// A question accepts an answer only after no key was pressed for this time. People who type without a pause press a key
/// every 0.1 to 0.5 seconds.
const QUIET: Duration = Duration::from_millis(700);
/// The same time for a person who was typing when the question appeared. Such a person may pause between two words.
const QUIET_AFTER_TYPING: Duration = Duration::from_secs(2);

/// Answer of a person to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionAnswer {
    /// Yes, this time.
    Yes,
    /// Yes, this time and from now on.
    Always,
    /// No, with the typed reason without surrounding blanks. The reason is empty if none was typed.
    No(String),
}

/// The parts of an open question that its answer needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalQuestion {
    /// Number of the question in this process: 1, 2, 3 …
    pub number: u64,
    /// Id of the call that needs permission, as the person sees it.
    pub call: String,
    /// Describes the calls that the answer `always` would allow.
    pub always: String,
    /// Number of the question's rows that are not on the screen yet.
    pub rows_left: usize,
}

/// Result of a pressed key while a question is open.
#[derive(Debug, PartialEq)]
pub enum QuestionReply {
    /// The key came too early to be part of an answer. It belongs to the text that the person was typing.
    TooEarly(Key),
    /// No answer yet.
    Pending,
    /// The question with this number has its answer.
    Answered(u64, QuestionAnswer),
    /// The person wants to see more of the question with this number.
    ShowMore(u64),
    /// A submitted line that is not an answer.
    Other(String),
}

/// The open questions, answered one after the other, and the current reply.
#[derive(Debug, Default)]
pub struct QuestionQueue {
    reply: LineEditor,
    /// True for a terminal that returns whole lines. The beginning of a line is then unknown while a question appears, so
    /// a permission needs a whole word: a message that ends with the letter `y` allows nothing.
    needs_words: bool,
    open: VecDeque<WaitingQuestion>,
    /// Time of the last key that came too early to be part of an answer.
    early_key_at: Option<Instant>,
    /// True if several questions were open at the same time. Until no question is open, the prompt then names the call
    /// of the question.
    names_call: bool,
    /// Time when the last question closed; `None` after a late answer has been held back.
    closed_at: Option<Instant>,
}

/// A question, and the time when it was shown.
#[derive(Debug)]
struct WaitingQuestion {
    question: TerminalQuestion,
    shown_at: Instant,
    /// True if a message was being typed when the question appeared.
    has_draft: bool,
}

impl QuestionQueue {
    /// For a terminal that returns whole lines.
    pub fn of_lines() -> Self {
        Self {
            needs_words: true,
            ..Self::default()
        }
    }

    /// Opens a question that has been shown. `has_draft` is true if the person has typed a part of a message.
    pub fn open(&mut self, question: TerminalQuestion, has_draft: bool, now: Instant) {
        self.open.push_back(WaitingQuestion {
            question,
            shown_at: now,
            has_draft,
        });
        self.names_call |= self.open.len() > 1;
        if self.open.len() == 1 {
            self.reply.replace("");
        }
    }

    /// Closes a question that was answered or withdrawn. Returns the text that was typed for it, which does not answer
    /// the next question.
    pub fn close(&mut self, number: u64, now: Instant) -> String {
        self.closed_at = Some(now);
        let shown = self.open.front().map(|open| open.question.number);
        self.open.retain(|open| open.question.number != number);
        self.names_call &= !self.open.is_empty();
        let mut typed = String::new();
        if shown == Some(number) {
            typed = self.reply.replace("");
            if let Some(next) = self.open.front_mut() {
                // The prompt has just moved to this question.
                next.shown_at = now;
            }
        }
        typed
    }

    /// Begins the quiet time of the open questions again, because the person sees them only from now on.
    pub fn seen_again(&mut self, now: Instant) {
        for open in &mut self.open {
            open.shown_at = now;
        }
        self.reply.replace("");
    }

    /// Records that more of a question was shown.
    pub fn shown_more(&mut self, number: u64, rows_left: usize) {
        let mut open = self.open.iter_mut();
        if let Some(open) = open.find(|open| open.question.number == number) {
            open.question.rows_left = rows_left;
        }
    }

    /// Time from which the first open question accepts an answer, if no key is pressed before. `None` if no question is
    /// open.
    fn answerable_at(&self) -> Option<Instant> {
        let open = self.open.front()?;
        let early_key_at = self.early_key_at.filter(|at| *at >= open.shown_at);
        let quiet_since = early_key_at.unwrap_or(open.shown_at);
        let quiet = if open.has_draft || early_key_at.is_some() {
            QUIET_AFTER_TYPING
        } else {
            QUIET
        };
        Some(quiet_since + quiet)
    }

    /// True if a question is open and accepts an answer.
    pub fn is_answerable(&self, now: Instant) -> bool {
        self.answerable_at().is_some_and(|at| at <= now)
    }

    /// Time at which [`QuestionQueue::is_answerable`] becomes true, if it is false now and a question is open.
    pub fn opens_at(&self, now: Instant) -> Option<Instant> {
        self.answerable_at().filter(|at| now < *at)
    }

    /// True if no question is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The current reply; `None` if no question is open.
    pub fn reply_mut(&mut self) -> Option<&mut LineEditor> {
        (!self.is_empty()).then_some(&mut self.reply)
    }

    /// Handles a key; `None` if no question is open. An empty line is not an answer, because Enter is easily pressed by
    /// accident.
    pub fn press(&mut self, key: Key, now: Instant) -> Option<QuestionReply> {
        let number = self.open.front()?.question.number;
        if !self.is_answerable(now) {
            // A terminal that hangs up repeats this key, and people do not type it inside a message.
            if key != Key::EndOfInput {
                self.early_key_at = Some(now);
            }
            return Some(QuestionReply::TooEarly(key));
        }
        // A reply has one line, so Ctrl-J ends it too.
        let key = if key == Key::NewLine { Key::Enter } else { key };
        let answer = match self.reply.press(key) {
            EditResult::EndOfInput => QuestionAnswer::No(String::new()),
            EditResult::Submitted(line) => match meaning_of(&line, self.needs_words) {
                Some(ReplyMeaning::Answer(answer)) => answer,
                Some(ReplyMeaning::ShowMore) => return Some(QuestionReply::ShowMore(number)),
                None if line.trim().is_empty() => return Some(QuestionReply::Pending),
                None => return Some(QuestionReply::Other(line)),
            },
            _ => return Some(QuestionReply::Pending),
        };
        self.close(number, now);
        Some(QuestionReply::Answered(number, answer))
    }

    /// Explains the possible answers, after a line that is none.
    pub fn usage(&self) -> &'static str {
        if self.needs_words {
            "answer yes, always, n or n REASON; v shows more; Ctrl-C stops the turn"
        } else {
            "answer y, a, n or n REASON; v shows more; Ctrl-C stops the turn"
        }
    }

    /// Denies the first open question, because no person can answer any more. Returns the number of the question.
    pub(super) fn deny(&mut self, now: Instant) -> Option<u64> {
        let number = self.open.front()?.question.number;
        self.close(number, now);
        Some(number)
    }

    /// True if this line would answer a question that has just closed, so the line must be held back. Holds back only
    /// one line for each closed question.
    pub fn holds_back(&mut self, line: &str, now: Instant) -> bool {
        let is_late = |closed: Instant| now < closed + LATE_ANSWER;
        let holds =
            self.closed_at.is_some_and(is_late) && meaning_of(line, self.needs_words).is_some();
        if holds {
            self.closed_at = None;
        }
        holds
    }

    /// The input line for the reply; `None` if no question accepts an answer.
    pub fn input_line(&self, style: Style, now: Instant) -> Option<InputLine> {
        let open = self.open.front().filter(|_| self.is_answerable(now))?;
        let question = &open.question;
        let call = if self.names_call {
            format!("{}: ", question.call)
        } else {
            String::new()
        };
        let always = &question.always;
        let more = if question.rows_left > 0 {
            "  [v]iew more"
        } else {
            ""
        };
        let sign = style.pick("›", ">");
        let above = rows_left_line(question.rows_left, style);
        let scope = format!("  {call}a allows, this session: {always}");
        let v = if more.is_empty() { "" } else { "/v" };
        Some(InputLine {
            above: above.into_iter().collect(),
            prefix: if self.needs_words {
                styled![format!(
                    "  {call}yes, once  always, this session: {always}  [n]o, or n REASON{more} {sign} "
                )]
            } else {
                styled![format!(
                    "  {call}[y]es, once  [a]lways, this session: {always}  [n]o, or n REASON{more} {sign} "
                )]
            },
            narrow: Some(NarrowPrefix {
                above: style.paint(TextRole::Dim, scope),
                prefix: styled![format!("y/a/n{v} {sign} ")],
            }),
            text: self.reply.text().to_owned(),
            cursor: self.reply.cursor(),
            style,
            is_echoed: false,
        })
    }
}

/// A line with the number of rows that are not shown yet; `None` if all are shown.
pub(super) fn rows_left_line(count: usize, style: Style) -> Option<Styled> {
    if count == 0 {
        return None;
    }
    let lines = if count == 1 { "line" } else { "lines" };
    let (dots, dot) = (style.pick("…", "..."), style.pick("·", "-"));
    let said = format!("  {dots} {count} more {lines} {dot} v shows more");
    Some(style.paint(TextRole::Warning, said))
}

/// Meaning of a line while a question is open.
enum ReplyMeaning {
    Answer(QuestionAnswer),
    /// A request to show more of the question.
    ShowMore,
}

/// The meaning of a line; `None` if it is not a reply.
fn meaning_of(line: &str, needs_words: bool) -> Option<ReplyMeaning> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    // A person may write "no, because".
    let word = word.trim_end_matches([',', '.', ':', ';', '!']);
    let rest = rest.trim();
    if needs_words && matches!(word, "y" | "Y" | "a" | "A") {
        return None;
    }
    Some(match (word.to_ascii_lowercase().as_str(), rest) {
        ("y" | "yes", "") => ReplyMeaning::Answer(QuestionAnswer::Yes),
        ("a" | "always", "") => ReplyMeaning::Answer(QuestionAnswer::Always),
        ("n" | "no", reason) => ReplyMeaning::Answer(QuestionAnswer::No(reason.to_owned())),
        ("v" | "view", "") => ReplyMeaning::ShowMore,
        _ => return None,
    })
}
