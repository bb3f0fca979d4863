//! Loop of a chat at the terminal: waits for the next event, and carries out the decisions of the module `state`.

mod attach;
mod commands;
mod editor;
mod facts;
mod pending;
mod server_forms;
mod session_events;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::{CallId, Cause, MessageId};
use allstop_runtime::SessionCost;
use allstop_scope::Scope;
use allstop_session::{SessionStop, StopTarget};
use allstop_terminal::{
    InputLine, InputMode, InputReader, JobChange, JobControl, Key, Notification, TextRole,
};
use allstop_tools::PermissionAnswer;
use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::{AbortHandle, BoxFuture};
use futures::stream::{FuturesUnordered, StreamExt as _};

use super::attached::ImageFinder;
use super::call_outputs::CallOutputs;
use super::complete::file_word;
use super::next::{ChatEnd, NextChat};
use super::server_content::is_prompt;
use super::state::{ChatEffect, ChatEvent, ChatState, MessageNumber, TypedInput};
use super::status::ChatStatus;
use super::{ChatInput, OpenChat, leave};
use crate::control::EndSignal;
use crate::error::CliError;
use crate::pasted_mark::{unmark, unmark_line};
use crate::questions::SessionQuestions;
use crate::signals::EndSignals;
use crate::supervise::Supervisor;
use crate::suspend::{job_control, suspend_session, suspend_silently};
use attach::{UnsentMessage, UnsentMessages};
use pending::FinishedWork;
use server_forms::ServerForms;

/// Runs the chat until its end.
pub(super) async fn run(
    chat: OpenChat<'_>,
    supervisor: Supervisor,
    input: ChatInput,
) -> Result<ChatEnd, CliError> {
    let Supervisor { signals, control } = supervisor;
    let mode = if chat.host.terminal.has_cursor() {
        InputMode::Keys {
            marks_pastes: true,
            reports_focus: true,
        }
    } else {
        InputMode::Lines
    };
    let ChatInput {
        device,
        reader,
        history,
        first,
    } = input;
    let mut reader = match reader {
        Some(reader) => {
            reader.enable_focus_reports();
            reader
        }
        None => InputReader::new(device, mode).context("cannot use the terminal")?,
    };
    reader.take();
    let mut job = job_control()?;
    let input = TypedInput::new(history, chat.view.style, mode == InputMode::Lines)
        .with_definitions(chat.system.definitions());
    let state = ChatState::new(input, control);
    let questions =
        SessionQuestions::new(chat.view.queue().clone(), chat.view.style, mode.rest_hint());
    let forms = ServerForms::of(&chat.session, chat.view.types);
    let cost = earlier_cost(&chat).await;
    let images = ImageFinder::in_folder(chat.system.folder());
    let mut chat_loop = ChatLoop {
        status: ChatStatus::new(
            &chat.system,
            cost,
            chat.mode.clone(),
            chat.answers,
            chat.view.style,
        ),
        outputs: CallOutputs::default(),
        chat,
        signals,
        state,
        reader,
        numbers: HashMap::new(),
        questions,
        forms,
        calls: Vec::new(),
        stops: Vec::new(),
        asked_stops: VecDeque::new(),
        pending: FuturesUnordered::new(),
        held: None,
        wait: None,
        left: None,
        suspends_after_stops: false,
        terminal: TerminalUser::Chat,
        editor: None,
        has_focus: true,
        images,
        unsent: UnsentMessages::default(),
        is_pasting: false,
        mode,
        echoed: None,
    };
    chat_loop.come_back();
    if let Some(first) = first {
        let effects = chat_loop.state.first_message(&first);
        chat_loop.carry_out_all(effects);
    }
    let left = loop {
        if let Some(left) = chat_loop.left.take() {
            break left;
        }
        chat_loop.show_input();
        chat_loop.next(&mut job).await;
    };
    chat_loop.end_editor().await;
    let ChatLoop {
        chat,
        signals,
        state,
        reader,
        ..
    } = chat_loop;
    let reader = if left.next.is_some() {
        Some(reader)
    } else {
        // From now on, typed text goes to the shell.
        drop(reader);
        None
    };
    let supervisor = Supervisor::new(signals, state.into_control());
    let session = chat.session.id().clone();
    let exit = leave::leave(chat, supervisor, left.cause, 0).await;
    Ok(match left.next.zip(reader) {
        Some((next, reader)) => ChatEnd::Next(next, session, Box::new(reader)),
        None => ChatEnd::Left(exit),
    })
}

/// Maximum wait for the cost of a resumed session, so that a slow store does not delay the chat.
const COST_WAIT_MAX: Duration = Duration::from_secs(1);

/// Usage and cost of the session before this chat. `None` if the store does not answer in time.
async fn earlier_cost(chat: &OpenChat<'_>) -> Option<SessionCost> {
    let system = &chat.system;
    let read = SessionCost::of_session(&**system.log(), chat.session.id(), system.prices());
    tokio::time::timeout(COST_WAIT_MAX, read).await.ok()?.ok()
}

/// Interval between two checks whether a chat in the background is in the foreground again. `fg` sends no signal to a
/// process that runs.
const FOREGROUND_POLL: Duration = Duration::from_millis(100);

/// Request to leave the chat.
struct LeaveRequest {
    /// The cause, if a signal requested the end.
    cause: Option<Cause>,
    /// The chat that follows, if the user goes on in another chat.
    next: Option<NextChat>,
}

/// Call that the running turn has requested.
struct KnownCall {
    id: CallId,
    name: Arc<str>,
    /// One-line label of the call.
    label: String,
    runs: bool,
}

/// User of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TerminalUser {
    Chat,
    /// The shell: the chat runs in its background.
    Shell,
    /// An editor, in which the user edits the message.
    Editor,
}

struct ChatLoop<'a> {
    chat: OpenChat<'a>,
    status: ChatStatus,
    outputs: CallOutputs,
    signals: EndSignals,
    state: ChatState,
    reader: InputReader,
    numbers: HashMap<MessageId, MessageNumber>,
    questions: SessionQuestions,
    forms: ServerForms,
    /// Calls of the running turn that have not ended.
    calls: Vec<KnownCall>,
    /// Stops whose receipts are not complete yet. A receipt lists the work that a stop has covered.
    stops: Vec<SessionStop>,
    /// Recent stops whose receipts the chat shows separately. The outcome of a stopped message contains the receipt,
    /// too, and must not show it again.
    asked_stops: VecDeque<SessionStop>,
    pending: FuturesUnordered<BoxFuture<'static, FinishedWork>>,
    /// Result that was taken out of `pending`, but has not been shown yet.
    held: Option<FinishedWork>,
    wait: Option<AbortHandle>,
    /// False if the terminal reported that its window lost the focus.
    has_focus: bool,
    /// Reader of the images that messages name.
    images: ImageFinder,
    unsent: UnsentMessages,
    /// True while a pasted path is looked up. Keys wait.
    is_pasting: bool,
    /// Request to leave the chat, if any.
    left: Option<LeaveRequest>,
    /// True if Ctrl-Z was pressed during a stop.
    suspends_after_stops: bool,
    /// The user of the terminal.
    terminal: TerminalUser,
    /// Scope of the open editor.
    editor: Option<Scope>,
    mode: InputMode,
    /// Last line that the terminal echoed in line mode while no turn ran. Because of the echo, the line is already
    /// visible above its answer, so the chat does not print it again.
    echoed: Option<String>,
}

impl ChatLoop<'_> {
    /// Draws the input line and the status. In line mode, the terminal itself echoes the typed text. The chat then
    /// draws only a prompt sign, while it waits for a line.
    fn show_input(&mut self) {
        if self.terminal == TerminalUser::Editor {
            return;
        }
        let view = &self.chat.view;
        let now = Instant::now();
        let input_line = self.state.input_line(now).map(|line| {
            let (text, cursor) = unmark_line(&line.text, line.cursor);
            InputLine {
                text,
                cursor,
                ..line
            }
        });
        if self.mode != InputMode::Lines {
            view.input_line(input_line);
            view.title(self.state.activity(), self.status.folder());
            let (policy, activity) = (self.chat.session.policy(), self.state.activity());
            return view.status(self.status.line(policy, activity));
        }
        let waits = self.state.waits_for_a_line(now);
        view.input_line(input_line.filter(|_| waits).map(|line| InputLine {
            above: Vec::new(),
            text: String::new(),
            cursor: 0,
            narrow: None,
            is_echoed: true,
            ..line
        }));
        // In line mode, Ctrl-D ends the input and releases the terminal, so the reader takes the terminal again.
        self.reader.take();
    }

    /// Waits for the next event, and handles it.
    async fn next(&mut self, job: &mut JobControl) {
        let changes_at = self.state.changes_at(Instant::now());
        let changes = async {
            match changes_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let user = self.terminal;
        let look = async {
            if user == TerminalUser::Shell {
                tokio::time::sleep(FOREGROUND_POLL).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            // Ctrl-C in an editor is a key of the editor.
            signal = self.signals.next() => {
                if !(user == TerminalUser::Editor && signal == EndSignal::Interrupt) {
                    self.apply(ChatEvent::Signal(signal));
                }
            }
            keys = self.reader.next(), if !self.is_pasting => match keys {
                Some(keys) => {
                    let mut keys = keys.into_iter();
                    while let Some(key) = keys.next() {
                        self.key(key);
                        if self.left.is_some() || self.is_pasting {
                            // The next chat gets the other keys, or this chat after the paste.
                            self.reader.unread(keys);
                            break;
                        }
                    }
                }
                None => self.apply(ChatEvent::InputEnded),
            },
            change = job.next() => self.job_changed(change),
            Ok(Some(event)) = self.chat.events.next() => self.session_event(event),
            asked = self.chat.remote.next_stop() => self.stopped_from_elsewhere(asked),
            change = self.chat.news.next() => self.note(&change.to_string()),
            // The loop redraws the input line.
            () = changes => {}
            () = look => self.come_back(),
            Some(done) = self.pending.next() => {
                // Session events that occurred before this result are shown first. If one of these events begins a
                // turn, `began` handles the held result.
                self.held = Some(done);
                while let Some(Ok(Some(event))) = self.chat.events.next().now_or_never() {
                    self.session_event(event);
                }
                if let Some(done) = self.held.take() {
                    self.done(done);
                }
            }
        }
    }

    /// Shows a separate line below the partial answer.
    fn note(&mut self, text: &str) {
        self.chat.view.live.interrupt();
        self.chat.view.note(text);
    }

    /// Names the running turn or `/compact`: the running calls of the turn, if any.
    fn running_turn(&self) -> Vec<String> {
        let running = self.calls.iter().filter(|call| call.runs);
        let calls: Vec<String> = running.map(|call| call.label.clone()).collect();
        if !calls.is_empty() {
            calls
        } else if self.state.compacts() {
            vec!["the compaction".to_owned()]
        } else if self.chat.session.is_busy() {
            vec!["the turn".to_owned()]
        } else {
            Vec::new()
        }
    }

    /// Names the running work that the end of the chat would stop.
    fn running_work(&self) -> Vec<String> {
        let chat = &self.chat;
        let mut names = self.running_turn();
        if !chat.keeps_background {
            let works = chat.session.background().into_iter();
            let works = works.filter(|work| work.is_running());
            names.extend(works.map(|work| format!("{} ({})", work.id, work.name)));
        }
        names
    }

    /// Ends this chat, and begins another one. Running work prevents this.
    fn go_on_in(&mut self, next: NextChat) {
        let names = self.running_work();
        if names.is_empty() {
            self.left = Some(LeaveRequest {
                cause: None,
                next: Some(next),
            });
            return;
        }
        let names = names.join(", ");
        self.note(&format!(
            "still running: {names} · /stop all stops it; then try again"
        ));
    }

    /// Answer to a request to leave: the running work, if any, that the end of the chat would stop.
    fn ask_to_leave(&self) -> ChatEvent {
        let names = self.running_work();
        if names.is_empty() {
            ChatEvent::MayLeave
        } else {
            ChatEvent::WorkRuns(names)
        }
    }

    /// Takes the terminal if the chat is in the foreground. Otherwise draws no input line over the line of the shell.
    fn come_back(&mut self) {
        self.reader.resume();
        let queue = self.chat.view.queue();
        if self.reader.is_taken() {
            self.terminal = TerminalUser::Chat;
            queue.show_region();
            self.apply(ChatEvent::CameBack);
        } else {
            self.terminal = TerminalUser::Shell;
            queue.hide_region();
        }
    }

    fn suspend(&self) {
        let view = &self.chat.view;
        let give_back = || self.reader.suspend();
        suspend_session(
            &self.chat.session,
            Some((view.queue(), view.style)),
            give_back,
        );
    }

    fn job_changed(&mut self, change: JobChange) {
        match change {
            // The shell resumes the editor and this process together.
            JobChange::Suspend if self.terminal == TerminalUser::Editor => suspend_silently(),
            _ if self.terminal == TerminalUser::Editor => {}
            // A suspended process could not force the stop in time.
            JobChange::Suspend if !self.stops.is_empty() => {
                self.suspends_after_stops = true;
                self.note("a stop is running; Ctrl-Z takes effect after it");
            }
            JobChange::Suspend => self.suspend(),
            JobChange::Resumed => self.come_back(),
            // The loop redraws the input line.
            JobChange::Resized => {}
        }
    }

    fn key(&mut self, key: Key) {
        match key {
            Key::FocusGained => self.has_focus = true,
            Key::FocusLost => self.has_focus = false,
            key if self.mode == InputMode::Lines && key.ends_line() => {
                self.chat.view.queue().end_echoed_line();
                self.echoed = self
                    .state
                    .waits_for_a_line(Instant::now())
                    .then(|| self.state.typed_line());
                self.apply(ChatEvent::Key(Key::Enter));
            }
            Key::Paste(text) => self.paste(text),
            key => self.apply(ChatEvent::Key(key)),
        }
    }

    /// Sends a desktop notification if the user looks at another window.
    fn notify(&self, text: &str) {
        if !self.has_focus {
            let method = self.chat.host.terminal.notification_method();
            let text = text.to_owned();
            let queue = self.chat.view.queue();
            queue.notify(Notification { text, method });
        }
    }

    fn apply(&mut self, event: ChatEvent) {
        let effects = self.state.handle(event, Instant::now());
        self.carry_out_all(effects);
    }

    fn carry_out_all(&mut self, effects: Vec<ChatEffect>) {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            if let Some(event) = self.carry_out(effect) {
                effects.extend(self.state.handle(event, Instant::now()));
            }
        }
    }

    fn carry_out(&mut self, effect: ChatEffect) -> Option<ChatEvent> {
        match &effect {
            // The partial text of an earlier answer stays above the message.
            ChatEffect::ShowMessage(_) => self.chat.view.live.finish_line(),
            ChatEffect::ShowSteered(_)
            | ChatEffect::ShowUnanswered(_)
            | ChatEffect::ShowCommand(_)
            | ChatEffect::Note(_)
            | ChatEffect::RunCommand(_)
            | ChatEffect::Answer(..)
            | ChatEffect::ShowMore(_)
            | ChatEffect::Redraw
            | ChatEffect::NextMode
            | ChatEffect::ListWork(_) => self.chat.view.live.interrupt(),
            _ => {}
        }
        let view = &self.chat.view;
        match effect {
            ChatEffect::Send(number, text) => {
                let is_prompt = false;
                return Some(self.send(UnsentMessage {
                    number,
                    text,
                    is_prompt,
                }));
            }
            ChatEffect::SendServerPrompt(number, text) => {
                let is_prompt = true;
                return Some(self.send(UnsentMessage {
                    number,
                    text,
                    is_prompt,
                }));
            }
            ChatEffect::ShowMessage(text)
                if self
                    .echoed
                    .take()
                    .is_some_and(|line| line.trim() == text.trim()) => {}
            ChatEffect::ShowMessage(text) => view.message(&unmark(&text)),
            ChatEffect::ShowSteered(text) => {
                view.typed(&unmark(&text), TextRole::Strong, "  (to the running turn)");
            }
            ChatEffect::ShowUnanswered(text) => {
                view.typed(&unmark(&text), TextRole::Dim, "  (started no turn)");
            }
            ChatEffect::ShowCommand(_) if self.mode == InputMode::Lines => {}
            ChatEffect::ShowCommand(text) => view.typed(unmark(&text).trim(), TextRole::Dim, ""),
            ChatEffect::Note(text) => view.note(&text),
            ChatEffect::Withdraw(numbers, cause) => self.withdraw(&numbers, &cause),
            ChatEffect::StopTurn(cause) => self.stop(&StopTarget::Turn, cause),
            ChatEffect::Force => {
                view.note("using force on the remaining work");
                self.stops.iter().for_each(SessionStop::force);
            }
            ChatEffect::GiveUpWait => {
                self.wait.take().iter().for_each(AbortHandle::abort);
            }
            ChatEffect::Complete => {
                let line = self.state.typed_line();
                if is_prompt(&line) {
                    self.find_prompts();
                } else if file_word(&line).is_some() {
                    self.find_files();
                } else {
                    return Some(ChatEvent::Names(self.names()));
                }
            }
            ChatEffect::OpenEditor => self.open_editor(),
            ChatEffect::RunCommand(command) => self.command(command),
            ChatEffect::Answer(number, answer) => {
                let answer = match answer {
                    PermissionAnswer::Deny { reason } => PermissionAnswer::Deny {
                        reason: reason.map(|reason| unmark(&reason).into()),
                    },
                    other => other,
                };
                self.questions.answer(number, &answer, &self.chat.session);
            }
            ChatEffect::ShowMore(number) => {
                let rows_left = self.questions.show_more(number);
                return Some(ChatEvent::ShownMore { number, rows_left });
            }
            ChatEffect::Redraw => view.queue().clear_screen(),
            ChatEffect::NextMode => {
                self.status.switch(None);
                view.note(&self.status.describe_mode());
            }
            ChatEffect::AskToLeave => return Some(self.ask_to_leave()),
            ChatEffect::ListWork(names) => {
                let names = names.join(", ");
                view.note(&format!(
                    "still running: {names} · Ctrl-D or /quit again stops this work and leaves"
                ));
            }
            ChatEffect::Leave(cause) => {
                self.left = Some(LeaveRequest { cause, next: None });
            }
        }
        None
    }
}
