//! The sessions that this process owns, as other processes access them. A watcher is a program in another terminal that
//! shows a session of this process.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{SessionId, Timestamp};
use allstop_scope::{NotStarted, RootOptions, Scope, WorkSpec};
use allstop_session::{Session, SessionRegistry, SessionStop, StopTarget};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::announcer::{Announcer, RemoteStop};
use crate::owned_commands::OwnedCommands;
use crate::protocol::{OwnedSessionReport, ProcessReport, RunningTurnReport, WorkReport, whole_ms};
use crate::watched::{ANNOUNCEMENTS_MAX, WatchedSession};

/// Maximum number of stops that wait for display on a terminal. Further stops are accepted too, but not shown.
const STOPS_MAX: usize = 64;

/// Maximum number of watchers. The other connections stay free for stops.
pub(crate) const WATCHERS_MAX: usize = 16;

/// Maximum time that this process waits at its end until watchers have read the end of the sessions.
const WATCHERS_WAIT_MAX: Duration = Duration::from_millis(100);

/// The open sessions of this process. Clones share them.
#[derive(Debug, Clone)]
pub struct OwnedSessions(Arc<OwnedInner>);

#[derive(Debug)]
struct OwnedInner {
    command: &'static str,
    folder: PathBuf,
    /// File of the store, or the URLs of its NATS servers.
    store: Mutex<Option<PathBuf>>,
    started_at: Timestamp,
    /// Set before a server listens, and when a terminal has opened its session.
    sessions: OnceLock<SessionsOfProcess>,
    /// Permits for watchers.
    watchers: Arc<Semaphore>,
    /// Scope of the followers: the tasks that read the events of a session for its watchers.
    scope: Scope,
}

#[derive(Debug)]
enum SessionsOfProcess {
    /// The only session. The session stays in this variant after its end.
    Terminal(Arc<OwnedSession>),
    /// Open sessions. An [`OwnedSession`] is attached to each of them with `Session::set_part`.
    Clients(SessionRegistry),
    /// Commands of clients. The process has no sessions.
    Commands(Arc<dyn OwnedCommands>),
}

/// A session and its access for other processes.
#[derive(Debug)]
pub(crate) struct OwnedSession {
    pub(crate) session: Session,
    pub(crate) watched: WatchedSession,
    holder: SessionHolder,
    pub(crate) announcer: Announcer,
    /// Held from the acceptance of a remote stop until the terminal is notified. A terminal can acquire this lock after
    /// its work has ended. If a remote stop has ended the work, the terminal then finds the notification of that stop.
    pub(crate) accepting: Mutex<()>,
}

/// The side that opens and closes a session.
#[derive(Debug)]
enum SessionHolder {
    /// The terminal of this process. The terminal shows remote stops like stops from its own user.
    Terminal(mpsc::Sender<RemoteStop>),
    /// A client of this process.
    Client(ClientQuestions),
}

/// The sides that may answer the permission questions of a client's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientQuestions {
    /// The client and all watchers may answer.
    AnyWatcher,
    /// Only the client may answer. The client's task waits for the answer in a dedicated state.
    ClientOnly,
}

impl OwnedSessions {
    /// Creates an empty set of sessions. `folder` is the working directory of the process.
    pub fn new(command: &'static str, folder: PathBuf, scopes: RootOptions) -> Self {
        Self(Arc::new(OwnedInner {
            command,
            folder,
            store: Mutex::default(),
            started_at: (scopes.now)(),
            sessions: OnceLock::new(),
            watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
            scope: Scope::root("requests of other processes", scopes),
        }))
    }

    /// Sets the file of the sessions' store, or the URLs of its NATS servers.
    pub fn set_store(&self, store: Option<PathBuf>) {
        *self.0.store.lock() = store;
    }

    /// Registers the session of the terminal. Returns the receiver of this session's remote stops.
    pub(crate) fn take_terminal(
        &self,
        session: &Session,
    ) -> (Arc<OwnedSession>, mpsc::Receiver<RemoteStop>) {
        let (tx, stops) = mpsc::channel(STOPS_MAX);
        let (owned, _following) = self.follow(session, SessionHolder::Terminal(tx));
        let of_terminal = SessionsOfProcess::Terminal(Arc::clone(&owned));
        // Cannot fail: a terminal has one session.
        drop(self.0.sessions.set(of_terminal));
        (owned, stops)
    }

    /// Registers the sessions that clients open. Call this before the first session is opened.
    pub fn take_clients(&self, registry: &SessionRegistry, questions: ClientQuestions) {
        let of_clients = SessionsOfProcess::Clients(registry.clone());
        // Cannot fail: a process has one registry of sessions.
        drop(self.0.sessions.set(of_clients));
        let owned = self.clone();
        registry.subscribe(move |session| {
            let (owned, following) = owned.follow(session, SessionHolder::Client(questions));
            if following.is_ok() {
                session.set_part(owned);
            }
        });
    }

    /// Registers the commands of clients, in a process without sessions.
    pub fn take_commands(&self, commands: Arc<dyn OwnedCommands>) {
        // Cannot fail: a process has either sessions or commands.
        drop(self.0.sessions.set(SessionsOfProcess::Commands(commands)));
    }

    /// The commands of the process; `None` if it has sessions.
    pub(crate) fn commands(&self) -> Option<&Arc<dyn OwnedCommands>> {
        match self.0.sessions.get()? {
            SessionsOfProcess::Commands(commands) => Some(commands),
            SessionsOfProcess::Terminal(_) | SessionsOfProcess::Clients(_) => None,
        }
    }

    /// Follows the events of a session for watchers.
    fn follow(
        &self,
        session: &Session,
        holder: SessionHolder,
    ) -> (Arc<OwnedSession>, Result<(), NotStarted>) {
        let (announcer, announcements) = mpsc::channel(ANNOUNCEMENTS_MAX);
        let is_of_client = matches!(holder, SessionHolder::Client(_));
        let owned = Arc::new(OwnedSession {
            session: session.clone(),
            watched: WatchedSession::new(session.clone(), is_of_client),
            holder,
            announcer: Announcer::new(announcer),
            accepting: Mutex::default(),
        });
        let followed = Arc::clone(&owned);
        let events = session.observe();
        let spec = WorkSpec::new(ItemKind::Future, "events for watchers");
        let following = self.0.scope.spawn(spec, move |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at("events for watchers") => {}
                () = followed.watched.follow(events, announcements) => {}
            }
        });
        (owned, following.map(drop))
    }

    /// All sessions, in the order in which they were opened.
    fn all(&self) -> Vec<Arc<OwnedSession>> {
        match self.0.sessions.get() {
            None | Some(SessionsOfProcess::Commands(_)) => Vec::new(),
            Some(SessionsOfProcess::Terminal(owned)) => vec![Arc::clone(owned)],
            Some(SessionsOfProcess::Clients(registry)) => {
                let open = registry.list();
                open.iter().filter_map(Session::part).collect()
            }
        }
    }

    pub(crate) fn find(&self, id: &SessionId) -> Option<Arc<OwnedSession>> {
        match self.0.sessions.get()? {
            SessionsOfProcess::Terminal(owned) => {
                (owned.session.id() == id).then(|| Arc::clone(owned))
            }
            SessionsOfProcess::Clients(registry) => registry.find(id)?.part(),
            SessionsOfProcess::Commands(_) => None,
        }
    }

    /// A permit for a watcher; `None` if no permit is free.
    pub(crate) fn acquire_watch_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.watchers).try_acquire_owned().ok()
    }

    /// Scope of the work that serves requests of other processes.
    pub(crate) fn scope(&self) -> &Scope {
        &self.0.scope
    }

    /// Report of this process and its awake sessions. A sleeping session has no work, and any process can open it.
    pub(crate) fn report(&self) -> ProcessReport {
        let inner = &self.0;
        let open = self.all().into_iter();
        let awake = open.filter(|owned| owned.session.is_awake());
        ProcessReport {
            pid: std::process::id(),
            command: inner.command.to_owned(),
            folder: inner.folder.clone(),
            store: inner.store.lock().clone(),
            started_at: inner.started_at,
            is_starting: inner.sessions.get().is_none(),
            is_server: matches!(
                inner.sessions.get(),
                Some(SessionsOfProcess::Clients(_) | SessionsOfProcess::Commands(_))
            ),
            sessions: awake.map(|owned| owned.report()).collect(),
            commands: self.commands().map(|all| all.report()).unwrap_or_default(),
        }
    }

    /// Ends the announcements of all sessions.
    pub(crate) fn finish(&self) {
        for owned in self.all() {
            owned.announcer.finish();
        }
    }

    /// Waits until all watchers have disconnected, but at most [`WATCHERS_WAIT_MAX`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn watchers_gone(&self) {
        let all = u32::try_from(WATCHERS_MAX).unwrap_or(u32::MAX);
        let gone = self.0.watchers.acquire_many(all);
        drop(tokio::time::timeout(WATCHERS_WAIT_MAX, gone).await);
    }
}

impl OwnedSession {
    /// Sends a stop to the session's terminal, if a terminal holds the session.
    pub(crate) fn notify_stop(&self, stop: &SessionStop, covers_turn: bool) {
        match &self.holder {
            SessionHolder::Terminal(stops) => {
                let stop = stop.clone();
                // If the channel is full, the terminal misses the message. The stop takes effect anyway.
                let _sent_or_full = stops.try_send(RemoteStop { stop, covers_turn });
            }
            // The stop of a turn is in the session's log, and watchers read it there. This side therefore needs no
            // notification.
            SessionHolder::Client(_) => {}
        }
    }

    pub(crate) fn is_of_client(&self) -> bool {
        matches!(self.holder, SessionHolder::Client(_))
    }

    /// True if watchers may answer the session's permission questions.
    pub(crate) fn takes_answers(&self) -> bool {
        match self.holder {
            SessionHolder::Terminal(_) => true,
            SessionHolder::Client(questions) => questions == ClientQuestions::AnyWatcher,
        }
    }

    fn report(&self) -> OwnedSessionReport {
        let session = &self.session;
        let questions = session.questions().into_iter();
        let facts = self.watched.facts().filter(|_| session.is_busy());
        let preview = session.preview(&StopTarget::TurnAndBackground);
        let items = preview.items().iter();
        let ages = self.watched.ages(items.clone().map(|item| &*item.id));
        let work = items.cloned().zip(ages).map(|(item, age)| WorkReport {
            item,
            age_ms: age.map(whole_ms),
        });
        OwnedSessionReport {
            session_id: session.id().clone(),
            model: session.model_name().unwrap_or_default().to_owned(),
            is_busy: session.is_busy(),
            quiet_ms: whole_ms(self.watched.quiet_for()),
            questions: questions.map(|open| open.question.text).collect(),
            takes_answers: self.takes_answers(),
            turn: facts.map(|facts| RunningTurnReport {
                turn: facts.turn,
                age_ms: whole_ms(facts.age),
                usage: facts.usage,
            }),
            work: work.collect(),
        }
    }
}
