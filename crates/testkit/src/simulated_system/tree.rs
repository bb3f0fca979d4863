//! One simulated process tree. Behaviour, signals and time alone decide which members are alive. The driver, a future
//! that follows the tree, only reports the events, and need not be polled.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{Containment, EndProof};
use allstop_process::{
    ContainedTree, DetachTreeError, ExitInfo, ProcessDriver, ProcessSignal, ProcessSpec,
    StatusSender, TreeContainment, TreeMember,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::pipe::MemoryPipe;
use super::{
    Behaviour, SimulatedSystem, SystemEventKind, TreeView, command_line_of, command_of, identity,
};

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

pub(super) struct TreeState {
    pub(super) command: Arc<str>,
    marker: Arc<str>,
    /// The processes. The main process is the first one.
    processes: Vec<SimulatedProcess>,
    /// Wakes the driver after a signal, because the next event may now come sooner.
    signalled: Arc<Notify>,
    keeper: Option<u32>,
    is_detached: bool,
}

struct SimulatedProcess {
    pid: u32,
    command_line: String,
    prints: Vec<(Instant, String)>,
    /// Number of prints that were reported.
    printed: usize,
    /// Time after which the process prints nothing because of a signal. This is the end of the process, or, after a
    /// kill, the time of the kill.
    silent_from: Option<Instant>,
    ends: Option<(Instant, ExitInfo)>,
    /// True if the end of the process was reported.
    ended: bool,
    term_takes: Option<Duration>,
    kill_takes: Duration,
}

/// Next action of the driver.
enum TreeStep {
    Show(SystemEventKind),
    Wait(Option<Instant>),
}

impl TreeState {
    pub(super) fn start(
        spec: &ProcessSpec,
        behaviour: &Behaviour,
        has_keeper: bool,
        mut next_pid: impl FnMut() -> u32,
    ) -> Self {
        let now = Instant::now();
        let mut processes = Vec::new();
        let mut starting = vec![(command_line_of(spec), behaviour)];
        let mut next = 0;
        while let Some((command_line, behaviour)) = starting.get(next).cloned() {
            processes.push(SimulatedProcess::start(
                now,
                next_pid(),
                command_line,
                behaviour,
            ));
            let children = behaviour.children.iter();
            starting.extend(children.map(|(line, behaviour)| (line.clone(), behaviour)));
            next += 1;
        }
        Self {
            command: command_of(spec).into(),
            marker: Arc::clone(&spec.marker),
            processes,
            signalled: Arc::default(),
            keeper: has_keeper.then(next_pid),
            is_detached: false,
        }
    }

    pub(super) fn main_pid(&self) -> u32 {
        let main = self.processes.first();
        main.expect("a tree starts with its main process").pid
    }

    pub(super) fn view(&self, number: usize, now: Instant) -> TreeView {
        TreeView {
            number,
            command: Arc::clone(&self.command),
            marker: Arc::clone(&self.marker),
            living: self.living(now),
        }
    }

    fn living(&self, now: Instant) -> Vec<TreeMember> {
        let living = self.processes.iter().filter(|process| process.lives(now));
        living
            .map(|process| TreeMember {
                identity: identity(process.pid),
                command_line: process.command_line.clone(),
            })
            .collect()
    }

    /// Delivers a signal; returns `false` if no living member received it.
    fn signal(&mut self, signal: ProcessSignal, now: Instant) -> bool {
        let mut delivered = false;
        for process in &mut self.processes {
            if process.lives(now) {
                process.signal(signal, now);
                delivered = true;
            }
        }
        delivered
    }

    /// Takes the earliest event that was not yet reported. If several events have the same time, prints come before
    /// ends, and then lower pids come first.
    fn step(&mut self, now: Instant) -> TreeStep {
        let is_over = self.processes.iter().all(|process| process.ended);
        let processes = self.processes.iter_mut();
        let earliest = processes
            .enumerate()
            .filter_map(|(index, process)| Some((process.next()?, index, process)))
            .min_by_key(|(next, index, _)| (*next, *index));
        match earliest {
            None if is_over => TreeStep::Show(SystemEventKind::Emptied),
            None => TreeStep::Wait(None),
            Some(((at, _), ..)) if at > now => TreeStep::Wait(Some(at)),
            Some((_, index, process)) => TreeStep::Show(process.show(index == 0)),
        }
    }
}

impl SimulatedProcess {
    fn start(now: Instant, pid: u32, command_line: String, behaviour: &Behaviour) -> Self {
        let prints = behaviour.prints.iter();
        Self {
            pid,
            command_line,
            prints: prints
                .map(|(after, text)| (now + *after, text.clone()))
                .collect(),
            printed: 0,
            silent_from: None,
            ends: behaviour
                .exits
                .map(|(after, code)| (now + after, ExitInfo::Code(code))),
            ended: false,
            term_takes: behaviour.term_takes,
            kill_takes: behaviour.kill_takes,
        }
    }

    fn lives(&self, now: Instant) -> bool {
        self.ends.is_none_or(|(at, _)| at > now)
    }

    fn signal(&mut self, signal: ProcessSignal, now: Instant) {
        let (takes, number) = match signal {
            ProcessSignal::Term => (self.term_takes, SIGTERM),
            ProcessSignal::Kill => (Some(self.kill_takes), SIGKILL),
        };
        let ends = takes.map(|takes| now + takes);
        if let Some(ends) = ends
            && self.lives(ends)
        {
            self.ends = Some((ends, ExitInfo::Signal(number)));
        }
        let silent = match signal {
            ProcessSignal::Term => ends,
            ProcessSignal::Kill => Some(now),
        };
        self.silent_from = self.silent_from.into_iter().chain(silent).min();
    }

    /// Time of the next event, and true if this event is the end of the process.
    fn next(&self) -> Option<(Instant, bool)> {
        let end = self.ends.map(|(at, _)| at);
        let silent = |at: Instant| {
            end.is_some_and(|end| at > end) || self.silent_from.is_some_and(|from| at >= from)
        };
        let print = self.prints.get(self.printed).map(|(at, _)| *at);
        match print.filter(|at| !silent(*at)) {
            Some(at) => Some((at, false)),
            None if self.ended => None,
            None => Some((end?, true)),
        }
    }

    fn show(&mut self, is_main: bool) -> SystemEventKind {
        let pid = self.pid;
        match (self.next(), self.prints.get(self.printed), self.ends) {
            (Some((_, false)), Some((_, text)), _) => {
                self.printed += 1;
                let text = text.clone();
                SystemEventKind::Printed { pid, text }
            }
            (_, _, ends) => {
                self.ended = true;
                let exit = ends.map_or(ExitInfo::Unknown, |(_, exit)| exit);
                SystemEventKind::Ended { pid, is_main, exit }
            }
        }
    }
}

/// One contained tree of a simulated system. The tree has the ordinary handle, driver and reader, but no real process.
/// The tree replaces the real containment `group_and_marker`, and makes the same claims about processes. These claims
/// come from the simulation, and not from `/proc`.
#[derive(Clone)]
pub(super) struct SystemTree {
    system: SimulatedSystem,
    index: usize,
    detach_tx: mpsc::Sender<oneshot::Sender<()>>,
    keeper: Option<ProcessIdentity>,
}

impl SystemTree {
    /// Starts a tree and its driver.
    pub(super) fn contain(
        system: SimulatedSystem,
        index: usize,
        status: StatusSender,
    ) -> ContainedTree {
        let (detach_tx, mut detach_rx) = mpsc::channel(1);
        let mut tree = Self {
            system,
            index,
            detach_tx,
            keeper: None,
        };
        tree.keeper = tree.with(|tree| tree.keeper).map(identity);
        status.started(identity(tree.with(|tree| tree.main_pid())));
        let pipe = MemoryPipe::default();
        let output = pipe.clone();
        // Created before the future, because the driver may be dropped before its first poll.
        let watch = KillOnLoss(tree.clone());
        let driver = ProcessDriver::new(async move {
            tokio::select! {
                biased;
                () = watch.0.show_all(&status, &pipe) => status.emptied(EndProof::ProcessGroupEmpty),
                Some(reply) = detach_rx.recv() => {
                    watch.0.with(|tree| tree.is_detached = true);
                    status.detached();
                    // The caller may have stopped waiting.
                    let _unheard = reply.send(());
                }
            }
        });
        ContainedTree {
            containment: Arc::new(tree),
            driver,
            output: Box::new(output),
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut TreeState) -> T) -> T {
        let mut state = self.system.0.state.lock();
        let tree = state.trees.get_mut(self.index);
        f(tree.expect("a tree is never removed"))
    }

    fn signal(&self, signal: ProcessSignal) {
        if self.with(|tree| tree.signal(signal, Instant::now())) {
            self.with(|tree| tree.signalled.notify_one());
            self.system
                .happened(self.index, SystemEventKind::Signalled(signal));
        }
    }

    /// Reports the events of the tree until no member is left.
    async fn show_all(&self, status: &StatusSender, output: &MemoryPipe) {
        let signalled = self.with(|tree| Arc::clone(&tree.signalled));
        loop {
            match self.with(|tree| tree.step(Instant::now())) {
                TreeStep::Show(event) => {
                    self.system.happened(self.index, event.clone());
                    match event {
                        SystemEventKind::Printed { text, .. } => output.push(text.as_bytes()),
                        SystemEventKind::Ended {
                            is_main: true,
                            exit,
                            ..
                        } => status.exited(exit),
                        SystemEventKind::Emptied => return,
                        _ => {}
                    }
                }
                TreeStep::Wait(None) => signalled.notified().await,
                TreeStep::Wait(Some(at)) => tokio::select! {
                    biased;
                    () = signalled.notified() => {}
                    () = sleep_until(at) => {}
                },
            }
        }
    }
}

impl TreeContainment for SystemTree {
    fn level(&self) -> Containment {
        Containment::GroupAndMarker
    }

    fn keeper(&self) -> Option<&ProcessIdentity> {
        self.keeper.as_ref()
    }

    fn ask(&self) {
        self.signal(ProcessSignal::Term);
    }

    fn force(&self) {
        self.signal(ProcessSignal::Kill);
    }

    fn members(&self) -> BoxFuture<'static, Vec<TreeMember>> {
        let tree = self.clone();
        async move { tree.with(|tree| tree.living(Instant::now())) }.boxed()
    }

    fn known_members(&self) -> Vec<ProcessIdentity> {
        let members = self.with(|tree| tree.living(Instant::now()));
        members.into_iter().map(|member| member.identity).collect()
    }

    fn detach(&self, _output_file: &Path) -> BoxFuture<'static, Result<(), DetachTreeError>> {
        if self.keeper.is_none() {
            return std::future::ready(Err(DetachTreeError::NeedsKeeper)).boxed();
        }
        let (reply, answer) = oneshot::channel();
        let requests = self.detach_tx.clone();
        let detach = async move {
            let sent = requests.send(reply).await;
            sent.map_err(|_| DetachTreeError::NotRunning)?;
            answer.await.map_err(|_| DetachTreeError::NotRunning)
        };
        detach.boxed()
    }
}

/// Kills a tree when its driver is dropped, unless the tree was detached. If no member is alive, nothing happens.
struct KillOnLoss(SystemTree);

impl Drop for KillOnLoss {
    fn drop(&mut self) {
        if !self.0.with(|tree| tree.is_detached) {
            self.0.signal(ProcessSignal::Kill);
        }
    }
}
