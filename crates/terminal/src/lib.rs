//! A terminal for programs that run for a long time, print while they work, and must stay responsive.
//!
//! The crate is usable alone and does not depend on agents or sessions. Only the definition of unsafe terminal
//! characters comes from `allstop-core`.
//!
//! # The parts
//!
//! - **Output.** [`OutputStreams`] are standard output and standard error, each an [`OutputQueue`]: a bounded queue
//!   with a writer thread. A push never waits. If the reader of a stream does not read, only text without room in the
//!   queue is lost ([`OutputPriority`]). [`OutputStreams::flush`] returns at its time limit.
//! - **Text.** A queue takes [`Styled`] text, JSON or a model's answer, and escapes each of them, so text from outside
//!   cannot control the terminal. The macro [`styled!`] joins pieces. [`Style`] has the colours and symbols that
//!   [`Environment`] found for a stream; [`TextRole`] and [`Symbol`] name the meanings of colours and symbols.
//!   [`TextTable`] aligns columns.
//!   [`OutputQueue::mark_own_rows`] marks the program's own rows, so that text from outside cannot imitate them.
//! - **The live region**: changing rows below the scrolling text. The writer thread draws the region from the latest
//!   values: one [`RunningLine`] for each piece of work, the [`InputLine`] and the [`StatusLine`]. A new value replaces
//!   the old one without a queue. So no drawn frame is outdated, and no caller waits for the terminal.
//! - **Growing text.** [`AnswerStream`] takes the pieces of a Markdown text, and returns complete blocks as
//!   [`FlowPart`]s. The writer thread breaks these parts into rows for the current width ([`OutputQueue::flow`]). The
//!   incomplete block is part of the live region. [`OutputTail`] keeps the last lines of a program's output.
//! - **Input.** [`InputReader`] holds a [`TerminalDevice`] and reads [`Key`]s. Text that is typed while no reader holds
//!   the terminal belongs to the shell. [`LineEditor`] edits a line; [`InputHistory`] and [`HistorySearch`] return
//!   earlier lines.
//! - **Permission questions.** [`QuestionText`] lays out a question page by page, and [`QuestionQueue`] handles each
//!   key; both do no I/O. [`QuestionPrompt`] combines them for a terminal at which a person types only answers.
//!   [`LinePrompt`] asks for a line.
//! - **Ctrl-Z and `fg`.** [`JobControl`] receives their signals, and [`suspend`] suspends the process. [`Notification`]
//!   notifies a person who looks at another window.
//!
//! # Example
//!
//! A program that shows its work and writes a report:
//!
//! ```
//! use std::time::{Duration, Instant};
//!
//! use allstop_terminal::{
//!     Environment, FlushResult, OutputPriority, OutputStreams, RunningClock, RunningLine, Symbol, TextRole, styled,
//! };
//!
//! # fn main() -> std::io::Result<()> {
//! let environment = Environment::read(|name| std::env::var_os(name));
//! let output = OutputStreams::of_process()?;
//! // The terminal, if there is one, shows the running work.
//! if let Some(terminal) = output.terminal() {
//!     terminal.show_running(vec![RunningLine {
//!         label: "cargo test".into(),
//!         clock: RunningClock::Since(Instant::now()),
//!         progress: None,
//!         tail: Vec::new(),
//!         style: environment.style(true),
//!     }]);
//! }
//! let style = environment.style(false);
//! let name = "evil\u{1b}[2J.rs"; // Printed as text; does not clear the screen.
//! let line = styled![style.symbol(Symbol::Good), " ", style.paint(TextRole::Strong, name)];
//! output.stdout().lines(line, OutputPriority::Required);
//! if let Some(terminal) = output.terminal() {
//!     terminal.show_running(Vec::new());
//! }
//! let flushed = output.flush(Duration::from_secs(1));
//! assert_eq!(flushed.stdout, FlushResult::Flushed);
//! # Ok(())
//! # }
//! ```

mod device;
mod duration;
mod edit_history;
mod editor;
mod flow;
mod history;
mod history_erasure;
mod history_search;
mod input_line;
mod job_control;
mod keys;
mod line_prompt;
mod line_writer;
mod live_region;
mod margin;
mod markdown;
mod narrowing;
mod notification;
mod open_line;
mod output;
mod output_tail;
mod pasted_text;
mod progress_bar;
mod prompt;
mod question;
mod question_text;
mod queue;
mod queue_state;
mod reader;
mod sink;
mod status_line;
#[cfg(any(test, feature = "test-screen"))]
mod test_screen;
mod text;
mod text_table;
mod window_title;
mod writer_thread;

pub use allstop_core::elapsed::duration;
pub use device::TerminalDevice;
pub use editor::{EditResult, LineEditor};
pub use flow::{CellAlign, FlowLine, FlowPart, FlowTable, OpenText, RowBreak, Span};
pub use history::{HistoryFile, InputHistory};
pub use history_erasure::HistoryErasure;
pub use history_search::{HistorySearch, SearchStep};
pub use input_line::{InputLine, NarrowPrefix};
pub use job_control::{JobChange, JobControl, suspend};
pub use keys::Key;
pub use line_prompt::LinePrompt;
pub use live_region::{RunningClock, RunningLine};
pub use markdown::{AnswerFormat, AnswerStream};
pub use narrowing::Narrowing;
pub use notification::{Notification, NotificationMethod};
pub use output::{OutputFlush, OutputStreams};
pub use output_tail::OutputTail;
pub use pasted_text::first_lines;
pub use progress_bar::RunningProgress;
pub use prompt::{PromptReply, QuestionPrompt};
pub use question::{QuestionAnswer, QuestionQueue, QuestionReply, TerminalQuestion};
pub use question_text::{
    QuestionContent, QuestionLine, QuestionText, RestHint, TerminalSize, escape_question,
};
pub use queue::OutputQueue;
pub use queue_state::{FlushResult, OutputPriority};
pub use reader::{InputMode, InputReader, restore_held_terminal};
pub use status_line::{StatusItem, StatusLine};
#[cfg(any(test, feature = "test-screen"))]
pub use test_screen::TestScreen;
pub use text::{Environment, Style, Styled, Symbol, TextRole, escape, without_tabs};
pub use text_table::TextTable;
pub use window_title::TurnMark;
