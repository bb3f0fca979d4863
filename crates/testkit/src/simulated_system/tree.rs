//! One simulated tree. Who lives follows from behaviour, signals and the time alone, whether or not a driver is polled:
//! the driver only shows what has happened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_scope::process::{ExitInfo, Member, ProcessSpec, Signal, SimulatedLife, SimulatedTree};
use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::{
    Behaviour, SimulatedSystem, SystemEventKind, TreeView, command_line_of, command_of, identity,
};

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

pub(super) struct TreeState {
    pub(super) command: Arc<str>,
    marker: Arc<str>,
    cwd: PathBuf,
    started_at: Instant,
    /// The main process first.
    processes: Vec<Process>,
    /// Wakes the driver: whatever it waits for may come sooner.
    signalled: Arc<Notify>,
    keeper: Option<u32>,
    is_let_go: bool,
}

struct Process {
    pid: u32,
    command_line: String,
    prints: Vec<(Instant, String)>,
    /// How many of them were shown.
    printed: usize,
    /// A signal ends its printing then: at its end, or at once where it was killed.
    silent_from: Option<Instant>,
    ends: Option<(Instant, ExitInfo)>,
    /// Whether its end was shown.
    ended: bool,
    term_takes: Option<Duration>,
    kill_takes: Duration,
}

/// What there is to show next.
enum Step {
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
            processes.push(Process::start(now, next_pid(), command_line, behaviour));
            let children = behaviour.children.iter();
            starting.extend(children.map(|(line, behaviour)| (line.clone(), behaviour)));
            next += 1;
        }
        Self {
            command: command_of(spec).into(),
            marker: Arc::clone(&spec.marker),
            cwd: spec.cwd.clone(),
            started_at: now,
            processes,
            signalled: Arc::default(),
            keeper: has_keeper.then(next_pid),
            is_let_go: false,
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
            cwd: self.cwd.clone(),
            started_at: self.started_at,
            living: self.living(now),
        }
    }

    fn living(&self, now: Instant) -> Vec<Member> {
        let living = self.processes.iter().filter(|process| process.lives(now));
        living
            .map(|process| Member {
                identity: identity(process.pid),
                command_line: process.command_line.clone(),
            })
            .collect()
    }

    /// Whether anybody was there to get it.
    fn signal(&mut self, signal: Signal, now: Instant) -> bool {
        let mut delivered = false;
        for process in &mut self.processes {
            if process.lives(now) {
                process.signal(signal, now);
                delivered = true;
            }
        }
        delivered
    }

    /// The earliest that has not been shown, and marks it as shown. Of one moment: what was printed before who ended,
    /// then by pid.
    fn step(&mut self, now: Instant) -> Step {
        let is_over = self.processes.iter().all(|process| process.ended);
        let processes = self.processes.iter_mut();
        let earliest = processes
            .enumerate()
            .filter_map(|(index, process)| Some((process.next()?, index, process)))
            .min_by_key(|(next, index, _)| (*next, *index));
        match earliest {
            None if is_over => Step::Show(SystemEventKind::Emptied),
            None => Step::Wait(None),
            Some(((at, _), ..)) if at > now => Step::Wait(Some(at)),
            Some((_, index, process)) => Step::Show(process.show(index == 0)),
        }
    }
}

impl Process {
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

    fn signal(&mut self, signal: Signal, now: Instant) {
        let (takes, number) = match signal {
            Signal::Term => (self.term_takes, SIGTERM),
            Signal::Kill => (Some(self.kill_takes), SIGKILL),
        };
        let ends = takes.map(|takes| now + takes);
        if let Some(ends) = ends
            && self.lives(ends)
        {
            self.ends = Some((ends, ExitInfo::Signal(number)));
        }
        let silent = match signal {
            Signal::Term => ends,
            Signal::Kill => Some(now),
        };
        self.silent_from = self.silent_from.into_iter().chain(silent).min();
    }

    /// When there is something to show, and whether that is its end.
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

/// The way to one tree of a system.
pub(super) struct Tree {
    pub(super) system: SimulatedSystem,
    pub(super) index: usize,
}

impl Tree {
    fn with<T>(&self, f: impl FnOnce(&mut TreeState) -> T) -> T {
        let mut state = self.system.0.state.lock();
        let tree = state.trees.get_mut(self.index);
        f(tree.expect("a tree is never removed"))
    }

    async fn show_all(&self, seen: &SimulatedLife) {
        let signalled = self.with(|tree| Arc::clone(&tree.signalled));
        loop {
            match self.with(|tree| tree.step(Instant::now())) {
                Step::Show(event) => {
                    self.system.happened(self.index, event.clone());
                    match event {
                        SystemEventKind::Printed { text, .. } => seen.print(text.as_bytes()),
                        SystemEventKind::Ended {
                            is_main: true,
                            exit,
                            ..
                        } => seen.exit(exit),
                        SystemEventKind::Emptied => return,
                        _ => {}
                    }
                }
                Step::Wait(None) => signalled.notified().await,
                Step::Wait(Some(at)) => tokio::select! {
                    biased;
                    () = signalled.notified() => {}
                    () = sleep_until(at) => {}
                },
            }
        }
    }
}

impl SimulatedTree for Tree {
    fn main(&self) -> ProcessIdentity {
        identity(self.with(|tree| tree.main_pid()))
    }

    fn signal(&self, signal: Signal) {
        if self.with(|tree| tree.signal(signal, Instant::now())) {
            self.with(|tree| tree.signalled.notify_one());
            self.system
                .happened(self.index, SystemEventKind::Signalled(signal));
        }
    }

    fn members(&self) -> Vec<Member> {
        self.with(|tree| tree.living(Instant::now()))
    }

    fn live(self: Arc<Self>, seen: SimulatedLife) -> BoxFuture<'static, ()> {
        // Made here, for the future may be dropped before it is ever polled.
        let watch = Watch(Arc::clone(&self));
        Box::pin(async move {
            let _watch = watch;
            self.show_all(&seen).await;
        })
    }

    fn keeper(&self) -> Option<ProcessIdentity> {
        self.with(|tree| tree.keeper).map(identity)
    }

    fn let_go(&self) {
        self.with(|tree| tree.is_let_go = true);
    }
}

/// Nothing runs unwatched that was not let go. Once nothing is left, its end changes nothing.
struct Watch(Arc<Tree>);

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.0.with(|tree| tree.is_let_go) {
            self.0.signal(Signal::Kill);
        }
    }
}
