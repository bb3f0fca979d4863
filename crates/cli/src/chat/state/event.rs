//! Events that the chat's state handles, and the effects that it returns.

use allstop_core::Cause;
use allstop_terminal::{Key, TerminalQuestion};
use allstop_tools::PermissionAnswer;

use super::super::command::ChatCommand;
use super::super::complete::CompletionNames;
use crate::control::EndSignal;

/// Number of a message in this chat: 1, 2, 3 …
pub(in crate::chat) type MessageNumber = u64;

/// Something happened.
#[derive(Debug)]
pub(in crate::chat) enum ChatEvent {
    /// A key was pressed.
    Key(Key),
    /// The terminal is gone.
    InputEnded,
    /// A signal came.
    Signal(EndSignal),
    /// The session took a message.
    Taken {
        /// The message.
        message: MessageNumber,
        /// It goes into the turn that runs.
        steers: bool,
    },
    /// The session did not take it.
    Refused {
        /// The message.
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
    /// A wait that Ctrl-C can give up has begun or ended.
    Waits(bool),
    /// Leaving ends nothing that runs.
    MayLeave,
    /// The person was told what still runs, which leaving stops.
    ToldWhatRuns,
    /// A person is asked.
    Asked(TerminalQuestion),
    /// Names to complete a command with.
    Names(CompletionNames),
    /// More of a question was shown.
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
    /// Take messages back that wait for their turns.
    Withdraw(Vec<MessageNumber>, Cause),
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
    /// Show more of a question.
    ShowMore(u64),
    /// Switch to the next mode.
    NextMode,
    /// Leave, or say what still runs.
    AskToLeave,
    /// Say something.
    Note(String),
    /// End the chat, with the cause if a signal asked for it.
    Leave(Option<Cause>),
}
