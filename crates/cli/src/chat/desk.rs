//! What a chat does about keys, signals and turns: decided here, synchronously, without a runtime.
//!
//! Invariants:
//! 1. What is shown as an answer belongs to the message that was shown last: when another turn begins, or the message
//!    has its outcome, nothing more of it is let through.
//! 2. A message is shown above its answer exactly once.
//! 3. A key is never the answer to a question that came after it was pressed, nor to one that is over.
//! 4. Ctrl-C always does something: force, stop, give up a wait, clear the line, or leave.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use allstop_core::{Cause, CauseKind};
use allstop_tools::Answer;

use super::command::{Command, Line};
use super::editor::{Editor, Pressed};
use super::keys::Key;
use super::past::Past;
use crate::control::{self, Control, Signal};
use crate::display::{Entry, Style, escape};

/// Presses of Ctrl-C so close together are one: nobody presses a key twice in a tenth of a second.
const ONE_PRESS: Duration = Duration::from_millis(100);

/// How long after a stop a press of Ctrl-C does not leave: a person who wants to force has seen what came of it by then.
const STOP_TO_LEAVE: Duration = Duration::from_secs(1);

/// Which message of this chat: 1, 2, 3 …
pub(super) type MessageNumber = u64;

/// Something happened.
#[derive(Debug)]
pub(super) enum Event {
    /// A key was pressed.
    Key(Key),
    /// The terminal gives nothing any more.
    InputEnded,
    /// A signal came.
    Signal(Signal),
    /// The session took a message.
    Taken {
        /// Which.
        message: MessageNumber,
        /// It goes into the turn that runs.
        steers: bool,
    },
    /// The session did not take it.
    Refused {
        /// Which.
        message: MessageNumber,
        /// Why.
        why: String,
    },
    /// A turn began: that of a message, or one that background work caused.
    Began(Option<MessageNumber>),
    /// The turn has its ending.
    TurnEnded(Option<MessageNumber>),
    /// A message has its outcome.
    Outcome(MessageNumber),
    /// A stop that was asked for here has its receipt.
    StopEnded,
    /// Something that Ctrl-C may give up has begun, or is over.
    Waits(bool),
    /// A person is asked.
    Asked(Ask),
    /// The question is over, whoever has answered it, or a stop has taken it away.
    QuestionOver(u64),
}

/// A question, as far as its answer is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    /// Which question of this chat: 1, 2, 3 …
    pub(super) number: u64,
    /// What `always` would allow.
    pub(super) always: String,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    /// Hand a message to the session.
    Send(MessageNumber, String),
    /// Show a message: its answer comes next.
    ShowMessage(String),
    /// Show a message that goes into the running turn.
    ShowSteered(String),
    /// Show a message that no turn has begun for.
    ShowUnanswered(String),
    /// Show a command that was typed.
    ShowCommand(String),
    /// Stop the turn.
    StopTurn(Cause),
    /// Force everything that is being stopped.
    Force,
    /// Stop waiting for what was begun.
    GiveUpWait,
    /// Carry a command out.
    Do(Command),
    /// Answer a question.
    Answer(u64, Answer),
    /// Say something.
    Note(String),
    /// End the chat; a signal has a cause of its own.
    Leave(Option<Cause>),
}

/// A turn that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    /// The message that caused it; `None`: background work did.
    message: Option<MessageNumber>,
}

/// A message that has no outcome yet.
#[derive(Debug)]
struct Open {
    number: MessageNumber,
    text: String,
    shown: bool,
}

/// What is known of the chat, and what a person is typing.
#[derive(Debug)]
pub(super) struct Desk {
    editor: Editor,
    /// Where the answer to a question is typed: what was being typed before stays as it is.
    reply: Editor,
    past: Past,
    style: Style,
    next_message: MessageNumber,
    open: VecDeque<Open>,
    /// The turn that runs.
    turn: Option<Turn>,
    /// Stops that were asked for here and have no receipt yet.
    stops: usize,
    stopped_at: Option<Instant>,
    waits: bool,
    questions: VecDeque<Ask>,
    control: Control,
    leaving: bool,
}

impl Desk {
    /// A chat that has just begun.
    pub(super) fn new(past: Past, style: Style, grace: Duration) -> Self {
        Self {
            editor: Editor::default(),
            reply: Editor::default(),
            past,
            style,
            next_message: 1,
            open: VecDeque::new(),
            turn: None,
            stops: 0,
            stopped_at: None,
            waits: false,
            questions: VecDeque::new(),
            control: Control::new(grace),
            leaving: false,
        }
    }

    /// What signals have come to: last moment and exit code.
    pub(super) fn into_control(self) -> Control {
        self.control
    }

    /// Whether what comes of this message's turn is shown.
    pub(super) fn shows(&self, message: Option<MessageNumber>) -> bool {
        self.turn == Some(Turn { message })
    }

    /// Something happened.
    pub(super) fn handle(&mut self, event: Event, now: Instant) -> Vec<Effect> {
        match event {
            // On the way out nothing is decided here any more.
            _ if self.leaving => Vec::new(),
            Event::Key(key) => self.key(key),
            Event::InputEnded => self.signal(Signal::HangUp, now),
            Event::Signal(signal) => self.signal(signal, now),
            Event::Taken { message, steers } => self.taken(message, steers),
            Event::Refused { message, why } => self.refused(message, &why),
            Event::Began(message) => self.began(message),
            Event::TurnEnded(message) => {
                if self.turn == Some(Turn { message }) && message.is_none() {
                    self.turn = None;
                }
                Vec::new()
            }
            Event::Outcome(message) => self.outcome(message),
            Event::StopEnded => {
                self.stops = self.stops.saturating_sub(1);
                Vec::new()
            }
            Event::Waits(waits) => {
                self.waits = waits;
                Vec::new()
            }
            Event::Asked(ask) => {
                self.questions.push_back(ask);
                if self.questions.len() == 1 {
                    self.reply.replace("");
                }
                Vec::new()
            }
            Event::QuestionOver(number) => {
                self.question_over(number);
                Vec::new()
            }
        }
    }

    /// The first message, from the command line.
    pub(super) fn first_message(&mut self, text: &str) -> Vec<Effect> {
        self.submitted(text)
    }

    /// A command that stops has begun one.
    pub(super) fn stop_begun(&mut self, now: Instant) {
        self.stops += 1;
        self.stopped_at = Some(now);
    }

    /// The line that is typed into.
    pub(super) fn entry(&self) -> Option<Entry> {
        if self.leaving {
            return None;
        }
        let sign = self.style.pick("›", ">");
        let (editor, prefix) = match self.questions.front() {
            Some(ask) => {
                let always = escape::line(&ask.always);
                let prefix = format!("  [y]es, once  [a]lways: {always}  [n]o {sign} ");
                (&self.reply, prefix)
            }
            None => (&self.editor, format!("{sign} ")),
        };
        let waiting = self.open.iter().filter(|open| !open.shown);
        Some(Entry {
            above: waiting
                .map(|open| format!("  waits: {}", escape::line(&open.text)))
                .collect(),
            prefix,
            text: editor.text().to_owned(),
            cursor: editor.cursor(),
            style: self.style,
        })
    }

    fn key(&mut self, key: Key) -> Vec<Effect> {
        if let Some(ask) = self.questions.front() {
            let number = ask.number;
            return match self.reply.press(key) {
                Pressed::Submitted(line) => self.replied(number, &line),
                _ => Vec::new(),
            };
        }
        match self.editor.press(key) {
            Pressed::Edited => Vec::new(),
            Pressed::Submitted(text) => self.submitted(&text),
            Pressed::EndOfInput => self.leave(None),
            Pressed::Back => {
                if let Some(line) = self.past.back(self.editor.text()) {
                    self.editor.replace(&line);
                }
                Vec::new()
            }
            Pressed::Forward => {
                if let Some(line) = self.past.forward() {
                    self.editor.replace(&line);
                }
                Vec::new()
            }
            Pressed::TooLong => vec![Effect::Note(
                "that is too long: write it to a file, and ask the model to read that".to_owned(),
            )],
        }
    }

    fn submitted(&mut self, text: &str) -> Vec<Effect> {
        let line = Line::read(text);
        if line != Line::Empty {
            self.past.add(text.trim_end());
        }
        match line {
            Line::Empty => Vec::new(),
            Line::Message(text) => {
                let number = self.next_message;
                self.next_message += 1;
                self.open.push_back(Open {
                    number,
                    text: text.clone(),
                    shown: false,
                });
                vec![Effect::Send(number, text)]
            }
            Line::Command(Command::Quit) => {
                let mut effects = vec![Effect::ShowCommand(text.to_owned())];
                effects.extend(self.leave(None));
                effects
            }
            Line::Command(command) => {
                vec![Effect::ShowCommand(text.to_owned()), Effect::Do(command)]
            }
            Line::Wrong(why) => vec![Effect::ShowCommand(text.to_owned()), Effect::Note(why)],
        }
    }

    /// What was typed where a question stands. An empty line is no answer: Enter is pressed too easily.
    fn replied(&mut self, number: u64, line: &str) -> Vec<Effect> {
        let answer = match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Answer::AllowOnce,
            "a" | "always" => Answer::AllowForSession,
            "n" | "no" => Answer::Deny,
            command if command.starts_with('/') => return self.submitted(line),
            "" => return Vec::new(),
            _ => {
                let how = "answer y, a or n; Ctrl-C stops the turn, and commands work here too";
                return vec![Effect::Note(how.to_owned())];
            }
        };
        self.question_over(number);
        vec![Effect::Answer(number, answer)]
    }

    fn question_over(&mut self, number: u64) {
        let was_shown = self
            .questions
            .front()
            .is_some_and(|ask| ask.number == number);
        self.questions.retain(|ask| ask.number != number);
        if was_shown {
            // What was typed for that one is no answer to the next.
            self.reply.replace("");
        }
    }

    fn taken(&mut self, message: MessageNumber, steers: bool) -> Vec<Effect> {
        match self.find(message) {
            Some(open) if steers && !open.shown => {
                open.shown = true;
                vec![Effect::ShowSteered(open.text.clone())]
            }
            _ => Vec::new(),
        }
    }

    fn refused(&mut self, message: MessageNumber, why: &str) -> Vec<Effect> {
        let Some(open) = self.remove(message) else {
            return Vec::new();
        };
        // It was not sent: it stands where it was typed, unless something else does by now.
        if self.editor.text().is_empty() {
            self.editor.replace(&open.text);
        }
        vec![Effect::Note(format!("not sent: {why}"))]
    }

    fn began(&mut self, message: Option<MessageNumber>) -> Vec<Effect> {
        // A turn of a message that has its outcome already is over.
        let known = match message {
            Some(number) => self.open.iter().any(|open| open.number == number),
            None => true,
        };
        if !known {
            return Vec::new();
        }
        self.turn = Some(Turn { message });
        match message.and_then(|number| self.find(number)) {
            Some(open) if !open.shown => {
                open.shown = true;
                vec![Effect::ShowMessage(open.text.clone())]
            }
            _ => Vec::new(),
        }
    }

    fn outcome(&mut self, message: MessageNumber) -> Vec<Effect> {
        if self.shows(Some(message)) {
            self.turn = None;
        }
        match self.remove(message) {
            Some(open) if !open.shown => vec![Effect::ShowUnanswered(open.text)],
            _ => Vec::new(),
        }
    }

    fn find(&mut self, message: MessageNumber) -> Option<&mut Open> {
        self.open.iter_mut().find(|open| open.number == message)
    }

    fn remove(&mut self, message: MessageNumber) -> Option<Open> {
        let at = self.open.iter().position(|open| open.number == message)?;
        self.open.remove(at)
    }

    fn signal(&mut self, signal: Signal, now: Instant) -> Vec<Effect> {
        if signal == Signal::Interrupt {
            return self.interrupt(now);
        }
        match self.control.signal(signal, now) {
            control::Effect::Stop(cause) => self.leave(Some(cause)),
            control::Effect::Nothing | control::Effect::Force => Vec::new(),
        }
    }

    fn interrupt(&mut self, now: Instant) -> Vec<Effect> {
        let is_same = |at: Instant| now < at + ONE_PRESS;
        if self.stopped_at.is_some_and(is_same) {
            return Vec::new();
        }
        if self.stops > 0 {
            return vec![Effect::Force];
        }
        if self.turn.is_some() || !self.open.is_empty() {
            self.stopped_at = Some(now);
            let cause = Cause::new(CauseKind::User).detail("ctrl-c").by("cli");
            return vec![Effect::StopTurn(cause)];
        }
        if self.waits {
            return vec![Effect::GiveUpWait];
        }
        if !self.editor.replace("").is_empty() {
            return vec![Effect::Note(
                "line cleared · Ctrl-C on an empty line leaves".to_owned(),
            )];
        }
        let just_stopped = |at: Instant| now < at + STOP_TO_LEAVE;
        if self.stopped_at.is_some_and(just_stopped) {
            // Meant to force what has ended already: it must not end the chat, and its background work with it.
            return vec![Effect::Note(
                "stopped already · Ctrl-C again in a moment leaves".to_owned(),
            )];
        }
        self.leave(None)
    }

    fn leave(&mut self, cause: Option<Cause>) -> Vec<Effect> {
        self.leaving = true;
        vec![Effect::Leave(cause)]
    }
}

#[cfg(test)]
mod tests;
