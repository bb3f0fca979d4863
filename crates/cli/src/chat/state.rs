//! Decisions of a chat about keys, signals and turns, without a runtime.
//!
//! The module `typing` handles the input line. The module `messages` handles the messages that have no outcome yet.
//! This module decides about stops.
//!
//! Invariants:
//! 1. Displayed output belongs to the message that was shown last. Once another turn begins, or the outcome of the
//!    message arrives, no further output of that message is shown.
//! 2. A message is shown above its answer exactly once.
//! 3. A key answers only a permission question that was open when the key was pressed and that is still open. An answer
//!    that comes too late stays on the input line: only another Enter sends it as a message.
//! 4. Escape stops a running turn, unless a stop already runs. Escape has no other effect.
//! 5. Ctrl-C always has an effect: it forces a stop, stops the turn, gives up a wait or a search, clears the line,
//!    shows a note, or leaves. The only exception is a second Ctrl-C within [`ONE_SIGNAL`] of a press that stopped the
//!    turn or asked to leave.

mod event;
mod messages;
mod typing;

use std::time::{Duration, Instant};

use allstop_core::{Cause, CauseKind};
use allstop_terminal::{InputLine, Key};

use super::command::{ChatCommand, TypedLine};
use crate::control::{Control, ControlEffect, EndSignal, ONE_SIGNAL};
pub(super) use event::{ChatEffect, ChatEvent, CommandWork, MessageNumber};
use messages::ChatMessages;
use typing::InputResult;
pub(super) use typing::TypedInput;

/// Ctrl-C does not leave the chat within this time after a turn, a stop or a command has ended, or after a stop was
/// forced. A user who pressed Ctrl-C to stop or to force needs this time to see that the work is over.
const END_TO_LEAVE: Duration = Duration::from_secs(1);
/// A request to leave first lists the running work. A second request within this time ends the chat and stops the work,
/// unless the work has changed or the user has pressed another key.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

/// Activity of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChatActivity {
    /// A permission question is open.
    Asks,
    /// A stop runs.
    Stops,
    /// A turn runs.
    Runs,
    /// `/compact` runs.
    Compacts,
    Idle,
}

/// Running work that was listed because the end of the chat would stop it.
#[derive(Debug)]
struct NamedWork {
    names: Vec<String>,
    at: Instant,
}

/// State of the chat, and the line that the user types.
#[derive(Debug)]
pub(super) struct ChatState {
    typing: TypedInput,
    messages: ChatMessages,
    /// Number of stops that still run: their receipts (the reports of the stopped work) are not complete.
    stops: usize,
    stopped_at: Option<Instant>,
    /// Time when a turn, a stop or a command last ended, or when a stop was forced.
    ended_at: Option<Instant>,
    /// The running work that was listed before the user leaves. Each change of the work and each other key clears it.
    listed_work: Option<NamedWork>,
    /// Number of waits for background work. A new wait ends the earlier one, which still has to report its end.
    waits: usize,
    /// True while `/compact` runs.
    compacts: bool,
    control: Control,
    /// True if the chat ends after the outcome of the last message.
    leaves_when_idle: bool,
    leaving: bool,
}

impl ChatState {
    /// Creates the state of a new chat.
    pub(super) fn new(typing: TypedInput, control: Control) -> Self {
        Self {
            typing,
            messages: ChatMessages::default(),
            stops: 0,
            stopped_at: None,
            ended_at: None,
            listed_work: None,
            waits: 0,
            compacts: false,
            control,
            leaves_when_idle: false,
            leaving: false,
        }
    }

    /// Returns the shutdown state, which determines the time of the exit and the exit code.
    pub(super) fn into_control(self) -> Control {
        self.control
    }

    /// True if the running turn is the turn of this message, so its events are shown. `None` stands for a turn that
    /// background work caused.
    pub(super) fn shows(&self, message: Option<MessageNumber>) -> bool {
        self.messages.shows(message)
    }

    /// Handles an event, and returns the effects to carry out.
    pub(super) fn handle(&mut self, event: ChatEvent, now: Instant) -> Vec<ChatEffect> {
        match event {
            // A chat that is leaving ignores all events.
            _ if self.leaving => return Vec::new(),
            ChatEvent::Key(key) => return self.key(key, now),
            ChatEvent::InputEnded => return self.signal(EndSignal::HangUp, now),
            ChatEvent::Signal(signal) => return self.signal(signal, now),
            ChatEvent::Reads(message) => self.messages.reads(message),
            ChatEvent::Attached { message, rows } => self.messages.attached(message, rows),
            ChatEvent::Accepted { message, steers } => self.messages.accepted(message, steers),
            ChatEvent::Taken(message) => return self.messages.taken(message),
            ChatEvent::Refused { message, why } => return self.refused(message, &why),
            ChatEvent::Began(message) => {
                self.listed_work = None;
                return self.messages.began(message);
            }
            ChatEvent::Outcome(message) => {
                self.work_ended(now);
                let mut effects = self.messages.outcome(message);
                effects.extend(self.leave_if_idle());
                return effects;
            }
            ChatEvent::Edited(text) => self.typing.edited(&text),
            ChatEvent::CameBack => self.typing.seen_again(now),
            ChatEvent::Names(names) => return self.typing.complete(&names),
            ChatEvent::TurnEnded(message) => {
                self.work_ended(now);
                self.messages.turn_ended(message);
                return self.leave_if_idle();
            }
            ChatEvent::StopEnded => {
                self.work_ended(now);
                self.stops = self.stops.saturating_sub(1);
            }
            ChatEvent::Works(work) => {
                match work {
                    CommandWork::Waits => self.waits += 1,
                    CommandWork::Compacts => self.compacts = true,
                }
                self.listed_work = None;
            }
            ChatEvent::CommandEnded => self.ended_at = Some(now),
            ChatEvent::WorkEnded(work) => {
                match work {
                    CommandWork::Waits => self.waits = self.waits.saturating_sub(1),
                    CommandWork::Compacts => self.compacts = false,
                }
                self.work_ended(now);
            }
            // The turn has ended, but the end of its answer is not on the screen yet.
            ChatEvent::MayLeave if self.messages.is_busy() && !self.leaves_when_idle => {
                self.leaves_when_idle = true;
            }
            ChatEvent::MayLeave => return self.leave(None),
            ChatEvent::WorkRuns(names) => return self.leave_or_list(names, now),
            ChatEvent::Asked(question) => self.typing.asked(question, now),
            ChatEvent::ShownMore { number, rows_left } => {
                self.typing.shown_more(number, rows_left);
            }
            ChatEvent::QuestionOver(number) => self.typing.question_over(number, now),
        }
        Vec::new()
    }

    /// Submits the first message, from the command line.
    pub(super) fn first_message(&mut self, text: &str) -> Vec<ChatEffect> {
        let typed = self.typing.submitted(text.to_owned());
        self.typed(typed)
    }

    /// Records the beginning of a stop.
    pub(super) fn stop_begun(&mut self, now: Instant) {
        self.stops += 1;
        self.stopped_at = Some(now);
    }

    /// Time at which a stop that begins now will use force, if its work has not ended by itself.
    pub(super) fn force_at(&self, now: Instant) -> Option<Instant> {
        now.checked_add(self.control.grace())
    }

    /// Input line; `None` while the chat is leaving.
    pub(super) fn input_line(&self, now: Instant) -> Option<InputLine> {
        (!self.leaving).then(|| self.typing.input_line(self.messages.waiting(), now))
    }

    /// The activity, for the title of the window.
    pub(super) fn activity(&self) -> ChatActivity {
        if self.typing.has_question() {
            ChatActivity::Asks
        } else if self.stops > 0 {
            ChatActivity::Stops
        } else if self.compacts {
            ChatActivity::Compacts
        } else if self.is_busy() {
            ChatActivity::Runs
        } else {
            ChatActivity::Idle
        }
    }

    /// Time at which the input line changes although no event arrives.
    pub(super) fn changes_at(&self, now: Instant) -> Option<Instant> {
        self.typing.changes_at(now)
    }

    /// True if a terminal in line mode should ask for a line now.
    pub(super) fn waits_for_a_line(&self, now: Instant) -> bool {
        !self.messages.is_busy() || self.typing.is_asking(now)
    }

    /// The whole text that is typed so far, with long pasted texts.
    pub(super) fn whole_text(&self) -> String {
        self.typing.whole_text()
    }

    /// True if the message has no outcome yet and was not withdrawn.
    pub(super) fn is_waiting(&self, message: MessageNumber) -> bool {
        self.messages.is_open(message)
    }

    /// True if keys edit a message, and not a reply or a search.
    pub(super) fn edits_message(&self) -> bool {
        !self.typing.is_searching() && !self.typing.has_question()
    }

    /// Text that is typed so far.
    pub(super) fn typed_line(&self) -> String {
        self.typing.text().to_owned()
    }

    fn typed(&mut self, typed: InputResult) -> Vec<ChatEffect> {
        match typed {
            InputResult::Nothing => Vec::new(),
            InputResult::Line(TypedLine::Message(text), _) => vec![self.messages.send(text)],
            InputResult::Line(TypedLine::Prompt(prompt), text) => {
                vec![
                    self.messages
                        .send_prompt(text.trim_end().to_owned(), prompt),
                ]
            }
            InputResult::Line(TypedLine::ServerPrompt(command), _) => {
                vec![self.messages.send_server_prompt(command)]
            }
            InputResult::Line(TypedLine::Command(ChatCommand::Quit), text) => {
                vec![ChatEffect::ShowCommand(text), ChatEffect::AskToLeave]
            }
            InputResult::Line(line, text) => typing::effects_of(line, text),
            InputResult::Answer(number, answer) => vec![ChatEffect::Answer(number, answer)],
            InputResult::ShowMore(number) => vec![ChatEffect::ShowMore(number)],
            InputResult::Complete => vec![ChatEffect::Complete],
            InputResult::Note(text) => vec![ChatEffect::Note(text)],
            InputResult::Leave => vec![ChatEffect::AskToLeave],
        }
    }

    fn refused(&mut self, message: MessageNumber, why: &str) -> Vec<ChatEffect> {
        let Some(text) = self.messages.refused(message) else {
            return Vec::new();
        };
        self.typing.put_back(&text);
        vec![ChatEffect::Note(format!("not sent: {why}"))]
    }

    fn signal(&mut self, signal: EndSignal, now: Instant) -> Vec<ChatEffect> {
        if signal == EndSignal::Interrupt {
            return self.interrupt(now);
        }
        match self.control.signal(signal, now) {
            ControlEffect::Stop(cause) => self.leave(Some(cause)),
            ControlEffect::Nothing | ControlEffect::Force(_) | ControlEffect::Exit => Vec::new(),
        }
    }

    /// True if `/compact` runs.
    pub(super) fn compacts(&self) -> bool {
        self.compacts
    }

    /// True if a turn or `/compact` runs, or a message waits.
    pub(super) fn is_busy(&self) -> bool {
        self.compacts || self.messages.is_busy()
    }

    /// Escape only stops the turn. Users press this key for many reasons, so it never leaves the chat or discards text.
    fn escape(&mut self, now: Instant) -> Vec<ChatEffect> {
        if self.stops > 0 || !self.is_busy() {
            return Vec::new();
        }
        self.stop_turn("Esc", now)
    }

    /// Stops the turn. Messages that wait for their turns return to the input line: a user who stops the turn does not
    /// want the next turn to begin.
    fn stop_turn(&mut self, key: &'static str, now: Instant) -> Vec<ChatEffect> {
        self.stopped_at = Some(now);
        let cause = Cause::new(CauseKind::User).detail(key).by("cli");
        let (numbers, texts): (Vec<_>, Vec<_>) =
            self.messages.withdraw(self.compacts).into_iter().unzip();
        if numbers.is_empty() {
            return vec![ChatEffect::StopTurn(cause)];
        }
        self.typing.put_before(&texts);
        let said = match texts.len() {
            1 => "the waiting message is back on the input line".to_owned(),
            count => format!("the {count} waiting messages are back on the input line"),
        };
        let mut effects = vec![ChatEffect::Withdraw(numbers, cause.clone())];
        if self.is_busy() {
            effects.push(ChatEffect::StopTurn(cause));
        }
        effects.push(ChatEffect::Note(said));
        effects
    }

    fn interrupt(&mut self, now: Instant) -> Vec<ChatEffect> {
        let effects = self.interrupted(now);
        if !effects.is_empty() && !effects.contains(&ChatEffect::AskToLeave) {
            self.listed_work = None;
        }
        effects
    }

    fn interrupted(&mut self, now: Instant) -> Vec<ChatEffect> {
        let is_same = |at: Instant| now < at + ONE_SIGNAL;
        let listed_at = self.listed_work.as_ref().map(|listed| listed.at);
        if self.stopped_at.max(listed_at).is_some_and(is_same) {
            return Vec::new();
        }
        if self.stops > 0 {
            self.ended_at = Some(now);
            return vec![ChatEffect::Force];
        }
        if self.is_busy() {
            return self.stop_turn("ctrl-c", now);
        }
        if self.waits > 0 {
            return vec![ChatEffect::GiveUpWait];
        }
        if self.typing.clear() {
            return vec![ChatEffect::Note(
                "line cleared · Ctrl-C on an empty line leaves the chat".to_owned(),
            )];
        }
        let just_ended = |at: Instant| now < at + END_TO_LEAVE;
        if self.ended_at.is_some_and(just_ended) {
            // The user pressed the key to stop work, but this work has just ended. The key must not end the chat,
            // because the end of the chat would also stop the background work.
            return vec![ChatEffect::Note(
                "the work has ended · press Ctrl-C again in a moment to leave".to_owned(),
            )];
        }
        vec![ChatEffect::AskToLeave]
    }

    /// Handles a key.
    fn key(&mut self, key: Key, now: Instant) -> Vec<ChatEffect> {
        let effects = match key {
            Key::Escape if !self.typing.is_searching() => self.escape(now),
            Key::NextMode => vec![ChatEffect::NextMode],
            Key::Redraw => vec![ChatEffect::Redraw],
            Key::OpenEditor if !self.typing.is_searching() && !self.typing.has_question() => {
                vec![ChatEffect::OpenEditor]
            }
            key => {
                let typed = self.typing.key(key, now);
                self.typed(typed)
            }
        };
        // The letters of `/quit` ask to leave, like its Enter.
        let asks = effects.contains(&ChatEffect::AskToLeave) || self.typing.begins_to_quit();
        if !asks {
            self.listed_work = None;
        }
        effects
    }

    /// Leaves if this work was listed a moment ago. Otherwise lists the work.
    fn leave_or_list(&mut self, names: Vec<String>, now: Instant) -> Vec<ChatEffect> {
        let is_confirmed =
            |listed: NamedWork| now < listed.at + LEAVE_WITHIN && listed.names == names;
        if self.listed_work.take().is_some_and(is_confirmed) {
            return self.leave(None);
        }
        self.listed_work = Some(NamedWork {
            names: names.clone(),
            at: now,
        });
        vec![ChatEffect::ListWork(names)]
    }

    fn work_ended(&mut self, now: Instant) {
        self.ended_at = Some(now);
        self.listed_work = None;
    }

    fn leave_if_idle(&mut self) -> Vec<ChatEffect> {
        if self.leaves_when_idle && !self.messages.is_busy() {
            return self.leave(None);
        }
        Vec::new()
    }

    fn leave(&mut self, cause: Option<Cause>) -> Vec<ChatEffect> {
        self.leaving = true;
        vec![ChatEffect::Leave(cause)]
    }
}

#[cfg(test)]
mod tests;
