//! Output of a run: a live view for people, or JSON for programs.

use std::time::Instant;

use allstop_agent::AgentEvent;
use allstop_core::StopReason;
use allstop_core::record::SessionRecord;
use allstop_runtime::{Envelope, SessionCost};
use allstop_session::{OpenQuestion, Session};
use allstop_terminal::{
    JobChange, OutputPriority, OutputQueue, PromptReply, Style, Styled, TextRole, styled,
};
use allstop_tools::mcp::McpStatusEvent;

use super::no_terminal_prompter::NoTerminalPrompter;
use super::questions::RunQuestions;
use super::receipt_file::ReceiptFile;
use crate::args::RunArgs;
use crate::display::{
    EventView, JsonStream, LiveOptions, LiveView, RECEIPT_WIDTH_DEFAULT, denial, describe_ending,
    is_worth_showing, render_receipt,
};
use crate::host::ProcessHost;
use crate::shell_command::SameFlags;
use crate::short_id::short;
use crate::suspend::suspend_session;

/// Form of the answers of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerForm {
    Text,
    /// JSON that matches the schema of `--output-schema`.
    Json,
}

/// Output of a run.
pub(super) struct RunView<'a> {
    host: &'a ProcessHost,
    /// False if the output is JSON.
    for_people: bool,
    /// Form of the answers.
    answers: AnswerForm,
    /// True if a denied call makes the run fail.
    fails_on_denied: bool,
    /// Flags for the command that continues the session.
    flags: SameFlags,
    live: Option<LiveView>,
    stream: Option<JsonStream>,
    /// Records if a permission question was asked, but no terminal could show it.
    prompter: NoTerminalPrompter,
    /// File for the receipt of the run, which reports the stopped work.
    pub(super) receipt_file: Option<ReceiptFile>,
    /// False if it is uncertain that the store contains the last receipt.
    pub(super) is_receipt_stored: bool,
    /// Usage and cost of the run, from the opening of the system.
    pub(super) cost: Option<SessionCost>,
    /// Permission questions at the terminal, from the opening of the session to its end.
    pub(super) questions: Option<RunQuestions>,
}

impl<'a> RunView<'a> {
    pub(super) fn new(host: &'a ProcessHost, args: &RunArgs, prompter: NoTerminalPrompter) -> Self {
        let flags = SameFlags::of_remembered(&args.model, &args.session.store);
        let fails_on_denied = args.fail_on_denied;
        let form = match args.output_schema {
            None => AnswerForm::Text,
            Some(_) => AnswerForm::Json,
        };
        let args = &args.output;
        let for_people = !args.json && !args.stream_json;
        // If the output is JSON, the live view is also shown, but only at a terminal.
        let is_watched = for_people || (host.output.stderr().is_terminal() && !host.is_quiet);
        let options = LiveOptions {
            environment: host.terminal.clone(),
            // An answer is printed only if its schema has been checked and its turn is committed.
            answers: for_people && form == AnswerForm::Text,
        };
        let stdout = host.output.stdout();
        Self {
            host,
            for_people,
            answers: form,
            fails_on_denied,
            flags,
            prompter,
            receipt_file: None,
            is_receipt_stored: true,
            cost: None,
            questions: None,
            live: is_watched.then(|| match LiveView::new(&host.output, &options) {
                live if host.is_quiet => live.quiet(),
                live => live,
            }),
            stream: args.stream_json.then(|| JsonStream::new(stdout.clone())),
        }
    }

    /// The answer as a JSON value, if the answers are JSON and the run has completed.
    pub(super) fn output_json(&self, envelope: &Envelope) -> Option<serde_json::Value> {
        let is_json =
            self.answers == AnswerForm::Json && envelope.stop_reason == StopReason::Completed;
        is_json.then(|| serde_json::from_str(&envelope.output).ok())?
    }

    /// Shows that a stop has begun. At the time `force_at`, the stop begins to use force (kills processes).
    pub(super) fn stopping(&mut self, force_at: Option<Instant>) {
        if let Some(live) = &mut self.live {
            live.stopping(force_at);
        }
        self.stream.iter_mut().for_each(JsonStream::stopping);
    }

    /// Shows a status change of an MCP server. A program that reads the stream gets a line of JSON; people get a line
    /// of text.
    pub(super) fn server(&self, change: &McpStatusEvent) {
        let stderr = self.host.output.stderr();
        let streamed = self
            .stream
            .as_ref()
            .is_some_and(|stream| stream.server(change));
        if !streamed || stderr.is_terminal() {
            self.warn(&change.to_string());
        }
    }

    /// Adds the usage of a record to the cost of the run.
    pub(super) fn recorded(&mut self, record: &SessionRecord) {
        if let Some(cost) = &mut self.cost {
            cost.add(record);
        }
    }

    /// Prints a line for people.
    pub(super) fn note(&self, text: &str) {
        if self.for_people || self.host.output.stderr().is_terminal() {
            self.warn(text);
        }
    }

    /// Prints calls that may have changed something, for people.
    pub(super) fn calls(&self, describe: impl FnOnce(Style) -> Styled) {
        if self.for_people || self.host.output.stderr().is_terminal() {
            self.warn_calls(describe);
        }
    }

    /// Prints calls that may have changed something, also beside the JSON for a program.
    pub(super) fn warn_calls(&self, describe: impl FnOnce(Style) -> Styled) {
        if self.host.is_quiet {
            return;
        }
        let stderr = self.host.output.stderr();
        let style = self.host.terminal.style(stderr.is_terminal());
        stderr.lines(stderr.fitted(describe(style)), OutputPriority::Required);
    }

    /// Prints a line that is useful only to a user at the terminal.
    pub(super) fn hint(&self, text: &str) {
        if self.host.output.stderr().is_terminal() {
            self.warn(text);
        }
    }

    /// Prints a line that no reader must miss, such as a line about work that outlives this process. `--quiet` omits it
    /// too: the envelope contains the fact.
    pub(super) fn warn(&self, text: &str) {
        if self.host.is_quiet {
            return;
        }
        let stderr = self.host.output.stderr();
        let style = self.host.terminal.style(stderr.is_terminal());
        let text = style.paint(TextRole::Dim, Styled::text(text));
        stderr.lines(stderr.fitted(text), OutputPriority::Required);
    }

    /// Handles Ctrl-Z, `fg` and a new window size.
    pub(super) fn job_changed(&mut self, change: JobChange, session: &Session) {
        let queue = self.host.output.terminal();
        match change {
            JobChange::Suspend => {
                let queue = queue.map(|queue| (queue, self.host.terminal.style(true)));
                let questions = &mut self.questions;
                let give_back = || questions.iter_mut().for_each(RunQuestions::suspend);
                suspend_session(session, queue, give_back);
            }
            JobChange::Resumed => {
                self.questions.iter().for_each(RunQuestions::resume);
                queue.into_iter().for_each(OutputQueue::show_region);
            }
            JobChange::Resized => self.questions.iter().for_each(RunQuestions::redraw),
        }
    }

    /// Asks a permission question at the terminal, if the run has a terminal.
    pub(super) fn ask(&mut self, question: OpenQuestion) {
        if let Some(live) = &mut self.live {
            live.asked(&question.question);
        }
        if let Some(questions) = &mut self.questions {
            questions.ask(question);
        }
    }

    /// Handles a reply of the user.
    pub(super) fn reply(&mut self, reply: PromptReply) {
        if let Some(questions) = &mut self.questions {
            questions.reply(reply);
        }
    }

    /// Waits for the user's reply to an open question.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next_reply(&mut self) -> PromptReply {
        match &mut self.questions {
            Some(questions) => questions.next().await,
            None => std::future::pending().await,
        }
    }

    /// Prints the result of the run. Programs get the envelope (JSON). People get its content without the answer, which
    /// the live view has already printed.
    pub(super) fn end(&mut self, envelope: &Envelope) {
        if let Some(live) = &mut self.live {
            live.stopping(None);
            let completed = envelope.stop_reason == StopReason::Completed;
            live.end(completed.then_some(&*envelope.output));
        }
        if self.for_people {
            if self.answers == AnswerForm::Json {
                self.print_answers(envelope);
            }
            return self.end_for_people(envelope);
        }
        let json = serde_json::to_value(envelope).unwrap_or_default();
        if let Some(stream) = &mut self.stream {
            stream.envelope(&json);
        } else {
            let stdout = self.host.output.stdout();
            stdout.json(&json.to_string(), OutputPriority::Last);
        }
    }

    /// Prints the JSON of the answer of each committed turn.
    fn print_answers(&self, envelope: &Envelope) {
        let turns = envelope.turns.iter();
        for turn in turns.filter(|turn| turn.stop_reason == StopReason::Completed) {
            let stdout = self.host.output.stdout();
            stdout.json(&turn.output, OutputPriority::Last);
        }
    }

    fn end_for_people(&self, envelope: &Envelope) {
        let stderr = self.host.output.stderr();
        let is_quiet = self.host.is_quiet;
        let style = self.host.terminal.style(stderr.is_terminal());
        let mut text = Styled::default();
        if let Some(error) = &envelope.error {
            text.push(&style.failure(&error.to_string(), error.hint.as_deref()));
        }
        let mut receipts: Vec<_> = envelope.receipts.iter().collect();
        // Under `--quiet`, only receipts that a user must see: work still runs, or nothing else may have the receipt.
        receipts.retain(|receipt| {
            is_worth_showing(receipt) && !(is_quiet && receipt.quiet() && self.is_receipt_stored)
        });
        let is_reported = envelope.error.is_some() || !receipts.is_empty();
        if envelope.stop_reason != StopReason::Completed && !is_reported {
            let ending = describe_ending(envelope.stop_reason, envelope.cause.as_ref());
            text.push_line(&style.paint(TextRole::Warning, ending));
        }
        let shows_denials = !is_quiet || self.fails_on_denied;
        for entry in envelope.denials.iter().filter(|_| shows_denials) {
            let denied = style.paint(TextRole::Warning, "denied:");
            text.push_line(&styled![denied, " ", denial(entry, None)]);
        }
        if self.prompter.was_asked() && shows_denials {
            let hint = style.paint(TextRole::Dim, "hint:");
            let said = " no terminal for questions: pass --yes, or allow calls by rules in the configuration";
            text.push_line(&styled![hint, said]);
        }
        for receipt in receipts {
            let width = stderr.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT);
            text.push(&render_receipt(receipt, style, width));
        }
        let id = envelope.session_id.as_ref();
        if let Some(id) = id.filter(|_| stderr.is_terminal() && !is_quiet) {
            let resume = format!("sessions resume {}", short(id.as_str()));
            let resume = self.flags.command(&resume);
            let line = format!("session {id} · to continue: {resume}");
            text.push_line(&style.paint(TextRole::Dim, line));
        }
        // An empty text would print an empty line, and cron sends a message with it.
        if !text.is_empty() {
            stderr.lines(text, OutputPriority::Last);
        }
    }
}

impl EventView for RunView<'_> {
    fn event(&mut self, event: &AgentEvent) {
        if let Some(questions) = &mut self.questions {
            questions.event(event);
        }
        if let Some(live) = &mut self.live {
            live.event(event);
        }
        if let Some(stream) = &mut self.stream {
            stream.event(event);
        }
    }

    fn missed(&mut self, count: u64) {
        self.questions.iter_mut().for_each(RunQuestions::catch_up);
        if let Some(live) = &mut self.live {
            live.missed(count);
        }
        if let Some(stream) = &mut self.stream {
            stream.missed(count);
        }
    }
}
