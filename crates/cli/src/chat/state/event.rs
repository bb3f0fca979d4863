//! Events that a state hears, and effects that it wants.

use allstop_core::Cause;
use allstop_tools::PermissionAnswer;

use super::super::command::ChatCommand;
use super::super::complete::CompletionNames;
use crate::control::EndSignal;
use crate::terminal::{Key, TerminalQuestion};

/// Which message of this chat: 1, 2, 3 …
pub(in crate::chat) type MessageNumber = u64;

/// Something happened.
#[derive(Debug)]
pub(in crate::chat) enum ChatEvent {
    /// A key was pressed.
    Key(Key),
    /// The terminal gives nothing any more.
    InputEnded,
    /// A signal came.
    Signal(EndSignal),
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
    Asked(TerminalQuestion),
    /// The names that a command may have, where somebody wants one completed.
    Names(CompletionNames),
    /// The question is over, whoever has answered it, or a stop has taken it away.
    QuestionOver(u64),
}

/// Effect to carry out.
#[derive(Debug, PartialEq)]
pub(in crate::chat) enum ChatEffect {
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
    Do(ChatCommand),
    /// Answer a question.
    Answer(u64, PermissionAnswer),
    /// Say something.
    Note(String),
    /// End the chat; a signal has a cause of its own.
    Leave(Option<Cause>),
}
