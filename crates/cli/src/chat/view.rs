//! View of a chat above the input line.

use allstop_core::turn::{Conversation, TurnEffects};
use allstop_core::{Receipt, SessionId, StopReason};
use allstop_session::MessageOutcome;
use allstop_terminal::{
    InputLine, OutputPriority, OutputQueue, StatusLine, Style, Styled, TextRole, TurnMark,
    first_lines, styled,
};
use allstop_tools::permission::Denial;

use super::call_outputs::CallOutputs;
use super::said::Said;
use super::state::ChatActivity;
use crate::display::{
    LiveOptions, LiveView, RECEIPT_WIDTH_DEFAULT, denial, describe_effects, describe_ending,
    describe_lost, is_worth_showing, render_receipt, transcript,
};
use crate::host::ProcessHost;
use crate::short_id::short;

/// Maximum number of messages and calls of a conversation that are shown at once. Users do not scroll through more.
const ENTRIES_MAX: usize = 200;

/// View of a chat.
#[derive(Debug)]
pub(super) struct ChatView {
    /// View of the running turn.
    pub(super) live: LiveView,
    queue: OutputQueue,
    pub(super) style: Style,
    /// True if the user types below the view. Each message is then shown above its answer.
    pub(super) types: bool,
    /// True if the terminal interprets control sequences.
    has_cursor: bool,
}

impl ChatView {
    /// Creates a view on the output of the process. If `terminal` is set, the user types on this terminal.
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
            has_cursor: host.terminal.has_cursor(),
        }
    }

    /// Shows a line that is useful only to a user at the terminal.
    pub(super) fn hint(&self, text: &str) {
        if self.types {
            self.note(text);
        }
    }

    /// Shows the input line; `None` removes the line and the status.
    pub(super) fn input_line(&self, input_line: Option<InputLine>) {
        if self.types {
            if input_line.is_none() {
                self.queue.show_status(None);
                self.queue.show_title(None);
            }
            self.queue.show_input_line(input_line);
        }
    }

    /// Shows the activity and the folder in the title of the window.
    pub(super) fn title(&self, activity: ChatActivity, folder: &str) {
        let sign = match activity {
            ChatActivity::Asks => "? ",
            ChatActivity::Stops => self.style.pick("■ ", "# "),
            ChatActivity::Runs | ChatActivity::Compacts => self.style.pick("▶ ", "* "),
            ChatActivity::Idle => "",
        };
        self.queue
            .show_title(Some(format!("{sign}allstop {folder}")));
    }

    /// Shows the status below the input line.
    pub(super) fn status(&self, status: StatusLine) {
        if self.types {
            self.queue.show_status(Some(status));
        }
    }

    /// Shows a message whose turn begins, below a blank line.
    pub(super) fn message(&self, text: &str) {
        if !self.types {
            return;
        }
        self.lines(Styled::text("\n"));
        self.mark(TurnMark::Message);
        self.typed(text, TextRole::Strong, "");
        self.mark(TurnMark::Answer);
    }

    fn mark(&self, mark: TurnMark) {
        if self.has_cursor {
            self.queue.mark(mark);
        }
    }

    /// Shows a typed message or command, followed by the remark `about`.
    pub(super) fn typed(&self, text: &str, role: TextRole, about: &str) {
        if !self.types {
            return;
        }
        let sign = self.style.pick("›", ">");
        let line = styled![sign, " ", Styled::text(&first_lines(text)).hanging(2)];
        let about = self.style.paint(TextRole::Dim, about);
        self.lines(styled![self.style.paint(role, line), about]);
    }

    /// Shows a separate line for people.
    pub(super) fn note(&self, text: &str) {
        let text = self.queue.fitted(Styled::text(text));
        self.lines(self.style.paint(TextRole::Dim, text));
    }

    /// Shows an error.
    pub(super) fn error(&self, text: &str, hint: Option<&str>) {
        let failure = self.style.failure(text, hint);
        self.lines(failure);
    }

    /// Shows a text of several lines, such as the help.
    pub(super) fn text(&self, text: &str) {
        self.lines(Styled::text(text));
    }

    /// Shows a text of the chat, and the text from outside below it.
    pub(super) fn said(&self, said: &Said) {
        self.text(&said.own);
        if !said.outside.is_empty() {
            self.queue.outside(&said.outside);
        }
    }

    /// Queue of the output that people read.
    pub(super) fn queue(&self) -> &OutputQueue {
        &self.queue
    }

    fn lines(&self, lines: Styled) {
        self.queue.lines(lines, OutputPriority::Required);
    }

    /// Ends the view of a turn. `outcome` is the outcome of the turn's message, if known, and contains the whole
    /// answer.
    pub(super) fn end_turn(&mut self, outcome: Option<&MessageOutcome>) {
        let completed = outcome.filter(|outcome| outcome.is_completed());
        self.live.end(completed.map(|outcome| &*outcome.output));
        if self.types {
            self.mark(TurnMark::End);
        }
    }

    /// Shows the outcome of a message, but not the receipt (the report of the stop) in the outcome. `outputs` contains
    /// the labels of denied calls.
    pub(super) fn outcome(&mut self, outcome: &MessageOutcome, outputs: &CallOutputs) {
        if let Some(error) = &outcome.error {
            self.error(&error.to_string(), error.hint.as_deref());
        } else if outcome.stop_reason != StopReason::Completed {
            // If the receipt is shown, it already contains the reason.
            let mut receipt = outcome.receipt.iter();
            if receipt.any(|receipt| is_worth_showing(receipt)) {
                return self.calls(outcome, outputs);
            }
            let said = describe_ending(outcome.stop_reason, outcome.cause.as_ref());
            let said = self.queue.fitted(said.into());
            self.lines(self.style.paint(TextRole::Warning, said));
        }
        self.calls(outcome, outputs);
    }

    /// Shows the calls that were denied, and the calls that the conversation does not show.
    fn calls(&self, outcome: &MessageOutcome, outputs: &CallOutputs) {
        self.denials(&outcome.denials, outputs);
        if let Some(lost) = &outcome.lost {
            let lost = describe_lost(lost, false, self.style);
            self.lines(self.queue.fitted(lost));
        }
    }

    /// Shows calls that may have changed something.
    pub(super) fn effects(&self, effects: &TurnEffects) {
        let effects = describe_effects(effects, self.style);
        self.lines(self.queue.fitted(effects));
    }

    /// Shows the denied calls, with their labels if these are known.
    pub(super) fn denials(&self, denials: &[Denial], outputs: &CallOutputs) {
        for entry in denials {
            let denied = self.style.paint(TextRole::Warning, "denied:");
            let said = denial(entry, outputs.label(&entry.call_id));
            self.lines(self.queue.fitted(styled![denied, " ", said]));
        }
    }

    /// Shows the end of a conversation, answers as Markdown.
    pub(super) fn transcript(&self, conversation: &Conversation, id: &SessionId) {
        let entries = transcript::entries(conversation);
        let shown = &entries[entries.len().saturating_sub(ENTRIES_MAX)..];
        let left_out = entries.len() - shown.len();
        if left_out > 0 {
            let all = format!("allstop sessions show {}", short(id.as_str()));
            self.note(&format!("… {left_out} earlier parts · all: {all}"));
        }
        transcript::show(shown, &self.queue, self.style);
    }

    /// Shows the receipt of a stop.
    pub(super) fn receipt(&self, receipt: &Receipt) {
        let width = self.queue.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT);
        self.queue.lines(
            render_receipt(receipt, self.style, width),
            OutputPriority::Last,
        );
    }
}
