//! Events that a desk hears, and effects that it wants.

use allstop_core::Cause;
use allstop_tools::PermissionAnswer;

use super::super::command::Command;
use super::super::complete::Names;
use super::super::keys::Key;
use crate::control::Signal;

/// Which message of this chat: 1, 2, 3 …
pub(in crate::chat) type MessageNumber = u64;

/// Something happened.
#[derive(Debug)]
pub(in crate::chat) enum Event {
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
        /// The reason.
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
    /// The names that a command may have, where somebody wants one completed.
    Names(Names),
    /// The question is over, whoever has answered it, or a stop has taken it away.
    QuestionOver(u64),
}

/// A question, as far as its answer is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::chat) struct Ask {
    /// Which question of this chat: 1, 2, 3 …
    pub(in crate::chat) number: u64,
    /// The call that it is about, by the calls that it lies in.
    pub(in crate::chat) call: String,
    /// The calls that `always` would allow.
    pub(in crate::chat) always: String,
}

/// Effect to carry out.
#[derive(Debug, PartialEq)]
pub(in crate::chat) enum Effect {
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
    /// Say what a name in a command may be.
    Complete,
    /// Carry a command out.
    Do(Command),
    /// Answer a question.
    Answer(u64, PermissionAnswer),
    /// Say something.
    Note(String),
    /// End the chat; a signal has a cause of its own.
    Leave(Option<Cause>),
}
