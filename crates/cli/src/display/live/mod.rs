//! The live view of a run, for people.
//!
//! On a terminal, the answer streams to standard output, drawn as Markdown block by block. Each running call has a live
//! line, which is redrawn while the call runs. When the call ends, a short permanent line remains. If standard output
//! is not a terminal, it receives only whole, final answers. So a file never contains the streamed text of a failed
//! model call, nor an answer that a guardrail refused. If standard error is not a terminal, each call has one line at
//! its start and one at its end.

mod calls;
mod text;

use std::sync::Arc;
use std::time::Instant;

use allstop_agent::AgentEvent;
use allstop_core::StopReason;
use allstop_core::counted::counted;
use allstop_terminal::{
    AnswerFormat, AnswerStream, Environment, OutputPriority, OutputQueue, OutputStreams, Style,
    Symbol, TextRole, styled,
};
use allstop_tools::{EffectPreview, PermissionQuestion};

use self::calls::{CallEnd, CallForm, CallLines};
use self::text::{Rest, StepText};

use super::labels;
use super::recorded::describe_summary_start;
use super::watch::EventView;

/// Maximum bytes of an incomplete line of reasoning.
const THINKING_BYTES_MAX: usize = 4 * 1024;

/// Options of the live view.
#[derive(Debug, Clone)]
pub(crate) struct LiveOptions {
    /// Terminal settings from the environment.
    pub(crate) environment: Environment,
    /// True if standard output receives the answers; false if it receives the envelope (JSON) instead.
    pub(crate) answers: bool,
}

/// Shows a run live.
#[derive(Debug)]
pub(crate) struct LiveView {
    stdout: OutputQueue,
    stderr: OutputQueue,
    out_style: Style,
    err_style: Style,
    answers: bool,
    /// True if the last answer ended without a newline.
    in_line: bool,
    text: StepText,
    /// Stream of the answer to a terminal. A terminal shows an answer while it arrives.
    stream: Option<AnswerStream>,
    /// True if the terminal supports control sequences. Other terminals show only the complete lines of an answer.
    draws_open: bool,
    /// Answer that is not final yet: a guardrail may refuse it, or the commit of the turn may fail. A terminal shows
    /// such an answer at once. A file receives the answer only after it is final.
    held: Option<Arc<str>>,
    calls: CallLines,
    /// The incomplete line of the reasoning; `None` if thinking is not shown.
    thinking: Option<String>,
}

impl LiveView {
    /// Shows the run on the output of the process.
    pub(crate) fn new(output: &OutputStreams, options: &LiveOptions) -> Self {
        let (stdout, stderr) = (output.stdout().clone(), output.stderr().clone());
        let environment = &options.environment;
        let err_style = environment.style(stderr.is_terminal());
        let form = if stderr.is_terminal() && environment.has_cursor() {
            CallForm::Live
        } else {
            CallForm::Lines
        };
        let out_style = environment.style(stdout.is_terminal());
        let draws_open = environment.has_cursor();
        stdout.mark_own_rows(out_style);
        stderr.mark_own_rows(err_style);
        stdout.set_narrowing(environment.narrowing());
        stderr.set_narrowing(environment.narrowing());
        let format = if out_style.is_coloured() {
            AnswerFormat::Markdown
        } else {
            AnswerFormat::Plain
        };
        Self {
            out_style,
            stream: stdout
                .is_terminal()
                .then(|| AnswerStream::new(out_style, format)),
            draws_open,
            answers: options.answers,
            in_line: false,
            text: StepText::default(),
            held: None,
            calls: CallLines::new(stderr.clone(), err_style, form),
            err_style,
            stdout,
            stderr,
            thinking: None,
        }
    }

    /// Prints only answers, and no line on standard error.
    #[must_use]
    pub(crate) fn quiet(mut self) -> Self {
        self.calls.hide();
        self
    }

    /// Shows the reasoning of the model, or hides it. True if it is shown from now on.
    pub(crate) fn toggle_thinking(&mut self) -> bool {
        self.thinking = match self.thinking.take() {
            Some(_) => None,
            None => Some(String::new()),
        };
        self.thinking.is_some()
    }

    /// Shows the complete lines of the reasoning.
    fn thinks(&mut self, text: &str) {
        let Some(line) = &mut self.thinking else {
            return;
        };
        line.push_str(text);
        if line.len() > THINKING_BYTES_MAX {
            line.push('\n');
        }
        if let Some(end) = line.rfind('\n') {
            let rest = line.split_off(end + 1);
            let lines = std::mem::replace(line, rest);
            self.stderr.aside(&lines, self.err_style);
        }
    }

    /// Shows the last line of the reasoning, because its answer begins.
    fn end_thinking(&mut self) {
        if let Some(line) = self.thinking.as_mut().filter(|line| !line.is_empty()) {
            self.stderr.aside(&std::mem::take(line), self.err_style);
        }
    }

    /// Ends the view after the run. `answer` is the whole answer of the last turn, from which the missing text is
    /// printed.
    pub(crate) fn end(&mut self, answer: Option<&str>) {
        if let Some(answer) = answer {
            // First prints the answer of an earlier step that was held back. The answer is final, because the run has
            // continued after it.
            self.release();
            self.print_rest(answer);
        }
        self.held = None;
        self.finish_line();
        self.calls.end();
    }

    /// Shows that a stop has begun. At the time `force_at`, the stop begins to use force. `None` means that the stop
    /// has ended: its receipt has arrived.
    pub(crate) fn stopping(&mut self, force_at: Option<Instant>) {
        if force_at.is_some() {
            self.finish_line();
        }
        self.calls.stopping(force_at);
    }

    /// Remembers the change of a file that a permission question has shown, so that the view does not show it again.
    pub(crate) fn asked(&mut self, question: &PermissionQuestion) {
        if let Some(EffectPreview::Change(change)) = question.preview.as_deref() {
            self.calls.asked(&question.call_id, change);
        }
    }

    fn delta(&mut self, delta: &str) {
        if !self.answers || self.stream.is_none() || delta.is_empty() || !self.text.takes_delta() {
            return;
        }
        self.calls.model_speaks();
        if self.print(delta, OutputPriority::IfRoom) {
            self.text.printed(delta);
        } else {
            self.text.missed();
        }
    }

    fn answered(&mut self, whole: &Arc<str>) {
        if self.stream.is_some() {
            self.print_rest(whole);
        } else {
            self.held = Some(Arc::clone(whole));
        }
    }

    /// Prints an answer that was held back, because it is final now.
    fn release(&mut self) {
        if let Some(answer) = self.held.take() {
            self.print_rest(&answer);
        }
    }

    fn print_rest(&mut self, whole: &str) {
        if !self.answers {
            return;
        }
        let rest = match self.text.rest(whole) {
            Rest::Append(rest) => rest,
            Rest::Replace(whole) => {
                self.discard();
                whole
            }
        };
        if !self.print(rest, OutputPriority::Required) {
            self.stdout.mark_lost();
            let said = "the reader of the output is too slow: part of the answer is missing";
            self.note(TextRole::Warning, Symbol::Bad, said);
        }
        self.text.printed_whole(whole);
        self.finish_line();
    }

    /// Prints a part of an answer. False if the queue has no room.
    fn print(&mut self, text: &str, priority: OutputPriority) -> bool {
        if text.is_empty() {
            return true;
        }
        if let Some(stream) = &mut self.stream {
            if !self.stdout.has_room(text.len(), priority) {
                return false;
            }
            let parts = stream.push(text);
            let open = stream.open().filter(|_| self.draws_open);
            self.stdout.flow(parts, open);
            self.in_line = true;
            return true;
        }
        let taken = self.stdout.answer(text, priority);
        if taken {
            self.in_line = !text.ends_with('\n');
        }
        taken
    }

    /// Ends the line of the answer, so that the next output starts below it.
    pub(crate) fn finish_line(&mut self) {
        if std::mem::take(&mut self.in_line) {
            match &mut self.stream {
                Some(stream) => self.stdout.flow(stream.finish(), None),
                None => self.stdout.end_line(),
            }
        }
    }

    /// Ends the current row of the answer, because other output follows. The rest of the answer comes after that
    /// output.
    pub(crate) fn interrupt(&mut self) {
        match &mut self.stream {
            Some(stream) if self.in_line => {
                let parts = stream.interrupt();
                let open = stream.open().filter(|_| self.draws_open);
                self.stdout.flow(parts, open);
            }
            Some(_) => {}
            None => self.finish_line(),
        }
    }

    /// Marks the printed part of a step's answer as discarded, because the model call failed.
    fn discard(&mut self) {
        if self.text.discard() {
            self.finish_line();
            let mark = self.out_style.pick("↑", "^");
            let mark = format!("{mark} discarded: the call failed in the middle of its answer");
            self.stdout.lines(
                self.out_style.paint(TextRole::Warning, mark),
                OutputPriority::Required,
            );
        }
    }

    fn note(&self, role: TextRole, symbol: Symbol, said: &str) {
        if self.calls.is_hidden() {
            return;
        }
        let said = styled![self.err_style.symbol(symbol), " ", said];
        self.stderr
            .lines(self.err_style.paint(role, said), OutputPriority::Required);
    }

    /// Prints a note that is cut to one row.
    fn row(&self, role: TextRole, symbol: Symbol, said: &str) {
        if self.calls.is_hidden() {
            return;
        }
        let mut said = styled![self.err_style.symbol(symbol), " ", said];
        if let Some(columns) = self.stderr.columns() {
            let mark = self.err_style.pick("…", "...");
            said = said.cut(columns.saturating_sub(1), mark);
        }
        self.stderr
            .lines(self.err_style.paint(role, said), OutputPriority::Required);
    }
}

impl EventView for LiveView {
    fn event(&mut self, event: &AgentEvent) {
        self.event_at(event, Instant::now());
    }

    fn missed(&mut self, _count: u64) {
        // The view does not know which events it has missed, but later events contain the facts. The whole answer of a
        // step contains the missed text, and the ends of calls show which calls ran.
        self.text.missed();
    }
}

impl LiveView {
    /// Prints a note about a conversation that is nearly too long for the model.
    fn long_conversation(&mut self, note: &str) {
        self.finish_line();
        self.note(TextRole::Dim, Symbol::Again, note);
    }

    /// Shows an event that happened at this time.
    pub(crate) fn event_at(&mut self, event: &AgentEvent, at: Instant) {
        match event {
            AgentEvent::TurnStarted { .. }
            | AgentEvent::PermissionAsked { .. }
            | AgentEvent::PermissionAnswered { .. }
            // The receipt of the stop shows this fact.
            | AgentEvent::StopHeard { .. } => {}
            AgentEvent::ToolOutput { call_id, text, .. } => self.calls.output(call_id, text),
            AgentEvent::ToolProgress { call_id, progress } => {
                self.calls.progress(call_id, progress);
            }
            AgentEvent::StepStarted { step, model, .. } => {
                self.release();
                self.finish_line();
                self.text.discard();
                self.calls.model_started(*step, model, at);
            }
            AgentEvent::TextDelta { text } => {
                self.end_thinking();
                self.delta(text);
            }
            AgentEvent::ReasoningDelta { text } => {
                self.calls.model_thinks();
                self.thinks(text);
            }
            AgentEvent::StepAnswered { text, finish, .. } => {
                self.end_thinking();
                self.calls.model_ended();
                self.answered(text);
                if let Some(cut) = finish.cut_words() {
                    self.finish_line();
                    self.note(TextRole::Warning, Symbol::Bad, &format!("the answer {cut}"));
                }
            }
            AgentEvent::RetryScheduled {
                attempt,
                delay_ms,
                error,
                ..
            } => {
                self.discard();
                let delay = labels::whole_milliseconds(*delay_ms);
                let said = format!("model call {attempt} failed; retry in {delay}: {error}");
                self.note(TextRole::Warning, Symbol::Again, &said);
                self.calls.model_waits();
            }
            AgentEvent::RequestShortened { results, .. } => {
                let results = counted(u64::from(*results), "older result", "older results");
                let said = format!("long conversation: the model gets {results} in a shorter form");
                self.long_conversation(&said);
            }
            AgentEvent::SummaryStarted { turns, .. } => {
                self.long_conversation(&describe_summary_start(*turns));
            }
            AgentEvent::SummaryFailed { error } => {
                self.long_conversation(&format!("the conversation stays long: {error}"));
            }
            AgentEvent::ToolRequested {
                call_id,
                name,
                arguments,
            } => {
                self.release();
                self.calls.requested(call_id, name, arguments);
            }
            AgentEvent::ToolStarted { call_id, name, .. } => {
                self.calls.started(call_id, name, at);
            }
            AgentEvent::ToolFinished {
                call_id,
                name,
                outcome,
                after_ms,
                content,
                exit_code,
                change,
                left,
            } => {
                let end = CallEnd {
                    outcome: *outcome,
                    after_ms: *after_ms,
                    content,
                    exit_code: *exit_code,
                    change: change.as_deref(),
                    left: left.as_ref(),
                };
                self.calls.finished(call_id, name, &end);
            }
            AgentEvent::BackgroundStarted { id, name } => {
                let said = format!("{id} runs in the background: {name}");
                self.row(TextRole::Dim, Symbol::Running, &said);
            }
            AgentEvent::TurnEnded { stop_reason, .. } => {
                if *stop_reason == StopReason::Completed {
                    self.release();
                }
                self.held = None;
                self.finish_line();
                self.calls.end();
            }
        }
    }
}

#[cfg(test)]
mod tests;
