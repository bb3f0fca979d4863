//! The loop of a chat at the terminal: waits for whatever comes first, and carries out what the desk decides.

mod commands;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::AgentEvent;
use allstop_core::ids::QuestionId;
use allstop_core::record::SessionRecord;
use allstop_core::{CallId, Cause, Extent, MessageId, Receipt};
use allstop_session::{
    Admission, Answered, MessageOutcome, OpenQuestion, SendError, SessionEvent, SessionEventKind,
    StopTarget, Stopping,
};
use allstop_tools::Answer;
use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::{AbortHandle, BoxFuture};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::signal::unix::{SignalKind, signal};

use super::desk::{Ask, Desk, Effect, Event, MessageNumber};
use super::input::Input;
use super::keys::Keys;
use super::past::Past;
use super::screen::is_worth_showing;
use super::{Chat, leave};
use crate::Exit;
use crate::problem::Problem;
use crate::prompt::Tty;

/// Talks until somebody leaves.
pub(super) async fn talk(
    chat: Chat<'_>,
    tty: Tty,
    history: Option<std::path::PathBuf>,
    first: Option<String>,
    grace: Duration,
) -> Result<Exit, Problem> {
    let has_cursor = chat.host.terminal.has_cursor();
    let input = Input::open(tty, has_cursor).context("cannot use the terminal")?;
    let mut changes = Changes::install()?;
    let desk = Desk::new(Past::load(history), chat.screen.style(), grace);
    let mut talk = Talk {
        chat,
        desk,
        input,
        keys: Keys::default(),
        numbers: HashMap::new(),
        questions: HashMap::new(),
        asked: 0,
        calls: Vec::new(),
        stops: Vec::new(),
        pending: FuturesUnordered::new(),
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
        chat, desk, input, ..
    } = talk;
    // What is typed from now on is the shell's.
    drop(input);
    Ok(leave::leave(chat, desk.into_control(), cause, 0).await)
}

/// What changes the terminal below us.
struct Changes {
    resized: tokio::signal::unix::Signal,
    resumed: tokio::signal::unix::Signal,
}

impl Changes {
    fn install() -> anyhow::Result<Self> {
        let continued = rustix::process::Signal::CONT.as_raw();
        let resized = signal(SignalKind::window_change());
        let resumed = signal(SignalKind::from_raw(continued));
        Ok(Self {
            resized: resized.context("cannot listen for signals")?,
            resumed: resumed.context("cannot listen for signals")?,
        })
    }
}

/// Something that was begun is done.
enum Done {
    Outcome(MessageNumber, Arc<MessageOutcome>),
    Stopped(Arc<Receipt>),
    /// Something to say; a wait is over with it.
    Said {
        text: String,
        was_wait: bool,
    },
}

/// Somebody leaves.
struct Left {
    /// A signal has one of its own.
    cause: Option<Cause>,
}

struct Talk<'a> {
    chat: Chat<'a>,
    desk: Desk,
    input: Input,
    keys: Keys,
    numbers: HashMap<MessageId, MessageNumber>,
    /// The questions that nobody has answered yet.
    questions: HashMap<u64, QuestionId>,
    asked: u64,
    /// The calls that run, with their tools.
    calls: Vec<(CallId, Arc<str>)>,
    stops: Vec<Stopping>,
    pending: FuturesUnordered<BoxFuture<'static, Done>>,
    wait: Option<AbortHandle>,
    /// The chat is to end.
    left: Option<Left>,
}

impl Talk<'_> {
    /// Waits for what comes next, and does what is to be done about it.
    async fn next(&mut self, changes: &mut Changes) {
        tokio::select! {
            biased;
            signal = self.chat.signals.next() => self.apply(Event::Signal(signal)),
            bytes = self.input.next() => match bytes {
                Some(bytes) => {
                    for key in self.keys.read(&bytes) {
                        self.apply(Event::Key(key));
                    }
                }
                None => self.apply(Event::InputEnded),
            },
            _ = changes.resumed.recv() => self.input.take_mode(),
            _ = changes.resized.recv() => {}
            Ok(Some(event)) = self.chat.events.next() => self.session_event(event),
            Some(done) = self.pending.next() => {
                // What came before it is shown before it.
                while let Some(Ok(Some(event))) = self.chat.events.next().now_or_never() {
                    self.session_event(event);
                }
                self.done(done);
            }
        }
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
            Effect::ShowMessage(text) => screen.message(&text),
            Effect::ShowSteered(text) => screen.steered(&text),
            Effect::ShowUnanswered(text) => screen.unanswered(&text),
            Effect::ShowCommand(text) => screen.command(&text),
            Effect::Note(text) => screen.note(&text),
            Effect::StopTurn(cause) => self.stop(&StopTarget::Turn, cause),
            Effect::Force => {
                screen.note("forced: what still runs is ended now");
                self.stops.iter().for_each(Stopping::force);
            }
            Effect::GiveUpWait => {
                self.wait.take().iter().for_each(AbortHandle::abort);
            }
            Effect::Do(command) => self.command(command),
            Effect::Answer(number, answer) => self.answer(number, answer),
            Effect::Leave(cause) => self.left = Some(Left { cause }),
        }
        None
    }

    fn send(&mut self, message: MessageNumber, text: String) -> Event {
        match self.chat.session.send(text) {
            Ok(sent) => {
                self.numbers.insert(sent.id.clone(), message);
                let steers = sent.admission == Admission::Steers;
                let outcome = async move { Done::Outcome(message, sent.outcome().await) };
                self.pending.push(outcome.boxed());
                Event::Taken { message, steers }
            }
            Err(error) => Event::Refused {
                message,
                why: match error {
                    SendError::NotAdmitted(why) => {
                        format!("{why} · policy {}", self.chat.session.policy())
                    }
                    other => other.to_string(),
                },
            },
        }
    }

    fn stop(&mut self, target: &StopTarget, cause: Cause) {
        let stopping = self.chat.session.stop(target, cause);
        self.desk.stop_begun(Instant::now());
        self.stops.push(stopping.clone());
        self.pending
            .push(async move { Done::Stopped(stopping.receipt().await) }.boxed());
    }

    fn answer(&mut self, number: u64, answer: Answer) {
        let Some(question) = self.questions.remove(&number) else {
            return;
        };
        let said = match (self.chat.session.answer(&question, answer), answer) {
            (Answered::Taken, Answer::AllowOnce) => "  yes, once",
            (Answered::Taken, Answer::AllowForSession) => "  yes, always",
            (Answered::Taken, Answer::Deny) => "  no",
            (Answered::TooLate | Answered::NotFound, _) => {
                "  too late: the question was answered, or a stop took it away"
            }
        };
        self.chat.screen.note(said);
    }

    fn session_event(&mut self, event: SessionEvent) {
        let number = match &event.message {
            Some(id) => match self.numbers.get(id) {
                Some(number) => Some(*number),
                None => return,
            },
            None => None,
        };
        match event.kind {
            SessionEventKind::Recorded { record, .. } => self.recorded(&record, number),
            SessionEventKind::Live(event) => self.live(&event, number),
            SessionEventKind::PermissionAsked(question) => self.asked(question),
            SessionEventKind::PermissionAnswered { id, allowed } => {
                let over = self.questions.iter().find(|(_, open)| **open == id);
                if let Some(number) = over.map(|(number, _)| *number) {
                    self.questions.remove(&number);
                    let said = if allowed { "  yes" } else { "  withdrawn" };
                    self.chat.screen.note(said);
                    self.apply(Event::QuestionOver(number));
                }
            }
            SessionEventKind::LateAnswer { call_id, name } => {
                let said =
                    format!("{name} ({call_id}) answered after its end: nothing of it is used");
                self.chat.screen.note(&said);
            }
            SessionEventKind::Missed { count } => self.chat.screen.missed(count),
            SessionEventKind::AssistantIdle { running, .. } if !running.is_empty() => {
                let names = running
                    .iter()
                    .map(|work| format!("{} ({})", work.id, work.name));
                let names = names.collect::<Vec<_>>().join(", ");
                self.chat
                    .screen
                    .note(&format!("in the background: {names}"));
            }
            _ => {}
        }
    }

    /// A turn began. What the messages before came to is known by then, and is shown before; what this one comes to may
    /// be known too, and is shown in its place.
    fn began(&mut self, number: Option<MessageNumber>) {
        let mut later = Vec::new();
        while let Some(Some(done)) = self.pending.next().now_or_never() {
            match done {
                Done::Outcome(of, _) if number.is_some_and(|began| of >= began) => later.push(done),
                done => self.done(done),
            }
        }
        self.apply(Event::Began(number));
        for done in later {
            self.pending.push(std::future::ready(done).boxed());
        }
    }

    fn recorded(&mut self, record: &SessionRecord, number: Option<MessageNumber>) {
        match record {
            SessionRecord::TurnStarted { .. } => self.began(number),
            SessionRecord::BackgroundEnded {
                id,
                state,
                exit_code,
                ..
            } => {
                let code = exit_code.map_or(String::new(), |code| format!(", exit code {code}"));
                let said = format!(
                    "{id} has ended: {}{code}",
                    crate::display::plain(state.as_str())
                );
                self.chat.screen.note(&said);
            }
            _ => {}
        }
    }

    fn live(&mut self, event: &AgentEvent, number: Option<MessageNumber>) {
        match event {
            AgentEvent::TurnStarted { .. } => self.began(number),
            AgentEvent::ToolStarted { call_id, name, .. } => {
                self.calls.push((call_id.clone(), Arc::clone(name)));
            }
            AgentEvent::ToolFinished { call_id, .. } => {
                self.calls.retain(|(id, _)| id != call_id);
            }
            _ => {}
        }
        if self.desk.shows(number) {
            self.chat.screen.agent(event);
        }
        if let AgentEvent::TurnEnded { .. } = event {
            self.calls.clear();
            if number.is_none() {
                self.chat.screen.end_turn(None);
            }
            self.apply(Event::TurnEnded(number));
        }
    }

    fn asked(&mut self, question: OpenQuestion) {
        self.asked += 1;
        let number = self.asked;
        self.questions.insert(number, question.id);
        self.chat.screen.question(&question.question.text);
        self.apply(Event::Asked(Ask {
            number,
            always: question.question.session_scope,
        }));
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Outcome(number, outcome) => self.outcome(number, &outcome),
            Done::Stopped(receipt) => {
                self.chat.screen.receipt(&receipt);
                let id = receipt.stop_id();
                self.stops.retain(|stop| stop.request().stop_id != *id);
                self.apply(Event::StopEnded);
                if receipt.request().extent == Extent::Session {
                    // It takes no message any more.
                    self.left = Some(Left { cause: None });
                }
            }
            Done::Said { text, was_wait } => {
                self.chat.screen.text(&text);
                if was_wait {
                    self.apply(Event::Waits(false));
                }
            }
        }
    }

    fn outcome(&mut self, number: MessageNumber, outcome: &MessageOutcome) {
        if self.desk.shows(Some(number)) {
            let answer = outcome.is_completed().then_some(&*outcome.output);
            self.chat.screen.end_turn(answer);
        }
        self.apply(Event::Outcome(number));
        self.chat.screen.outcome(outcome);
        let Some(receipt) = &outcome.receipt else {
            return;
        };
        // One that was asked for here comes by itself, and may cover more.
        let is_ours = self
            .stops
            .iter()
            .any(|stop| stop.request().stop_id == *receipt.stop_id());
        if !is_ours && is_worth_showing(receipt) {
            self.chat.screen.receipt(receipt);
        }
    }
}
