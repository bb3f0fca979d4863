//! Provides the parts of an agent for a run on a paused clock. Each part has points: moments at which the explorer can
//! stop the run.

mod child_processes;
pub(crate) mod clockwork;
mod failing_store;
mod parts;
mod planned_stops;
mod processes;
mod scenario;
mod scenario_checks;
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
use processes::Processes;
use scenario_checks::ScenarioChecks;

/// Stage on which a scenario builds a new agent for each run. Parts from the stage have points before, inside and after
/// their work. Other parts are explored only before and after each of their polls.
///
/// Clones share the stage.
#[derive(Debug, Clone)]
pub struct RunStage {
    pub(crate) watch: PartWatch,
    pub(crate) root: Scope,
    pub(crate) session: Scope,
    background: Arc<SessionBackground>,
    processes: Arc<Processes>,
    pub(crate) store: Arc<FailingStore>,
    pub(crate) own: ScenarioChecks,
}

impl RunStage {
    /// Call this function in the runtime of the run.
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
            own: ScenarioChecks::default(),
        }
    }

    /// A model that gives these replies, one for each step.
    pub fn model(&self, replies: Vec<Reply>) -> Arc<dyn Model> {
        self.watch_model(Arc::new(ScriptedModel::new(replies)))
    }

    /// Adds points to your model. The model may wait for nothing except tokio's timers.
    pub fn watch_model(&self, inner: Arc<dyn Model>) -> Arc<dyn Model> {
        self.watch.part(inner)
    }

    /// Adds points to a tool.
    pub fn tool(&self, inner: impl Tool + 'static) -> Arc<dyn Tool> {
        self.watch_tool(Arc::new(inner))
    }

    /// Like [`RunStage::tool`], but for a shared tool.
    pub fn watch_tool(&self, inner: Arc<dyn Tool>) -> Arc<dyn Tool> {
        self.watch.part(inner)
    }

    /// Creates a registry with these tools.
    ///
    /// # Panics
    /// Panics if two tools have the same name.
    pub fn tools(&self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> ToolRegistry {
        let mut registry = ToolRegistry::new();
        for tool in tools {
            registry.register(tool).expect("the names of tools differ");
        }
        registry
    }

    /// The shell tool. Its commands are programs of [`RunStage::system`]. A command that outlives its call is
    /// background work of the session.
    pub fn shell(&self) -> Arc<dyn Tool> {
        self.shell_of(&self.background)
    }

    /// The shell tool of a session that has its own background work.
    pub fn shell_of(&self, background: &Arc<SessionBackground>) -> Arc<dyn Tool> {
        // Output is kept only in memory, because the names of files would be different in each run.
        let nowhere = Arc::new(OutputFolder::new("/dev/null/output"));
        let config = ShellConfig::new("/", nowhere).containment(self.system().containment());
        self.tool(ShellTool::new(config, Arc::clone(background) as _))
    }

    /// The simulated system that runs the shell's commands. Set the behaviour of each command there.
    pub fn system(&self) -> &SimulatedSystem {
        self.processes.system()
    }

    /// Adds points to a hook.
    pub fn hook(&self, inner: impl Hook + 'static) -> Arc<dyn Hook> {
        self.watch.part(Arc::new(inner) as Arc<dyn Hook>)
    }

    /// Adds points to a guardrail.
    pub fn guardrail(&self, inner: impl Guardrail + 'static) -> Arc<dyn Guardrail> {
        self.watch.part(Arc::new(inner) as Arc<dyn Guardrail>)
    }

    /// Adds points to a prompter, which answers permission questions.
    pub fn prompter(&self, inner: impl Prompter + 'static) -> Arc<dyn Prompter> {
        self.watch_prompter(Arc::new(inner))
    }

    /// Like [`RunStage::prompter`], but for a shared prompter. An example is the prompter of a session, which sends the
    /// questions to subscribers.
    pub fn watch_prompter(&self, inner: Arc<dyn Prompter>) -> Arc<dyn Prompter> {
        self.watch.part(inner)
    }

    /// An agent to explore. The agent reads its clock before it creates a record, and each reading is a point.
    pub fn agent(&self, agent: AgentBuilder, prompt: &str) -> Setup {
        Setup::new(self.build(agent), prompt)
    }

    /// The agent of a session. Each reading of its clock is a point.
    pub fn build(&self, agent: AgentBuilder) -> Agent {
        agent.clock(self.clock()).build()
    }

    /// A session to explore, which consists of the script of its user and the builder of its agent. The builder is
    /// called whenever the session is opened.
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

    /// The clock that gives records their time. Each reading is a point, and every reading returns the same time.
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

    /// Adds your check. The check verifies that the effects of this run outside the process are complete, or do not
    /// exist. The check runs when the run is over and every stop has its answer. The check runs again at the very end,
    /// because the effects must not change any more.
    pub fn check(
        &self,
        name: &'static str,
        check: impl Fn() -> Result<(), String> + Send + 'static,
    ) {
        let promise = (Invariant::NoHalfTurn, FailureClass::WorkAfterStop);
        self.own.add(name, promise, check);
    }

    /// Adds a point. If the explorer stops the run at this point, the stop happens before this method returns.
    pub fn reach(&self, moment: Moment, event: &'static str) {
        self.watch.points.reach(moment, event, "");
    }

    /// Witness of the run, for the notes of your own parts.
    pub fn witness(&self) -> &RunWitness {
        &self.watch.witness
    }

    /// The notes of the run, completed after its end. A process that no longer exists is noted as ended, and background
    /// work gets its id.
    pub(crate) fn notes(&self, works: &[Arc<BackgroundWork>]) -> WitnessNotes {
        self.processes.end_unwatched();
        let mut notes = self.watch.witness.notes();
        self.processes.name_background(works, &mut notes.work);
        notes
    }

    /// Creates an empty list of the stops of this run.
    pub(crate) fn planned_stops(&self) -> PlannedStops {
        PlannedStops::new(&self.watch, &self.store)
    }
}

/// Creates the scopes of a process with one session.
pub(crate) fn scopes() -> (Scope, Scope) {
    let mut options = RootOptions::single_runtime();
    options.now = Arc::new(|| Timestamp::from_unix_ms(0));
    let root = Scope::root("process", options);
    let session = root
        .child("session/explored", ScopeOptions::default())
        .expect("nothing is stopped yet");
    (root, session)
}
