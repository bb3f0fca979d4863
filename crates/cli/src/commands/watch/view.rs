//! View of a watching terminal. It shows the session like the session's own terminal, or prints lines of JSON.

use std::time::{Duration, Instant};

use allstop_core::SessionId;
use allstop_remote::{RemoteError, ShownQuestion, WatchEvent, WatcherAnswer};
use allstop_runtime::WatchStreamEvent;
use allstop_terminal::{
    OutputPriority, OutputQueue, PromptReply, QuestionPrompt, RestHint, Style, Styled, TextRole,
    duration, styled,
};
use allstop_tools::PermissionAnswer;

use crate::args::WatchArgs;
use crate::commands::open_session::OpenTarget;
use crate::display::{
    EventView as _, JsonStream, LiveOptions, LiveView, RECEIPT_WIDTH_DEFAULT, is_worth_showing,
    recorded, render_receipt,
};
use crate::host::ProcessHost;
use crate::questions::{SessionQuestions, UnansweredQuestion};
use crate::short_id::short;

/// View of a watching terminal.
#[derive(Debug)]
pub(super) struct WatchView {
    /// Output for people, separate from JSON on standard output.
    queue: OutputQueue,
    style: Style,
    live: LiveView,
    stream: Option<JsonStream>,
    questions: SessionQuestions,
    /// `None` if this terminal does not ask the user the permission questions.
    prompt: Option<QuestionPrompt>,
}

impl WatchView {
    pub(super) fn new(args: &WatchArgs, target: &OpenTarget, host: &ProcessHost) -> Self {
        let output = &host.output;
        let queue = output.terminal().unwrap_or(output.stderr()).clone();
        let style = host.terminal.style(queue.is_terminal());
        let options = LiveOptions {
            environment: host.terminal.clone(),
            answers: true,
        };
        let prompt = if args.read_only || args.json || !target.takes_answers {
            None
        } else {
            QuestionPrompt::of_process(output, &host.terminal)
        };
        let questions = match &prompt {
            Some(prompt) => SessionQuestions::at(prompt),
            None => SessionQuestions::new(queue.clone(), style, RestHint::InText),
        };
        Self {
            live: LiveView::new(output, &options),
            stream: args.json.then(|| JsonStream::new(output.stdout().clone())),
            queue,
            style,
            questions,
            prompt,
        }
    }

    /// The output for people.
    pub(super) fn queue(&self) -> (&OutputQueue, Style) {
        (&self.queue, self.style)
    }

    /// Shows that the watch has begun.
    pub(super) fn begin(&self, target: &OpenTarget) {
        let idle = if target.is_busy { "" } else { ", idle now" };
        self.note(&format!(
            "watching session {} of allstop {} in process {}{idle} · Ctrl-C stops watching; the session keeps running",
            short(target.session.as_str()),
            target.command,
            target.process.pid(),
        ));
    }

    /// Ends the view because the watcher leaves.
    pub(super) fn detached(&mut self, session: &SessionId) {
        self.end();
        let id = short(session.as_str());
        self.note(&format!(
            "stopped watching; session {id} keeps running · to stop it: allstop stop {id}"
        ));
    }

    /// Ends the view because the session is closed.
    pub(super) fn ended(&mut self, session: &SessionId) {
        self.end();
        if let Some(stream) = &mut self.stream {
            stream.watched(WatchStreamEvent::SessionEnded);
        }
        self.note(&format!("session {} was closed", short(session.as_str())));
    }

    /// Removes the live output and the prompt, and restores the terminal.
    pub(super) fn end(&mut self) {
        self.prompt = None;
        self.live.end(None);
    }

    /// Shows an event.
    pub(super) fn event(&mut self, event: WatchEvent) {
        let event = match describe_fact(&event) {
            Some(text) => WatchEvent::Note { text },
            None => event,
        };
        match event {
            WatchEvent::Receipt { receipt } if !is_worth_showing(&receipt) => return,
            WatchEvent::Asked(question) if self.stream.is_none() => return self.ask(question),
            WatchEvent::QuestionClosed { id, answer, by } if self.stream.is_none() => {
                let answer = answer.map(PermissionAnswer::from);
                let by = by.as_deref();
                let by = by.or(answer.as_ref().map(|_| "its own terminal"));
                if let Some(number) = self.questions.closed(&id, answer.as_ref(), by)
                    && let Some(prompt) = &mut self.prompt
                {
                    prompt.close(number);
                }
                return;
            }
            _ => {}
        }
        match &mut self.stream {
            Some(stream) => stream_event(stream, &event),
            None => self.show(&event),
        }
    }

    fn show(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Message { .. } | WatchEvent::Stopping { .. } => self.live.finish_line(),
            WatchEvent::Note { .. } | WatchEvent::Receipt { .. } | WatchEvent::Missed { .. } => {
                self.live.interrupt();
            }
            _ => {}
        }
        match event {
            WatchEvent::Message { text } => {
                let sign = self.style.pick("›", ">");
                let line = styled![sign, " ", Styled::text(text).hanging(2)];
                self.lines(self.style.paint(TextRole::Strong, line));
            }
            WatchEvent::Live { event, age_ms } => {
                let now = Instant::now();
                let at = now.checked_sub(Duration::from_millis(*age_ms));
                self.live.event_at(event, at.unwrap_or(now));
            }
            WatchEvent::Note { text } => self.note(text),
            WatchEvent::Stopping { force_in_ms } => {
                let left = duration(Duration::from_millis(*force_in_ms));
                self.note(&format!("stopping, force in {left}"));
            }
            WatchEvent::Receipt { receipt } => {
                let width = self.queue.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT);
                self.queue.lines(
                    render_receipt(receipt, self.style, width),
                    OutputPriority::Last,
                );
            }
            WatchEvent::Missed { count } => {
                self.live.missed(*count);
                let events = if *count == 1 { "event" } else { "events" };
                self.note(&format!("{count} {events} missed"));
            }
            // Events that `describe_fact` can describe have become notes. The other events show nothing.
            _ => {}
        }
    }

    fn ask(&mut self, question: ShownQuestion) {
        self.live.interrupt();
        let prompt = self.prompt.as_mut().filter(|prompt| prompt.can_ask());
        let Some(prompt) = prompt else {
            if self.questions.show(question).is_some() {
                self.note("  waiting for an answer from another terminal");
            }
            return;
        };
        prompt.begin();
        if let Some(question) = self.questions.show(question) {
            prompt.open(question);
        }
    }

    /// Waits for the next reply of the user.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next_reply(&mut self) -> PromptReply {
        match &mut self.prompt {
            Some(prompt) => prompt.next().await,
            None => std::future::pending().await,
        }
    }

    /// Shows more of a permission question.
    pub(super) fn show_more(&mut self, number: u64) {
        let rows_left = self.questions.show_more(number);
        if let Some(prompt) = &mut self.prompt {
            prompt.shown_more(number, rows_left);
        }
    }

    /// Takes the question that the user answered; `None` if the terminal is closed, or if the question is no longer
    /// open.
    pub(super) fn answering(&mut self, number: u64) -> Option<UnansweredQuestion> {
        if self.prompt.as_ref().is_none_or(QuestionPrompt::is_gone) {
            self.prompt = None;
            return None;
        }
        self.questions.take(number)
    }

    /// Shows the result of the user's answer to a permission question.
    pub(super) fn answered(
        &self,
        question: &UnansweredQuestion,
        answer: &PermissionAnswer,
        result: &Result<bool, RemoteError>,
    ) {
        match result {
            Ok(is_taken) => self.questions.show_answer(question, answer, *is_taken),
            Err(error) => {
                let failure = self.style.failure(&error.to_string(), None);
                self.lines(failure);
            }
        }
    }

    /// Gives the terminal to the shell while the process is suspended.
    pub(super) fn give_back(&mut self) {
        self.prompt.iter_mut().for_each(QuestionPrompt::suspend);
    }

    /// Takes the terminal back after a suspension.
    pub(super) fn resumed(&self) {
        self.prompt.iter().for_each(QuestionPrompt::resume);
        self.queue.show_region();
    }

    /// Draws the open question again after a change of the window size.
    pub(super) fn redraw(&self) {
        self.prompt.iter().for_each(QuestionPrompt::show);
    }

    fn note(&self, text: &str) {
        // With JSON output, notes are shown only on a terminal.
        if self.stream.is_none() || self.queue.is_terminal() {
            let text = self.queue.fitted(Styled::text(text));
            self.lines(self.style.paint(TextRole::Dim, text));
        }
    }

    fn lines(&self, lines: Styled) {
        self.queue.lines(lines, OutputPriority::Required);
    }
}

/// Text of an event that people read as one line. The session's own terminal shows the same text.
fn describe_fact(event: &WatchEvent) -> Option<String> {
    match event {
        WatchEvent::Recorded { record } => recorded::describe(record, false),
        WatchEvent::LateAnswer { call_id, name } => {
            Some(recorded::describe_late_answer(call_id, name))
        }
        WatchEvent::InBackground { running } => recorded::describe_running(running),
        WatchEvent::StopHeard { cause } => {
            Some(format!("the turn is being {}", cause.stopped_by()))
        }
        _ => None,
    }
}

fn stream_event(stream: &mut JsonStream, event: &WatchEvent) {
    stream.watched(match event {
        WatchEvent::Live { event, .. } => return stream.event(event),
        WatchEvent::Missed { count } => return stream.missed(*count),
        // Events that `describe_fact` can describe have become notes. The other ones are not printed.
        WatchEvent::Ended
        | WatchEvent::Recorded { .. }
        | WatchEvent::LateAnswer { .. }
        | WatchEvent::InBackground { .. }
        | WatchEvent::StopHeard { .. } => return,
        WatchEvent::Message { text } => WatchStreamEvent::UserMessage { text },
        WatchEvent::Note { text } => WatchStreamEvent::Note { text },
        WatchEvent::Asked(question) => WatchStreamEvent::QuestionOpened {
            question_id: &question.id,
            call_id: &question.call_id,
            text: &question.text,
        },
        WatchEvent::QuestionClosed { id, answer, by } => WatchStreamEvent::QuestionClosed {
            question_id: id,
            allowed: answer.as_ref().map(WatcherAnswer::allows),
            by: by.as_deref(),
        },
        WatchEvent::Stopping { force_in_ms } => WatchStreamEvent::StopBegun {
            force_in_ms: *force_in_ms,
        },
        WatchEvent::Receipt { receipt } => WatchStreamEvent::Receipt { receipt },
    });
}
