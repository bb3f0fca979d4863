//! Decisions of a chat about keys, signals and turns: made here, synchronously, without a runtime.
//!
//! `typing` is the line, `messages` what was sent and has no outcome yet; here is what a stop is.
//!
//! Invariants:
//! 1. What is shown as an answer belongs to the message that was shown last: when another turn begins, or the message
//!    has its outcome, nothing more of it is let through.
//! 2. A message is shown above its answer exactly once.
//! 3. A key is never the answer to a question that came after it was pressed, nor to one that is over; and an answer that
//!    comes too late is no message at once.
//! 4. Ctrl-C always does something: force, stop, give up a wait or a search, clear the line, or leave.

mod event;
mod messages;
mod typing;

use std::time::{Duration, Instant};

use allstop_core::{Cause, CauseKind};

use super::command::{Command, Line};
use super::past::Past;
use crate::control::{self, Control, Signal};
use crate::display::{Entry, Style};
pub(super) use event::{Ask, Effect, Event, MessageNumber};
use messages::Messages;
use typing::{Typed, Typing};

/// Presses of Ctrl-C so close together are one: nobody presses a key twice in a tenth of a second.
const ONE_PRESS: Duration = Duration::from_millis(100);

/// Time after the end of a turn or a stop, and after a force, in which Ctrl-C does not leave: who wanted to stop or to
/// force has seen by then that it is over.
const END_TO_LEAVE: Duration = Duration::from_secs(1);

/// State of the chat, and the line that a person is typing.
#[derive(Debug)]
pub(super) struct Desk {
    typing: Typing,
    messages: Messages,
    /// Stops that were asked for here and have no receipt yet.
    stops: usize,
    stopped_at: Option<Instant>,
    /// When a turn or a stop last ended, or a stop was forced.
    ended_at: Option<Instant>,
    waits: bool,
    control: Control,
    leaving: bool,
}

impl Desk {
    /// A chat that has just begun.
    pub(super) fn new(past: Past, style: Style, control: Control) -> Self {
        Self {
            typing: Typing::new(past, style),
            messages: Messages::default(),
            stops: 0,
            stopped_at: None,
            ended_at: None,
            waits: false,
            control,
            leaving: false,
        }
    }

    /// State that signals have led to: the moment of the exit, and its code.
    pub(super) fn into_control(self) -> Control {
        self.control
    }

    /// Whether what comes of this message's turn is shown.
    pub(super) fn shows(&self, message: Option<MessageNumber>) -> bool {
        self.messages.shows(message)
    }

    /// Something happened.
    pub(super) fn handle(&mut self, event: Event, now: Instant) -> Vec<Effect> {
        match event {
            // On the way out nothing is decided here any more.
            _ if self.leaving => return Vec::new(),
            Event::Key(key) => {
                let typed = self.typing.key(key, now);
                return self.typed(typed);
            }
            Event::InputEnded => return self.signal(Signal::HangUp, now),
            Event::Signal(signal) => return self.signal(signal, now),
            Event::Taken { message, steers } => return self.messages.taken(message, steers),
            Event::Refused { message, why } => return self.refused(message, &why),
            Event::Began(message) => return self.messages.began(message),
            Event::Outcome(message) => {
                self.ended_at = Some(now);
                return self.messages.outcome(message);
            }
            Event::Names(names) => return self.typing.complete(&names),
            Event::TurnEnded(message) => {
                self.ended_at = Some(now);
                self.messages.turn_ended(message);
            }
            Event::StopEnded => {
                self.ended_at = Some(now);
                self.stops = self.stops.saturating_sub(1);
            }
            Event::Waits(waits) => self.waits = waits,
            Event::Asked(ask) => self.typing.asked(ask),
            Event::QuestionOver(number) => self.typing.question_over(number, now),
        }
        Vec::new()
    }

    /// The first message, from the command line.
    pub(super) fn first_message(&mut self, text: &str) -> Vec<Effect> {
        let typed = self.typing.submitted(text.to_owned());
        self.typed(typed)
    }

    /// A command that stops has begun one.
    pub(super) fn stop_begun(&mut self, now: Instant) {
        self.stops += 1;
        self.stopped_at = Some(now);
    }

    /// The line that is typed into.
    pub(super) fn entry(&self) -> Option<Entry> {
        (!self.leaving).then(|| self.typing.entry(self.messages.waiting()))
    }

    fn typed(&mut self, typed: Typed) -> Vec<Effect> {
        match typed {
            Typed::Nothing => Vec::new(),
            Typed::Line(Line::Message(text), _) => vec![self.messages.send(text)],
            Typed::Line(line, text) => {
                self.leaving = line == Line::Command(Command::Quit);
                typing::effects_of(line, text)
            }
            Typed::Answer(number, answer) => vec![Effect::Answer(number, answer)],
            Typed::Complete => vec![Effect::Complete],
            Typed::Say(text) => vec![Effect::Note(text)],
            Typed::Leave => self.leave(None),
        }
    }

    fn refused(&mut self, message: MessageNumber, why: &str) -> Vec<Effect> {
        let Some(text) = self.messages.refused(message) else {
            return Vec::new();
        };
        self.typing.put_back(&text);
        vec![Effect::Note(format!("not sent: {why}"))]
    }

    fn signal(&mut self, signal: Signal, now: Instant) -> Vec<Effect> {
        if signal == Signal::Interrupt {
            return self.interrupt(now);
        }
        match self.control.signal(signal, now) {
            control::Effect::Stop(cause) => self.leave(Some(cause)),
            control::Effect::Nothing | control::Effect::Force(_) | control::Effect::Exit => {
                Vec::new()
            }
        }
    }

    fn interrupt(&mut self, now: Instant) -> Vec<Effect> {
        let is_same = |at: Instant| now < at + ONE_PRESS;
        if self.stopped_at.is_some_and(is_same) {
            return Vec::new();
        }
        if self.stops > 0 {
            self.ended_at = Some(now);
            return vec![Effect::Force];
        }
        if self.messages.is_busy() {
            self.stopped_at = Some(now);
            let cause = Cause::new(CauseKind::User).detail("ctrl-c").by("cli");
            return vec![Effect::StopTurn(cause)];
        }
        if self.waits {
            return vec![Effect::GiveUpWait];
        }
        if self.typing.clear() {
            return vec![Effect::Note(
                "line cleared · Ctrl-C on an empty line leaves".to_owned(),
            )];
        }
        let just_ended = |at: Instant| now < at + END_TO_LEAVE;
        if self.ended_at.is_some_and(just_ended) {
            // Meant for what has ended already: it must not end the chat, and its background work with it.
            return vec![Effect::Note(
                "it has ended already · Ctrl-C again in a moment leaves".to_owned(),
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
