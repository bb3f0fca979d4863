//! A session on disk with real shells.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::{Agent, Settings, TurnError};
use allstop_core::message::check_history;
use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::turn::SessionState;
use allstop_core::{CallId, Cause, CauseKind};
use allstop_log::session::{decode, stream_of};
use allstop_log::{Log, SqliteLog, Version, read_session};
use allstop_model::{Model, Reply, ScriptedModel};
use allstop_scope::{RootOptions, Scope};
use allstop_session::{
    AgentRequest, AgentSource, Session, SessionAgent, SessionEvent, SessionOptions, Sessions,
    Subscription,
};
use allstop_tools::{
    BackgroundHost, OutputFolder, ShellConfig, Tool, ToolRegistry, Workspace, builtin_tools,
};
use futures::future::BoxFuture;
use tempfile::TempDir;

/// A limit for waits that end by themselves. Generous, because a machine under load is slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Maximum time of a stop of work that handles stops. People perceive this time as immediate.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(1);

pub(crate) fn user() -> Cause {
    Cause::new(CauseKind::User)
}

pub(crate) fn in_order(replies: Vec<Reply>) -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::in_order_of_calls(replies).keeping_requests())
}

/// An agent with a shell in its session.
#[derive(Debug)]
struct WithShell {
    model: Arc<dyn Model>,
    settings: Settings,
    tools: Vec<Arc<dyn Tool>>,
    folder: PathBuf,
}

impl AgentSource for WithShell {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        Box::pin(async move {
            let host: Arc<dyn BackgroundHost> = Arc::clone(&request.background) as _;
            let workspace = Arc::new(Workspace::new(&self.folder).expect("the folder is there"));
            let spill = self.folder.join("spill");
            fs::create_dir_all(&spill).expect("room on the disk");
            let shell = ShellConfig::new(&self.folder, Arc::new(OutputFolder::new(spill)));
            let mut tools = ToolRegistry::new();
            let own = self.tools.iter().cloned();
            for tool in builtin_tools(&workspace, shell, &host)
                .into_iter()
                .chain(own)
            {
                tools.register(tool).expect("names differ");
            }
            let agent = Agent::new(Arc::clone(&self.model))
                .tools(tools)
                .settings(self.settings.clone())
                .build();
            Ok(SessionAgent {
                agent,
                resources: None,
            })
        })
    }
}

pub(crate) struct OnDisk {
    pub(crate) folder: TempDir,
    pub(crate) root: Scope,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) session: Session,
}

pub(crate) struct Parts {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) settings: Settings,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) options: SessionOptions,
}

impl Parts {
    pub(crate) fn of(model: Arc<dyn Model>) -> Self {
        Self {
            model,
            settings: Settings::default(),
            tools: Vec::new(),
            options: SessionOptions::default(),
        }
    }
}

impl OnDisk {
    pub(crate) async fn new(parts: Parts) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = SqliteLog::open(folder.path().join("store.db")).await;
        let log: Arc<dyn Log> = Arc::new(store.expect("a store"));
        let root = Scope::root("test", RootOptions::single_runtime());
        let source = WithShell {
            model: parts.model,
            settings: parts.settings,
            tools: parts.tools,
            folder: folder.path().to_owned(),
        };
        let sessions = Sessions::new(
            Arc::clone(&log),
            root.clone(),
            Arc::new(source),
            parts.options,
        );
        let session = sessions.create(None, "/tmp").await.expect("a session");
        Self {
            folder,
            root,
            log,
            session,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Fold of the log, with a valid history.
    pub(crate) async fn state(&self) -> SessionState {
        let (state, _) = read_session(&*self.log, self.session.id())
            .await
            .expect("readable");
        let messages = &state.conversation().messages;
        check_history(messages.iter().map(AsRef::as_ref)).expect("a valid history");
        state
    }

    /// Outcomes of a call in the log, one for each record.
    pub(crate) async fn records_of(&self, call: &CallId) -> Vec<CallOutcome> {
        let stream = stream_of(self.session.id());
        let records = self
            .log
            .read(&stream, Version(1), 10_000)
            .await
            .expect("readable");
        let records = records.into_iter();
        let ends = records.filter_map(|(_, bytes)| match decode(&bytes).expect("readable") {
            Some(SessionRecord::CallFinished { id, outcome, .. }) if id == *call => Some(outcome),
            _ => None,
        });
        ends.collect()
    }

    /// Waits for the pid that a command writes to this file.
    pub(crate) async fn pid_in(&self, name: &str) -> i32 {
        let path = self.path(name);
        until(|| fs::read_to_string(&path).ok()?.trim().parse().ok()).await
    }

    /// Closes the session and checks that no process is left.
    pub(crate) async fn close(self) {
        let began = Instant::now();
        let receipt = self.session.close().await;
        assert!(receipt.quiet(), "{receipt:?}");
        assert!(began.elapsed() < LIMIT);
        assert!(self.root.is_quiet());
    }
}

/// True if the process exists and is not a zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

pub(crate) fn bytes_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

/// Polls until there is a result.
pub(crate) async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it never came");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) async fn event<T>(
    events: &mut Subscription,
    mut wanted: impl FnMut(&SessionEvent) -> Option<T>,
) -> T {
    let wait = async {
        loop {
            let event = events
                .next()
                .await
                .expect("readable")
                .expect("the session is open");
            if let Some(found) = wanted(&event) {
                return found;
            }
        }
    };
    tokio::time::timeout(LIMIT, wait)
        .await
        .expect("the event comes")
}
