//! A system of simulated processes. A test sets the behaviour of each command beforehand, and can read the state of the
//! system at any moment. The system contains nothing real. Its only clock is tokio's clock, and two equal runs have
//! equal histories.
//!
//! ```
//! use std::time::Duration;
//! use allstop_testkit::{Behaviour, SimulatedSystem};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! let system = SimulatedSystem::new();
//! system.program("npm run dev", Behaviour::server("listening on 3000\n"));
//! system.program("make", Behaviour { exits: Some((Duration::from_secs(90), 2)), ..Behaviour::default() });
//! let containment = system.containment(); // for a `ShellConfig` or a `ProcessSpec`
//! # drop(containment);
//! assert!(system.running().is_empty());
//! # });
//! ```

mod behaviour;
mod pipe;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_process::{
    ContainedTree, ContainmentChoice, LaunchError, ProcessSpec, StatusSender, TreeLauncher,
    TreeMember,
};
use parking_lot::Mutex;
use tokio::time::Instant;

pub use behaviour::{Behaviour, SystemEvent, SystemEventKind};
use tree::{SystemTree, TreeState};

/// The first pid. The following pids count up from here. All of them look like real pids.
const FIRST_PID: u32 = 1001;

type Observer = Arc<dyn Fn(&SystemEvent) + Send + Sync>;

/// A system whose processes are simulated. Clones are the same system.
#[derive(Clone)]
pub struct SimulatedSystem(Arc<SystemInner>);

struct SystemInner {
    state: Mutex<SystemState>,
    observer: Mutex<Option<Observer>>,
}

struct SystemState {
    programs: BTreeMap<String, Behaviour>,
    has_keepers: bool,
    next_pid: u32,
    trees: Vec<TreeState>,
    history: Vec<SystemEvent>,
}

/// A process tree that was started, in its state at the time of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeView {
    /// Number of the tree. Trees count from 1 in the order of their starts.
    pub number: usize,
    /// The command that was given to the shell.
    pub command: Arc<str>,
    /// The marker of the call that started the tree: a text that all processes of the tree inherit.
    pub marker: Arc<str>,
    /// Members that are alive at the time of the call.
    pub living: Vec<TreeMember>,
}

impl SimulatedSystem {
    /// A system without processes. By default, every command prints nothing and exits immediately with code 0. Create
    /// the system inside the runtime whose clock it uses.
    #[expect(clippy::new_without_default, reason = "it reads the clock")]
    pub fn new() -> Self {
        Self(Arc::new(SystemInner {
            state: Mutex::new(SystemState {
                programs: BTreeMap::new(),
                has_keepers: false,
                next_pid: FIRST_PID,
                trees: Vec::new(),
                history: Vec::new(),
            }),
            observer: Mutex::new(None),
        }))
    }

    /// Sets the behaviour of a command. `command` is the text after `sh -c`, or, if there is no shell, the program and
    /// its arguments separated by spaces. Trees that were already started keep their behaviour.
    pub fn program(&self, command: &str, behaviour: Behaviour) {
        let mut state = self.0.state.lock();
        state.programs.insert(command.to_owned(), behaviour);
    }

    /// Gives each later tree a keeper (a process that watches the tree), so that the tree can be detached. The end of
    /// the keeper itself is not simulated.
    pub fn keep(&self) {
        self.0.state.lock().has_keepers = true;
    }

    /// Containment that starts processes in this system.
    pub fn containment(&self) -> ContainmentChoice {
        ContainmentChoice::Custom(Arc::new(self.clone()))
    }

    /// Sets the observer of all events. The system calls the observer synchronously: after the event has happened, but
    /// before any other code can notice the event. The observer may stop scopes and query this system.
    pub fn observe(&self, observer: impl Fn(&SystemEvent) + Send + Sync + 'static) {
        *self.0.observer.lock() = Some(Arc::new(observer));
    }

    /// All trees that were ever started, in the order of their starts.
    pub fn started(&self) -> Vec<TreeView> {
        let (state, now) = (self.0.state.lock(), Instant::now());
        let trees = state.trees.iter().enumerate();
        trees
            .map(|(index, tree)| tree.view(index + 1, now))
            .collect()
    }

    /// The trees with a living member, even if no driver (future that follows a tree) exists.
    pub fn running(&self) -> Vec<TreeView> {
        let mut trees = self.started();
        trees.retain(|tree| !tree.living.is_empty());
        trees
    }

    /// All events so far, including signals. If the driver of a tree was dropped, or if the tree was detached, the end
    /// of the tree is missing.
    pub fn history(&self) -> Vec<SystemEvent> {
        self.0.state.lock().history.clone()
    }

    /// Adds an event to the history and calls the observer. This function holds no lock during the call.
    fn happened(&self, tree: usize, kind: SystemEventKind) {
        let event = {
            let mut state = self.0.state.lock();
            let command = state.trees.get(tree).map(|tree| Arc::clone(&tree.command));
            let event = SystemEvent {
                at: Instant::now(),
                tree: tree + 1,
                command: command.expect("events come from trees that were started"),
                kind,
            };
            state.history.push(event.clone());
            event
        };
        let observer = self.0.observer.lock().clone();
        if let Some(observer) = observer {
            observer(&event);
        }
    }
}

impl TreeLauncher for SimulatedSystem {
    fn launch(
        self: Arc<Self>,
        spec: &ProcessSpec,
        status: StatusSender,
    ) -> Result<ContainedTree, LaunchError> {
        let (tree, pid) = {
            let mut state = self.0.state.lock();
            let behaviour = state.programs.get(command_of(spec).as_str()).cloned();
            let has_keeper = state.has_keepers;
            let tree = TreeState::start(spec, &behaviour.unwrap_or_default(), has_keeper, || {
                state.next_pid += 1;
                state.next_pid - 1
            });
            let pid = tree.main_pid();
            state.trees.push(tree);
            (state.trees.len() - 1, pid)
        };
        self.happened(tree, SystemEventKind::Started { pid });
        Ok(SystemTree::contain(Self::clone(&self), tree, status))
    }
}

impl fmt::Debug for SimulatedSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedSystem")
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}

/// The command in readable form: the text after `sh -c`, or the whole command line.
fn command_of(spec: &ProcessSpec) -> String {
    match spec.args.as_slice() {
        [flag, command] if flag == "-c" => command.to_string_lossy().into_owned(),
        _ => command_line_of(spec),
    }
}

fn command_line_of(spec: &ProcessSpec) -> String {
    let words = std::iter::once(&spec.program).chain(&spec.args);
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// An identity with an impossible boot id, so that no code takes it for a process of this machine.
fn identity(pid: u32) -> ProcessIdentity {
    ProcessIdentity {
        pid,
        start_ticks: u64::from(pid),
        boot_id: "simulated".into(),
        pid_namespace: None,
    }
}
