//! Events that the chat's state handles, and the effects that it returns.

use allstop_core::Cause;
use allstop_terminal::{Key, TerminalQuestion};
use allstop_tools::PermissionAnswer;

use super::super::command::ChatCommand;
use super::super::complete::CompletionNames;
use crate::control::EndSignal;

/// Number of a message in this chat: 1, 2, 3 …
pub(in crate::chat) type MessageNumber = u64;

/// Event of a chat.
#[derive(Debug)]
pub(in crate::chat) enum ChatEvent {
    /// A key was pressed.
    Key(Key),
    /// The terminal is gone.
    InputEnded,
    /// A signal arrived.
    Signal(EndSignal),
    /// The session accepted a message.
    Taken {
        /// The message.
        message: MessageNumber,
        /// True if the message goes into the running turn.
        steers: bool,
    },
    /// The session refused a message.
    Refused {
        /// The message.
        message: MessageNumber,
        /// The reason.
        why: String,
    },
    /// A turn began: the turn of a message, or `None` for a turn that background work caused.
    Began(Option<MessageNumber>),
    /// The turn has ended.
    TurnEnded(Option<MessageNumber>),
    /// A message has its outcome.
    Outcome(MessageNumber),
    /// A stop has its receipt.
    StopEnded,
    /// A wait that Ctrl-C can give up has begun or ended.
    Waits(bool),
    /// Leaving would not end any running work.
    MayLeave,
    /// The chat has named the running work that it would stop at its end.
    RunningWorkShown,
    /// The user is asked a question.
    Asked(TerminalQuestion),
    /// Names to complete a command with.
    Names(CompletionNames),
    /// A further part of a question was shown.
    ShownMore {
        /// The question.
        number: u64,
        /// Rows that are not shown yet.
        rows_left: usize,
    },
    /// A question was answered or withdrawn.
    QuestionOver(u64),
}

/// Effect to carry out.
#[derive(Debug, PartialEq)]
pub(in crate::chat) enum ChatEffect {
    /// Send a message to the session.
    Send(MessageNumber, String),
    /// Show a message. The answer follows.
    ShowMessage(String),
    /// Show a message that goes into the running turn.
    ShowSteered(String),
    /// Show a message that ended without a turn.
    ShowUnanswered(String),
    /// Show a command that was typed.
    ShowCommand(String),
    /// Withdraw messages that wait for their turns.
    Withdraw(Vec<MessageNumber>, Cause),
    /// Stop the turn.
    StopTurn(Cause),
    /// Force everything that is being stopped.
    Force,
    /// Give up the wait for background work.
    GiveUpWait,
    /// Look up the names that can complete a command.
    Complete,
    /// Carry out a command.
    RunCommand(ChatCommand),
    /// Answer a question.
    Answer(u64, PermissionAnswer),
    /// Show more of a question.
    ShowMore(u64),
    /// Switch to the next mode.
    NextMode,
    /// Leave, or name the running work.
    AskToLeave,
    /// Show a note.
    Note(String),
    /// End the chat, with the cause if a signal requested the end.
    Leave(Option<Cause>),
}
