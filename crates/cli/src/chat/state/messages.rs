//! Messages that have no outcome yet, and the running turn. The outcome of a message is the result of its turn.

use std::collections::VecDeque;

use super::event::{ChatEffect, MessageNumber};

/// Turn whose events are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ShownTurn {
    /// Message that caused the turn; `None` if background work caused it.
    message: Option<MessageNumber>,
}

/// Message that has no outcome yet.
#[derive(Debug)]
struct UnansweredMessage {
    number: MessageNumber,
    text: String,
    /// Rows about its images, to be shown below the text.
    images: Vec<String>,
    /// True if the running turn takes the message after its current step.
    steers: bool,
    /// True while its images and resources are read, so that the session does not have the message yet.
    is_unsent: bool,
    shown: bool,
}

impl UnansweredMessage {
    /// Effects that show the message.
    fn show(&mut self, show_text: fn(String) -> ChatEffect) -> Vec<ChatEffect> {
        self.shown = true;
        let images = self.images.drain(..).map(ChatEffect::Note);
        [show_text(self.text.clone())]
            .into_iter()
            .chain(images)
            .collect()
    }
}

/// Message that no model has read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitingMessage<'a> {
    pub(super) text: &'a str,
    /// True if the running turn takes the message after its current step.
    pub(super) steers: bool,
}

/// Messages that have no outcome yet, and the running turn.
#[derive(Debug, Default)]
pub(super) struct ChatMessages {
    last: MessageNumber,
    open: VecDeque<UnansweredMessage>,
    turn: Option<ShownTurn>,
}

impl ChatMessages {
    /// True if the running turn is the turn of this message, so its events are shown.
    pub(super) fn shows(&self, message: Option<MessageNumber>) -> bool {
        self.turn == Some(ShownTurn { message })
    }

    /// True if a stop of the turn would cover anything.
    pub(super) fn is_busy(&self) -> bool {
        self.turn.is_some() || !self.open.is_empty()
    }

    /// Messages whose turns have not begun, and that the running turn has not taken.
    pub(super) fn waiting(&self) -> impl Iterator<Item = WaitingMessage<'_>> {
        let waiting = self.open.iter().filter(|open| !open.shown);
        waiting.map(|open| WaitingMessage {
            text: &open.text,
            steers: open.steers,
        })
    }

    /// Adds a new message, and returns the effect that sends it.
    pub(super) fn send(&mut self, text: String) -> ChatEffect {
        self.send_prompt(text.clone(), text)
    }

    /// Adds a new message that was typed as `text`, and sends `prompt`. The person sees the typed text, also if it
    /// returns to the input line.
    pub(super) fn send_prompt(&mut self, text: String, prompt: String) -> ChatEffect {
        ChatEffect::Send(self.add(text), prompt)
    }

    /// Adds a new message, which is a prompt of an MCP server, and returns the effect that gets and sends it.
    pub(super) fn send_server_prompt(&mut self, command: String) -> ChatEffect {
        ChatEffect::SendServerPrompt(self.add(command.clone()), command)
    }

    fn add(&mut self, text: String) -> MessageNumber {
        self.last += 1;
        self.open.push_back(UnansweredMessage {
            number: self.last,
            text,
            images: Vec::new(),
            steers: false,
            is_unsent: false,
            shown: false,
        });
        self.last
    }

    /// True if the message has no outcome yet.
    pub(super) fn is_open(&self, message: MessageNumber) -> bool {
        self.open.iter().any(|open| open.number == message)
    }

    pub(super) fn attached(&mut self, message: MessageNumber, rows: Vec<String>) {
        if let Some(open) = self.find(message) {
            open.images = rows;
        }
    }

    pub(super) fn reads(&mut self, message: MessageNumber) {
        if let Some(open) = self.find(message) {
            open.is_unsent = true;
        }
    }

    pub(super) fn accepted(&mut self, message: MessageNumber, steers: bool) {
        if let Some(open) = self.find(message) {
            open.steers = steers;
            open.is_unsent = false;
        }
    }

    /// Handles a message that the running turn has taken: the next request to the model contains it.
    pub(super) fn taken(&mut self, message: MessageNumber) -> Vec<ChatEffect> {
        match self.find(message) {
            Some(open) if !open.shown => open.show(ChatEffect::ShowSteered),
            _ => Vec::new(),
        }
    }

    /// Removes a refused message, and returns its text.
    pub(super) fn refused(&mut self, message: MessageNumber) -> Option<String> {
        Some(self.remove(message)?.text)
    }

    pub(super) fn began(&mut self, message: Option<MessageNumber>) -> Vec<ChatEffect> {
        // If the outcome of the message has already arrived, its turn is over.
        if message.is_some_and(|number| self.find(number).is_none()) {
            return Vec::new();
        }
        self.turn = Some(ShownTurn { message });
        match message.and_then(|number| self.find(number)) {
            Some(open) if !open.shown => open.show(ChatEffect::ShowMessage),
            _ => Vec::new(),
        }
    }

    /// Handles the end of a turn. The turn of a message stays the running turn until its outcome arrives.
    pub(super) fn turn_ended(&mut self, message: Option<MessageNumber>) {
        if message.is_none() && self.shows(message) {
            self.turn = None;
        }
    }

    pub(super) fn outcome(&mut self, message: MessageNumber) -> Vec<ChatEffect> {
        if self.shows(Some(message)) {
            self.turn = None;
        }
        match self.remove(message) {
            Some(open) if !open.shown => vec![ChatEffect::ShowUnanswered(open.text)],
            _ => Vec::new(),
        }
    }

    /// Withdraws the messages that wait for turns after the stopped turn, and returns them from the oldest to the
    /// newest. If no turn and no compaction runs, the stop covers the first message, so the first message is not
    /// withdrawn, unless it is not sent yet.
    pub(super) fn withdraw(&mut self, compacts: bool) -> Vec<(MessageNumber, String)> {
        let first = usize::from(self.turn.is_none() && !compacts);
        let (kept, withdrawn): (Vec<_>, Vec<_>) = self
            .open
            .drain(..)
            .enumerate()
            .partition(|(at, open)| (*at < first && !open.is_unsent) || open.shown);
        self.open = kept.into_iter().map(|(_, open)| open).collect();
        let withdrawn = withdrawn.into_iter();
        withdrawn
            .map(|(_, open)| (open.number, open.text))
            .collect()
    }

    fn find(&mut self, message: MessageNumber) -> Option<&mut UnansweredMessage> {
        self.open.iter_mut().find(|open| open.number == message)
    }

    fn remove(&mut self, message: MessageNumber) -> Option<UnansweredMessage> {
        let at = self.open.iter().position(|open| open.number == message)?;
        self.open.remove(at)
    }
}
