//! The loop of a chat at the terminal: waits for whatever comes first, and carries out what the desk decides.

mod commands;
mod done;
mod heard;
mod questions;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use allstop_core::{CallId, Cause, MessageId};
use allstop_session::{SessionStop, StopTarget};
use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::{AbortHandle, BoxFuture};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::signal::unix::{SignalKind, signal};

use super::desk::{Desk, Effect, Event, MessageNumber};
use super::input::Input;
use super::keys::{Keys, SEQUENCE_MAX};
use super::past::Past;
use super::{Chat, leave};
use crate::Exit;
use crate::display::Role;
use crate::job_control::{self, JobChange, JobControl};
use crate::problem::Problem;
use crate::prompt::Tty;
use crate::signals::Signals;
use crate::supervise::{Supervisor, until};
use done::Done;
use questions::Waiting;

/// Talks until somebody leaves.
pub(super) async fn talk(
    chat: Chat<'_>,
    supervisor: Supervisor,
    tty: Tty,
    past: Past,
    first: Option<String>,
) -> Result<Exit, Problem> {
    let Supervisor { signals, control } = supervisor;
    let has_cursor = chat.host.terminal.has_cursor();
    let input = Input::open(tty, has_cursor).context("cannot use the terminal")?;
    let mut changes = Changes::install()?;
    let desk = Desk::new(past, chat.screen.style, control);
    let mut talk = Talk {
        chat,
        signals,
        desk,
        input,
        keys: Keys::default(),
        sequence_until: None,
        numbers: HashMap::new(),
        questions: HashMap::new(),
        asked: 0,
        calls: Vec::new(),
        stops: Vec::new(),
        asked_stops: VecDeque::new(),
        pending: FuturesUnordered::new(),
        held: None,
        wait: None,
        left: None,
    };
    if let Some(first) = first {
        let effects = talk.desk.first_message(&first);
        talk.carry_out_all(effects);
    }
    let cause = loop {
        if let Some(left) = talk.left.take() {
            break left.cause;
        }
        talk.chat.screen.entry(talk.desk.entry());
        talk.next(&mut changes).await;
    };
    let Talk {
        chat,
        signals,
        desk,
        input,
        ..
    } = talk;
    // What is typed from now on is the shell's.
    drop(input);
    let supervisor = Supervisor::new(signals, desk.into_control());
    Ok(leave::leave(chat, supervisor, cause, 0).await)
}

/// Signals that the terminal has changed, or that somebody else has it.
struct Changes {
    resized: tokio::signal::unix::Signal,
    job: JobControl,
}

impl Changes {
    fn install() -> anyhow::Result<Self> {
        let resized = signal(SignalKind::window_change());
        Ok(Self {
            resized: resized.context("cannot listen for signals")?,
            job: JobControl::install()?,
        })
    }
}

/// Somebody leaves.
struct Left {
    /// A signal has one of its own.
    cause: Option<Cause>,
}

/// A call that the running turn has asked for.
struct KnownCall {
    id: CallId,
    name: Arc<str>,
    /// A label of one line.
    label: String,
    runs: bool,
}

struct Talk<'a> {
    chat: Chat<'a>,
    signals: Signals,
    desk: Desk,
    input: Input,
    keys: Keys,
    /// Until when more may come of a sequence that has begun.
    sequence_until: Option<Instant>,
    numbers: HashMap<MessageId, MessageNumber>,
    /// The questions that nobody has answered yet.
    questions: HashMap<u64, Waiting>,
    asked: u64,
    /// The calls that the running turn has asked for, until they have ended.
    calls: Vec<KnownCall>,
    /// Those that have no receipt yet.
    stops: Vec<SessionStop>,
    /// Those that were asked for lately.
    asked_stops: VecDeque<SessionStop>,
    pending: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Taken out of `pending`, and not shown yet.
    held: Option<Done>,
    wait: Option<AbortHandle>,
    /// The chat is to end.
    left: Option<Left>,
}

impl Talk<'_> {
    /// Waits for what comes next, and does what is to be done about it.
    async fn next(&mut self, changes: &mut Changes) {
        tokio::select! {
            biased;
            signal = self.signals.next() => self.apply(Event::Signal(signal)),
            bytes = self.input.next() => match bytes {
                Some(bytes) => self.typed(&bytes),
                None => self.apply(Event::InputEnded),
            },
            () = until(self.sequence_until) => {
                self.sequence_until = None;
                if let Some(key) = self.keys.end_sequence() {
                    self.apply(Event::Key(key));
                }
            }
            change = changes.job.next() => self.job_changed(change),
            _ = changes.resized.recv() => {}
            Ok(Some(event)) = self.chat.events.next() => self.session_event(event),
            change = self.chat.news.next() => self.chat.screen.note(&change.to_string()),
            Some(done) = self.pending.next() => {
                // What came before it is shown before it. A turn that began meanwhile takes it first.
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

    fn job_changed(&self, change: JobChange) {
        let screen = &self.chat.screen;
        let lane = screen.lane();
        match change {
            JobChange::Suspend => {
                let give_back = || self.input.give_back();
                job_control::suspend(&self.chat.session, Some((lane, screen.style)), give_back);
            }
            JobChange::Resumed => {
                self.input.take_mode();
                lane.show_changing();
            }
        }
    }

    fn typed(&mut self, bytes: &[u8]) {
        for key in self.keys.read(bytes) {
            self.apply(Event::Key(key));
        }
        let waits = self.keys.is_in_sequence();
        self.sequence_until = waits.then(|| Instant::now() + SEQUENCE_MAX);
    }

    fn apply(&mut self, event: Event) {
        let effects = self.desk.handle(event, Instant::now());
        self.carry_out_all(effects);
    }

    fn carry_out_all(&mut self, effects: Vec<Effect>) {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            if let Some(event) = self.carry_out(effect) {
                effects.extend(self.desk.handle(event, Instant::now()));
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) -> Option<Event> {
        let screen = &self.chat.screen;
        match effect {
            Effect::Send(number, text) => return Some(self.send(number, text)),
            Effect::ShowMessage(text) => screen.typed(&text, Role::Strong, ""),
            Effect::ShowSteered(text) => {
                screen.typed(&text, Role::Strong, "  (to the running turn)");
            }
            Effect::ShowUnanswered(text) => {
                screen.typed(&text, Role::Dim, "  (no turn began for it)");
            }
            Effect::ShowCommand(text) => screen.typed(text.trim(), Role::Dim, ""),
            Effect::Note(text) => screen.note(&text),
            Effect::StopTurn(cause) => self.stop(&StopTarget::Turn, cause),
            Effect::Force => {
                screen.note("forced: what still runs is ended now");
                self.stops.iter().for_each(SessionStop::force);
            }
            Effect::GiveUpWait => {
                self.wait.take().iter().for_each(AbortHandle::abort);
            }
            Effect::Complete => return Some(Event::Names(self.names())),
            Effect::Do(command) => self.command(command),
            Effect::Answer(number, answer) => self.answer(number, answer),
            Effect::Leave(cause) => self.left = Some(Left { cause }),
        }
        None
    }
}
