//! The line that a person types into: messages, commands, and the answers to questions.

use std::collections::VecDeque;

use allstop_tools::Answer;

use super::super::command::{Command, Line};
use super::super::complete::{Completed, Names, complete};
use super::super::editor::{Editor, Pressed};
use super::super::keys::Key;
use super::super::past::Past;
use super::super::search::{Search, Searched};
use super::event::{Ask, Effect};
use crate::display::{Entry, Style, escape};

/// What somebody wants who typed.
#[derive(Debug)]
pub(super) enum Typed {
    /// Nothing yet.
    Nothing,
    /// A line was sent, to the model or to us. The text is as it was typed.
    Line(Line, String),
    /// A question has its answer.
    Answer(u64, Answer),
    /// A name is to be completed.
    Complete,
    /// Something is to be said about it.
    Say(String),
    /// Ctrl-D on an empty line.
    Leave,
}

/// What a person is typing, and the questions that wait for them.
#[derive(Debug)]
pub(super) struct Typing {
    editor: Editor,
    /// Where the answer to a question is typed: what was being typed before stays as it is.
    reply: Editor,
    past: Past,
    search: Option<Search>,
    questions: VecDeque<Ask>,
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
            style,
        }
    }

    pub(super) fn entry<'a>(&self, waiting: impl Iterator<Item = &'a str>) -> Entry {
        let sign = self.style.pick("›", ">");
        let (prefix, text, cursor) = match (self.questions.front(), &self.search) {
            (Some(ask), _) => {
                let always = escape::line(&ask.always);
                let prefix = format!("  [y]es, once  [a]lways: {always}  [n]o {sign} ");
                (prefix, self.reply.text(), self.reply.cursor())
            }
            (None, Some(search)) => {
                let prefix = format!("  search: {} {sign} ", escape::line(search.query()));
                let (text, cursor) = search.shown();
                (prefix, text, cursor)
            }
            (None, None) => (format!("{sign} "), self.editor.text(), self.editor.cursor()),
        };
        Entry {
            above: waiting
                .map(|text| format!("  waits: {}", escape::line(text)))
                .collect(),
            prefix,
            text: text.to_owned(),
            cursor,
            style: self.style,
        }
    }

    pub(super) fn asked(&mut self, ask: Ask) {
        self.questions.push_back(ask);
        if self.questions.len() == 1 {
            self.reply.replace("");
        }
    }

    pub(super) fn question_over(&mut self, number: u64) {
        let shown = self.questions.front().map(|ask| ask.number);
        self.questions.retain(|ask| ask.number != number);
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

    pub(super) fn key(&mut self, key: Key) -> Typed {
        if key == Key::Complete {
            return Typed::Complete;
        }
        if let Some(ask) = self.questions.front() {
            let number = ask.number;
            return match self.reply.press(key) {
                Pressed::Submitted(line) => self.replied(number, &line),
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

    /// What was typed where a question stands. An empty line is no answer: Enter is pressed too easily.
    fn replied(&mut self, number: u64, line: &str) -> Typed {
        let answer = match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Answer::AllowOnce,
            "a" | "always" => Answer::AllowForSession,
            "n" | "no" => Answer::Deny,
            command if command.starts_with('/') => return self.submitted(line.to_owned()),
            "" => return Typed::Nothing,
            _ => {
                let how = "answer y, a or n; Ctrl-C stops the turn, and commands work here too";
                return Typed::Say(how.to_owned());
            }
        };
        self.question_over(number);
        Typed::Answer(number, answer)
    }
}

/// What follows from a line that is no message.
pub(super) fn effects_of(line: Line, text: String) -> Vec<Effect> {
    match line {
        Line::Command(Command::Quit) => vec![Effect::ShowCommand(text), Effect::Leave(None)],
        Line::Command(command) => vec![Effect::ShowCommand(text), Effect::Do(command)],
        Line::Wrong(why) => vec![Effect::ShowCommand(text), Effect::Note(why)],
        Line::Empty | Line::Message(_) => Vec::new(),
    }
}
