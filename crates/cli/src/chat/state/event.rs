//! Events that the chat's state handles, and the effects that it returns.

use allstop_core::Cause;
use allstop_terminal::{Key, TerminalQuestion};
use allstop_tools::PermissionAnswer;

use super::super::command::ChatCommand;
use super::super::complete::CompletionNames;
use crate::control::EndSignal;

/// Number of a message in this chat: 1, 2, 3 …
pub(in crate::chat) type MessageNumber = u64;

/// Work of a command that Ctrl-C ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chat) enum CommandWork {
    /// A wait for background work, which continues.
    Waits,
    /// `/compact`, which is stopped like a turn.
    Compacts,
}

/// Event of a chat.
#[derive(Debug)]
pub(in crate::chat) enum ChatEvent {
    /// A key was pressed.
    Key(Key),
    /// The terminal is gone.
    InputEnded,
    /// A signal arrived.
    Signal(EndSignal),
    /// The images and resources of a message are being read.
    Reads(MessageNumber),
    /// The images and resources of a message were read.
    Attached {
        /// The message.
        message: MessageNumber,
        /// A row for people for each of them.
        rows: Vec<String>,
    },
    /// The session accepted a message.
    Accepted {
        /// The message.
        message: MessageNumber,
        /// True if the running turn takes the message after its current step (steering).
        steers: bool,
    },
    /// The running turn has taken a message.
    Taken(MessageNumber),
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
    /// The work of a command has begun.
    Works(CommandWork),
    /// The work of a command has ended.
    WorkEnded(CommandWork),
    /// A command that the chat carries out in the background has its result.
    CommandEnded,
    /// No work runs that the end of the chat would stop.
    MayLeave,
    /// The user asks to leave, and the end of the chat would stop the work with these names.
    WorkRuns(Vec<String>),
    /// The user is asked a permission question.
    Asked(TerminalQuestion),
    /// Names that can complete the typed command.
    Names(CompletionNames),
    /// The user sees the chat again, after an editor or in the foreground of the shell.
    CameBack,
    /// The user has edited the message in an editor.
    Edited(String),
    /// A further part of a question was shown.
    ShownMore {
        /// The question.
        number: u64,
        /// Number of rows of the question that are not shown yet.
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
    /// Get the prompt of an MCP server that this command names, and send it to the session.
    SendServerPrompt(MessageNumber, String),
    /// Show a message whose answer follows.
    ShowMessage(String),
    /// Show a message that the running turn has taken.
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
    /// Look up the names that can complete the typed command.
    Complete,
    /// Open an editor with the typed message.
    OpenEditor,
    /// Carry out a command.
    RunCommand(ChatCommand),
    /// Answer a permission question.
    Answer(u64, PermissionAnswer),
    /// Show more of a question.
    ShowMore(u64),
    /// Clear the screen and draw the input line and the status again.
    Redraw,
    /// Switch to the next permission mode.
    NextMode,
    /// Leave the chat if no work runs that the end of the chat would stop. The answer is an event.
    AskToLeave,
    /// List the running work that the end of the chat would stop.
    ListWork(Vec<String>),
    /// Show a note.
    Note(String),
    /// End the chat, with the cause if a signal requested the end.
    Leave(Option<Cause>),
}
