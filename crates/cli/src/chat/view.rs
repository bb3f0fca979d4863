//! The view of a chat above the line that is typed into.

use allstop_core::{Receipt, StopReason};
use allstop_session::MessageOutcome;
use allstop_terminal::{
    InputLine, OutputPriority, OutputQueue, StatusLine, Style, Styled, TextRole, styled,
};

use crate::display::{
    LiveOptions, LiveView, RECEIPT_WIDTH_DEFAULT, denial, is_worth_showing, render_receipt,
    stop_reason_in_words, stopped_by,
};
use crate::host::ProcessHost;

/// The view of a chat.
#[derive(Debug)]
pub(super) struct ChatView {
    /// View of the running turn.
    pub(super) live: LiveView,
    queue: OutputQueue,
    pub(super) style: Style,
    /// A person types below; each message is shown above its answer.
    pub(super) types: bool,
}

impl ChatView {
    /// Over the output of the process. With `terminal` a person types there.
    pub(super) fn new(host: &ProcessHost, terminal: Option<&OutputQueue>) -> Self {
        let queue = terminal.unwrap_or(host.output.stderr()).clone();
        let options = LiveOptions {
            environment: host.terminal.clone(),
            answers: true,
        };
        Self {
            live: LiveView::new(&host.output, &options),
            style: host.terminal.style(queue.is_terminal()),
            queue,
            types: terminal.is_some(),
        }
    }

    /// A line that is useful only to a person at the terminal.
    pub(super) fn hint(&self, text: &str) {
        if self.types {
            self.note(text);
        }
    }

    /// The line that is typed into; `None` takes it away.
    pub(super) fn input_line(&self, input_line: Option<InputLine>) {
        if self.types {
            if input_line.is_none() {
                self.queue.show_status(None);
            }
            self.queue.show_input_line(input_line);
        }
    }

    /// The row below it.
    pub(super) fn status(&self, status: StatusLine) {
        if self.types {
            self.queue.show_status(Some(status));
        }
    }

    /// A message or a command that was typed, and what there is to say about it.
    pub(super) fn typed(&self, text: &str, role: TextRole, about: &str) {
        if !self.types {
            return;
        }
        let sign = self.style.pick("›", ">");
        let line = styled![sign, " ", Styled::text(text).hanging(2)];
        let about = self.style.paint(TextRole::Dim, about);
        self.lines(styled![self.style.paint(role, line), about]);
    }

    /// A line for people, beside everything else.
    pub(super) fn note(&self, text: &str) {
        let text = self.queue.fitted(Styled::text(text));
        self.lines(self.style.paint(TextRole::Dim, text));
    }

    /// An error.
    pub(super) fn error(&self, text: &str, hint: Option<&str>) {
        let failure = self.style.failure(text, hint);
        self.lines(self.queue.fitted(failure));
    }

    /// A text of several lines, such as an output or the help.
    pub(super) fn text(&self, text: &str) {
        self.lines(Styled::text(text));
    }

    /// The output at which people look.
    pub(super) fn queue(&self) -> &OutputQueue {
        &self.queue
    }

    fn lines(&self, lines: Styled) {
        self.queue.lines(lines, OutputPriority::Must);
    }

    /// Ends the view of a turn. `outcome`: the outcome of its message, if there is one, with the whole answer.
    pub(super) fn end_turn(&mut self, outcome: Option<&MessageOutcome>) {
        let completed = outcome.filter(|outcome| outcome.is_completed());
        self.live.end(completed.map(|outcome| &*outcome.output));
    }

    /// The outcome of a message, but for its receipt.
    pub(super) fn outcome(&mut self, outcome: &MessageOutcome) {
        if let Some(error) = &outcome.error {
            self.error(&error.to_string(), error.hint.as_deref());
        } else if outcome.stop_reason != StopReason::Completed {
            // With a receipt, that says it.
            let said = match (&outcome.receipt, &outcome.cause) {
                (Some(receipt), _) if is_worth_showing(receipt) => return self.denials(outcome),
                (_, Some(cause)) => format!("the turn was {}", stopped_by(cause)),
                (_, None) => stop_reason_in_words(outcome.stop_reason),
            };
            let said = self.queue.fitted(said.into());
            self.lines(self.style.paint(TextRole::Warning, said));
        }
        self.denials(outcome);
    }

    fn denials(&self, outcome: &MessageOutcome) {
        for entry in &outcome.denials {
            let denied = self.style.paint(TextRole::Warning, "denied:");
            let line = styled![denied, " ", denial(&entry.tool, &entry.reason)];
            self.lines(self.queue.fitted(line));
        }
    }

    /// A receipt.
    pub(super) fn receipt(&self, receipt: &Receipt) {
        let width = self.queue.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT);
        self.queue.lines(
            render_receipt(receipt, self.style, width),
            OutputPriority::Last,
        );
    }
}
