//! The stage of a run on paused time: hands out the parts of an agent with points in them.

mod child_processes;
pub(crate) mod clockwork;
mod failing_store;
mod own;
mod parts;
mod planned_stops;
mod processes;
mod scenario;
mod session_play;
mod session_under_way;
mod subject;

pub(crate) use child_processes::ChildProcesses;
pub(crate) use parts::{INSIDE, PartWatch};
pub(crate) use planned_stops::{PlannedStops, StopReceipt, StoppableRun, plan};
pub(crate) use scenario::Played;
pub use scenario::{Scenario, Setup};
pub use session_play::ScriptedUser;
pub(crate) use session_play::SessionPlay;
pub use session_under_way::FOLLOW_UP;
pub use subject::{RunningSubject, Subject, SubjectPlay};

use std::sync::Arc;

use allstop_agent::{Agent, AgentBuilder, Guardrail, Hook, SessionBackground};
use allstop_core::Timestamp;
use allstop_log::Log;
use allstop_model::{Model, Reply, ScriptedModel};
use allstop_scope::{RootOptions, Scope, ScopeOptions};
use allstop_session::AgentRequest;
use allstop_tools::{
    BackgroundWork, OutputFolder, Prompter, ShellConfig, ShellTool, Tool, ToolRegistry,
};

use crate::SimulatedSystem;
use crate::observe::{Moment, RECORD, RunWitness, WitnessNotes};
use crate::violation::{FailureClass, Invariant};
use failing_store::FailingStore;
use own::OwnChecks;
use processes::Processes;

/// Stage on which a scenario builds its agent anew for each run. Parts from here have points before, inside and after
/// their work; others are explored only at the polls around it.
///
/// Clones are the same stage.
#[derive(Debug, Clone)]
pub struct RunStage {
    pub(crate) watch: PartWatch,
    pub(crate) root: Scope,
    pub(crate) session: Scope,
    background: Arc<SessionBackground>,
    processes: Arc<Processes>,
    pub(crate) store: Arc<FailingStore>,
    pub(crate) own: OwnChecks,
}

impl RunStage {
    /// Must be called in the runtime of the run.
    pub(crate) fn new(log: Arc<dyn Log>) -> Self {
        let watch = PartWatch::new();
        let (root, session) = scopes();
        let below = session
            .child("session/explored/background", ScopeOptions::default())
            .expect("nothing is stopped yet");
        Self {
            processes: Arc::new(Processes::new(&watch)),
            root,
            session,
            background: SessionBackground::new(below, 1, Box::new(Vec::new)),
            store: FailingStore::over(log, &watch),
            watch,
            own: OwnChecks::default(),
        }
    }

    /// A model that gives these replies, one a step.
    pub fn model(&self, replies: Vec<Reply>) -> Arc<dyn Model> {
        self.watch_model(Arc::new(ScriptedModel::new(replies)))
    }

    /// A model of your own. It must not wait for anything but tokio's timers.
    pub fn watch_model(&self, inner: Arc<dyn Model>) -> Arc<dyn Model> {
        self.watch.part(inner)
    }

    /// A tool.
    pub fn tool(&self, inner: impl Tool + 'static) -> Arc<dyn Tool> {
        self.watch_tool(Arc::new(inner))
    }

    /// The same, of one that is shared.
    pub fn watch_tool(&self, inner: Arc<dyn Tool>) -> Arc<dyn Tool> {
        self.watch.part(inner)
    }

    /// Tools, as a registry.
    ///
    /// # Panics
    /// If two have one name.
    pub fn tools(&self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> ToolRegistry {
        let mut registry = ToolRegistry::new();
        for tool in tools {
            registry.register(tool).expect("the names of tools differ");
        }
        registry
    }

    /// The shell tool, whose commands are programs of [`RunStage::system`]. What outlives its call is background work
    /// of the session.
    pub fn shell(&self) -> Arc<dyn Tool> {
        self.shell_of(&self.background)
    }

    /// The shell tool of a session that has its own background work.
    pub fn shell_of(&self, background: &Arc<SessionBackground>) -> Arc<dyn Tool> {
        // Output is kept in memory alone: the names of files would not be the same in each run.
        let nowhere = Arc::new(OutputFolder::new("/dev/null/output"));
        let config = ShellConfig {
            containment: self.system().containment(),
            ..ShellConfig::new("/", nowhere)
        };
        self.tool(ShellTool::new(config, Arc::clone(background) as _))
    }

    /// The system that the shell's commands run on: say there what each does.
    pub fn system(&self) -> &SimulatedSystem {
        self.processes.system()
    }

    /// A hook.
    pub fn hook(&self, inner: impl Hook + 'static) -> Arc<dyn Hook> {
        self.watch.part(Arc::new(inner) as Arc<dyn Hook>)
    }

    /// A guardrail.
    pub fn guardrail(&self, inner: impl Guardrail + 'static) -> Arc<dyn Guardrail> {
        self.watch.part(Arc::new(inner) as Arc<dyn Guardrail>)
    }

    /// Somebody who answers permission questions.
    pub fn prompter(&self, inner: impl Prompter + 'static) -> Arc<dyn Prompter> {
        self.watch_prompter(Arc::new(inner))
    }

    /// The same, of one that is shared: that of a session, who asks its subscribers.
    pub fn watch_prompter(&self, inner: Arc<dyn Prompter>) -> Arc<dyn Prompter> {
        self.watch.part(inner)
    }

    /// An agent that is explored: with its clock as a point too, which stands before each record is made.
    pub fn agent(&self, agent: AgentBuilder, prompt: &str) -> Setup {
        Setup::new(self.build(agent), prompt)
    }

    /// The agent of a session, with its clock as a point.
    pub fn build(&self, agent: AgentBuilder) -> Agent {
        agent.clock(self.clock()).build()
    }

    /// A session that is explored: what its user does, and how its agent is built each time when it is opened.
    pub fn session<F>(
        &self,
        script: impl Fn(ScriptedUser) -> F + Send + Sync + 'static,
        agent: impl Fn(&RunStage, &AgentRequest) -> Agent + Send + Sync + 'static,
    ) -> Setup
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Setup::of_session(SessionPlay::new(self, script, agent))
    }

    /// The clock of records: a point, and always the same time.
    fn clock(&self) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
        let points = self.watch.points.clone();
        Arc::new(move || {
            points.reach(Moment::Before, RECORD, "");
            Timestamp::from_unix_ms(0)
        })
    }

    /// The background work of the session.
    pub fn background(&self) -> &Arc<SessionBackground> {
        &self.background
    }

    /// A check of your own: whether what this run did to the world is whole, nothing or everything of it. It is asked
    /// when the run is over and every stop of it answered, and again at the very end: what was whole stays so.
    pub fn check(
        &self,
        name: &'static str,
        check: impl Fn() -> Result<(), String> + Send + 'static,
    ) {
        let promise = (Invariant::NoHalfTurn, FailureClass::WorkAfterStop);
        self.own.add(name, promise, check);
    }

    /// A point of your own: whatever stops there, stops before this returns.
    pub fn reach(&self, moment: Moment, what: &'static str) {
        self.watch.points.reach(moment, what, "");
    }

    /// Witness of the run, for noting what your own parts do.
    pub fn witness(&self) -> &RunWitness {
        &self.watch.witness
    }

    /// The notes of the run, when all is over: processes that are gone have ended, and background work has its id.
    pub(crate) fn notes(&self, works: &[Arc<BackgroundWork>]) -> WitnessNotes {
        self.processes.bury();
        let mut notes = self.watch.witness.notes();
        self.processes.name_background(works, &mut notes.lived);
        notes
    }

    /// Stops of this run, none yet.
    pub(crate) fn planned_stops(&self) -> PlannedStops {
        PlannedStops::new(&self.watch, &self.store)
    }
}

/// A process with one session in it.
pub(crate) fn scopes() -> (Scope, Scope) {
    let mut options = RootOptions::current();
    options.now = Arc::new(|| Timestamp::from_unix_ms(0));
    let root = Scope::root("process", options);
    let session = root
        .child("session/explored", ScopeOptions::default())
        .expect("nothing is stopped yet");
    (root, session)
}
