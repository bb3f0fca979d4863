//! The line that a person types into: messages, commands, and the answers to questions.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use allstop_tools::PermissionAnswer;

use super::super::command::{Command, Line};
use super::super::complete::{Completed, Names, complete};
use super::super::editor::{Editor, Pressed};
use super::super::keys::Key;
use super::super::past::Past;
use super::super::search::{Search, Searched};
use super::event::{Ask, Effect};
use crate::display::{Entry, Style, styled};
use crate::prompt::answer_of;

/// Time after a question in which a word that answers one is taken for an answer to it: whoever was about to has seen
/// by then that it is gone. As a message it might stop the turn.
const LATE_ANSWER: Duration = Duration::from_secs(2);

/// Request of somebody who typed.
#[derive(Debug)]
pub(super) enum Typed {
    /// Nothing yet.
    Nothing,
    /// A line was sent, to the model or to us. The text is as it was typed.
    Line(Line, String),
    /// A question has its answer.
    Answer(u64, PermissionAnswer),
    /// A name is to be completed.
    Complete,
    /// Something is to be said about it.
    Say(String),
    /// Ctrl-D on an empty line.
    Leave,
}

/// The text that a person is typing, and the questions that wait for them.
#[derive(Debug)]
pub(super) struct Typing {
    editor: Editor,
    /// Where the answer to a question is typed: what was being typed before stays as it is.
    reply: Editor,
    past: Past,
    search: Option<Search>,
    questions: VecDeque<Ask>,
    /// Several questions stood at once: until none does, the one that is answered is named.
    names_call: bool,
    /// When the last question was over, until an answer to it was held back.
    question_over_at: Option<Instant>,
    style: Style,
}

impl Typing {
    pub(super) fn new(past: Past, style: Style) -> Self {
        Self {
            editor: Editor::default(),
            reply: Editor::default(),
            past,
            search: None,
            questions: VecDeque::new(),
            names_call: false,
            question_over_at: None,
            style,
        }
    }

    pub(super) fn entry<'a>(&self, waiting: impl Iterator<Item = &'a str>) -> Entry {
        let sign = self.style.pick("›", ">");
        let (prefix, text, cursor) = match (self.questions.front(), &self.search) {
            (Some(ask), _) => {
                let call = if self.names_call {
                    format!("{}: ", ask.call)
                } else {
                    String::new()
                };
                let prefix = format!(
                    "  {call}[y]es, once  [a]lways: {}  [n]o {sign} ",
                    ask.always
                );
                (prefix, self.reply.text(), self.reply.cursor())
            }
            (None, Some(search)) => {
                let prefix = format!("  search: {} {sign} ", search.query());
                let (text, cursor) = search.shown();
                (prefix, text, cursor)
            }
            (None, None) => (format!("{sign} "), self.editor.text(), self.editor.cursor()),
        };
        Entry {
            above: waiting.map(|text| styled!["  waits: ", text]).collect(),
            prefix: styled![prefix],
            text: text.to_owned(),
            cursor,
            style: self.style,
        }
    }

    pub(super) fn asked(&mut self, ask: Ask) {
        self.questions.push_back(ask);
        self.names_call |= self.questions.len() > 1;
        if self.questions.len() == 1 {
            self.reply.replace("");
        }
    }

    pub(super) fn question_over(&mut self, number: u64, now: Instant) {
        self.question_over_at = Some(now);
        let shown = self.questions.front().map(|ask| ask.number);
        self.questions.retain(|ask| ask.number != number);
        self.names_call &= !self.questions.is_empty();
        if shown == Some(number) {
            // What was typed for that one is no answer to the next.
            self.reply.replace("");
        }
    }

    /// Takes back what was not sent: it stands where it was typed, unless something else does by now.
    pub(super) fn put_back(&mut self, text: &str) {
        if self.editor.text().is_empty() {
            self.editor.replace(text);
        }
    }

    /// Clears the line; says whether there was something.
    pub(super) fn clear(&mut self) -> bool {
        self.search.take().is_some() || !self.editor.replace("").is_empty()
    }

    pub(super) fn key(&mut self, key: Key, now: Instant) -> Typed {
        if key == Key::Complete {
            return Typed::Complete;
        }
        if let Some(ask) = self.questions.front() {
            let number = ask.number;
            return match self.reply.press(key) {
                Pressed::Submitted(line) => self.replied(number, &line, now),
                _ => Typed::Nothing,
            };
        }
        if let Some(search) = &mut self.search {
            match search.press(&key, &self.past) {
                Searched::GoesOn => return Typed::Nothing,
                Searched::GivenUp => {
                    self.search = None;
                    return Typed::Nothing;
                }
                Searched::Over(line) => {
                    self.search = None;
                    line.map(|line| self.editor.replace(&line));
                }
            }
        }
        match self.editor.press(key) {
            Pressed::Edited => Typed::Nothing,
            Pressed::Submitted(text) if self.is_late_answer(&text, now) => {
                self.question_over_at = None;
                self.editor.replace(&text);
                Typed::Say("no question is open: Enter sends it as a message".to_owned())
            }
            Pressed::Submitted(text) => self.submitted(text),
            Pressed::EndOfInput => Typed::Leave,
            Pressed::Back => self.show_past(Past::back),
            Pressed::Forward => self.show_past(|past, _| past.forward()),
            Pressed::Search => {
                self.search = Some(Search::default());
                Typed::Nothing
            }
            Pressed::TooLong => Typed::Say(
                "that is too long: write it to a file, and ask the model to read that".to_owned(),
            ),
        }
    }

    fn show_past(&mut self, walk: impl Fn(&mut Past, &str) -> Option<String>) -> Typed {
        if let Some(line) = walk(&mut self.past, self.editor.text()) {
            self.editor.replace(&line);
        }
        Typed::Nothing
    }

    /// Completes what is typed, where it is a command and the cursor at its end.
    pub(super) fn complete(&mut self, names: &Names) -> Vec<Effect> {
        let editor = match self.questions.front() {
            Some(_) => &mut self.reply,
            None => &mut self.editor,
        };
        if self.search.is_some() || editor.cursor() < editor.text().len() {
            return Vec::new();
        }
        match complete(editor.text(), names) {
            Completed::Nothing => Vec::new(),
            Completed::Line(line) => {
                editor.replace(&line);
                Vec::new()
            }
            Completed::Choices(choices) => vec![Effect::Note(choices.join("  "))],
        }
    }

    pub(super) fn submitted(&mut self, text: String) -> Typed {
        let line = Line::read(&text);
        if line == Line::Empty {
            return Typed::Nothing;
        }
        self.past.add(text.trim_end());
        Typed::Line(line, text)
    }

    fn is_late_answer(&self, text: &str, now: Instant) -> bool {
        let is_late = |over: Instant| now < over + LATE_ANSWER;
        self.question_over_at.is_some_and(is_late) && answer_of(text).is_some()
    }

    /// Reads a line that was typed where a question stands. An empty line is no answer: Enter is pressed too easily.
    fn replied(&mut self, number: u64, line: &str, now: Instant) -> Typed {
        if let Some(answer) = answer_of(line) {
            self.question_over(number, now);
            return Typed::Answer(number, answer);
        }
        match line.trim() {
            command if command.starts_with('/') => self.submitted(line.to_owned()),
            "" => Typed::Nothing,
            _ => Typed::Say(
                "answer y, a or n; Ctrl-C stops the turn, and commands work here too".to_owned(),
            ),
        }
    }
}

/// Effects of a line that is no message.
pub(super) fn effects_of(line: Line, text: String) -> Vec<Effect> {
    match line {
        Line::Command(Command::Quit) => vec![Effect::ShowCommand(text), Effect::Leave(None)],
        Line::Command(command) => vec![Effect::ShowCommand(text), Effect::Do(command)],
        Line::Wrong(why) => vec![Effect::ShowCommand(text), Effect::Note(why)],
        Line::Empty | Line::Message(_) => Vec::new(),
    }
}
