//! The terminal: one thread that reads it, one question on it, and one queue of output per stream.
//!
//! - Bytes read and the terminal's mode: [`InputReader`], from bytes to [`Key`]s. `chat` holds the terminal from its start
//!   to its end, `run` while a question is open; whatever else is typed belongs to the shell.
//! - The open questions and the reply being typed: [`QuestionQueue`], the same for `run` and `chat`.
//! - The queue of output: [`OutputQueue`]. The cursor's row and the region below the scrolling text belong to its
//!   writer thread, which draws the latest [`InputLine`] and [`RunningLine`]s and asks for the size each time.
//! - Ctrl-Z and `fg`: [`JobControl`].
//!
//! Receipts, call lines and tables are views: `display` makes them and pushes them into a queue.

mod attention;
mod device;
mod editor;
mod flow;
mod input_line;
mod job_control;
mod keys;
mod line_prompt;
mod line_writer;
mod live_region;
mod narrowing;
mod open_line;
mod output;
mod progress_bar;
mod prompt;
mod question;
mod question_text;
mod queue;
mod queue_state;
mod reader;
mod session_questions;
mod shown_question;
mod sink;
mod status_line;
#[cfg(test)]
pub(crate) mod test_screen;
mod text;
mod writer_thread;

pub(crate) use attention::AttentionCall;
pub(crate) use device::TerminalDevice;
pub(crate) use editor::{EditResult, LineEditor};
pub(crate) use flow::{
    CellAlign, FlowLine, FlowPart, FlowTable, OpenText, RowBreak, Span, last_boundary,
};
pub(crate) use input_line::InputLine;
pub(crate) use job_control::{JobChange, JobControl, suspend, suspend_idle, suspend_watch};
pub(crate) use keys::Key;
pub(crate) use line_prompt::LinePrompt;
pub(crate) use live_region::{RunningClock, RunningLine};
pub(crate) use output::{OutputFlush, OutputStreams};
pub(crate) use prompt::{PromptReply, QuestionPrompt};
pub(crate) use question::{QuestionQueue, QuestionReply, TerminalQuestion};
pub(crate) use question_text::RestHint;
pub(crate) use queue::OutputQueue;
pub(crate) use queue_state::{FlushResult, OutputPriority};
pub(crate) use reader::{InputMode, InputReader, restore_held_terminal};
pub(crate) use session_questions::{SessionQuestions, UnansweredQuestion};
pub(crate) use shown_question::ShownQuestion;
pub(crate) use status_line::{StatusItem, StatusLine};
pub(crate) use text::{Environment, Style, Styled, Symbol, TextRole, escape, styled, without_tabs};
