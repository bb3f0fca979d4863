//! Questions to the person at the terminal.
//!
//! A question can be abandoned at any moment: its future is dropped when a stop comes first. The thread that reads the
//! terminal then reads nothing more, so what is typed afterwards is the shell's, and it is never joined.

mod nobody;
mod reader;
mod tty;

use std::io;
use std::time::Duration;

use allstop_tools::permission::{PermissionAnswer, PermissionQuestion, Prompter};
use futures::future::BoxFuture;
use tokio::sync::{Mutex, watch};

pub(crate) use self::nobody::Nobody;
use self::reader::Reader;
pub(crate) use self::tty::Tty;
use crate::display::{Environment, Lane, Output, Role, Style, Styled, styled};

/// How long a question waits for the live view to print what comes before it. Only the order of lines hangs on it.
const CATCH_UP_MAX: Duration = Duration::from_millis(250);

/// QuestionRecipient the person at the terminal.
#[derive(Debug)]
pub(crate) struct TerminalPrompter {
    lane: Lane,
    style: Style,
    /// A line on the terminal can be taken back.
    has_cursor: bool,
    reader: Reader,
    /// What the live view has come to, where there is one.
    shown: Option<watch::Receiver<String>>,
    /// One question at a time.
    turn: Mutex<()>,
}

impl TerminalPrompter {
    /// A prompter for the terminal that this process belongs to; `None` where there is nobody to ask. `shown` is
    /// [`crate::display::Live::asked`].
    pub(crate) fn open(
        output: &Output,
        environment: &Environment,
        shown: Option<watch::Receiver<String>>,
    ) -> Option<Self> {
        let tty = Tty::of_process()?;
        let lane = match output.terminal() {
            Some(lane) => lane.clone(),
            None => Lane::new(tty.to_file()?, "tty").ok()?,
        };
        Self::new(lane, tty, environment, shown).ok()
    }

    /// A prompter that writes to a lane and reads from a terminal.
    fn new(
        lane: Lane,
        tty: Tty,
        environment: &Environment,
        shown: Option<watch::Receiver<String>>,
    ) -> io::Result<Self> {
        Ok(Self {
            lane,
            style: environment.style(true),
            has_cursor: environment.has_cursor(),
            reader: Reader::new(tty)?,
            shown,
            turn: Mutex::new(()),
        })
    }

    /// Waits until the live view has reached the question.
    async fn catch_up(&self, question: &PermissionQuestion) {
        let Some(mut shown) = self.shown.clone() else {
            return;
        };
        let reached = shown.wait_for(|id| *id == question.call_id.as_str());
        // Missed, or nobody watches any more: then the question comes at once.
        drop(tokio::time::timeout(CATCH_UP_MAX, reached).await);
    }

    fn text(&self, question: &PermissionQuestion) -> Styled {
        let style = self.style;
        let asks = style.paint(Role::Warning, "? Allow");
        let mut text = Styled::default();
        text.push_line(&styled![
            asks,
            " ",
            style.paint(Role::Strong, &question.text)
        ]);
        text.push(&format_args!(
            "  [y]es, once  [a]lways: {}  [n]o {} ",
            question.session_scope,
            style.pick("›", ">"),
        ));
        text
    }

    async fn ask_here(&self, question: PermissionQuestion) -> PermissionAnswer {
        let _turn = self.turn.lock().await;
        self.catch_up(&question).await;
        // In the background, reading would stop the whole process: that is nobody to ask.
        if !self.reader.tty().is_foreground() {
            return PermissionAnswer::Deny;
        }
        self.reader.tty().forget_typed();
        loop {
            let mut asked = self.lane.question(self.text(&question));
            asked.close_with(if self.has_cursor {
                "\r\x1b[K  withdrawn\n"
            } else {
                "\n  withdrawn\n"
            });
            let line = self.reader.line().await;
            // Who typed a line has ended it on the screen too; the end of the input has not.
            asked.close_with(if line.is_some() { "" } else { "\n" });
            match line.as_deref().map(answer_of) {
                Some(Some(answer)) => return answer,
                // Neither yes nor no: again.
                Some(None) => {}
                None => return PermissionAnswer::Deny,
            }
        }
    }
}

impl Prompter for TerminalPrompter {
    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(self.ask_here(question))
    }
}

/// What a line says; `None` if it is no answer. An empty line is none: Enter is pressed too easily.
pub(crate) fn answer_of(line: &str) -> Option<PermissionAnswer> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(PermissionAnswer::AllowOnce),
        "a" | "always" => Some(PermissionAnswer::AllowForSession),
        "n" | "no" => Some(PermissionAnswer::Deny),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
