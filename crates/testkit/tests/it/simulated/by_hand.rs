//! Trees that exist only in memory, under the handle, driver and reader of real ones.

use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{Containment, EndMethod, EndProof, ItemKind, ItemState};
use allstop_process::{
    ContainedTree, ContainmentChoice, ExitInfo, LaunchError, OutputReader, ProcessSignal,
    ProcessSpec, ProcessWaitError, StatusSender, TreeLauncher, TreeMember, launch,
};
use allstop_scope::{GRACE_DEFAULT, Process, Scope, WorkSpec};
use allstop_testkit::{SimulatedLife, SimulatedTree, contain};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::on_paused_time;
use super::system::{root, stop};

/// One tree of one process, which the test plays by hand.
#[derive(Debug, Default)]
struct ByHand {
    /// Signal that ends it.
    mortal_to: Option<ProcessSignal>,
    signals: Mutex<Vec<ProcessSignal>>,
    life: Mutex<Option<SimulatedLife>>,
    gone: Notify,
}

/// Launches the tree; a clone of the tree's own pointer.
#[derive(Debug)]
struct LaunchesByHand(Arc<ByHand>);

const LIVES: &str = "it was begun and has not ended";

impl ByHand {
    fn mortal_to(signal: ProcessSignal) -> Arc<Self> {
        let mortal_to = Some(signal);
        Arc::new(Self {
            mortal_to,
            ..Self::default()
        })
    }

    fn spec(self: &Arc<Self>) -> ProcessSpec {
        ProcessSpec {
            program: "sh".into(),
            args: Vec::new(),
            cwd: "/".into(),
            env: Vec::new(),
            env_hidden: Vec::new(),
            marker: "by hand".into(),
            containment: ContainmentChoice::Custom(Arc::new(LaunchesByHand(Arc::clone(self)))),
        }
    }

    fn spawn(self: &Arc<Self>, scope: &Scope) -> (Process, OutputReader) {
        let work = WorkSpec::new(ItemKind::Process, "sh");
        scope
            .spawn_process(work, self.spec())
            .expect("nothing is stopped yet")
    }

    fn print(&self, text: &str) {
        let life = self.life.lock();
        life.as_ref().expect(LIVES).print(text.as_bytes());
    }

    fn exit(&self, exit: ExitInfo) {
        self.life.lock().as_ref().expect(LIVES).exit(exit);
    }
}

impl TreeLauncher for LaunchesByHand {
    fn launch(
        self: Arc<Self>,
        _: &ProcessSpec,
        status: StatusSender,
    ) -> Result<ContainedTree, LaunchError> {
        let tree: Arc<dyn SimulatedTree> = Arc::clone(&self.0) as _;
        Ok(contain(&tree, status))
    }
}

impl SimulatedTree for ByHand {
    fn main(&self) -> ProcessIdentity {
        ProcessIdentity {
            pid: 7,
            start_ticks: 7,
            boot_id: "by hand".into(),
        }
    }

    fn signal(&self, signal: ProcessSignal) {
        self.signals.lock().push(signal);
        if self.mortal_to == Some(signal) {
            self.gone.notify_one();
        }
    }

    fn members(&self) -> Vec<TreeMember> {
        Vec::new()
    }

    fn live(self: Arc<Self>, seen: SimulatedLife) -> BoxFuture<'static, ()> {
        struct Dropped(Arc<ByHand>, bool);
        impl Drop for Dropped {
            fn drop(&mut self) {
                if !self.1 {
                    self.0.signal(ProcessSignal::Kill);
                }
            }
        }
        *self.life.lock() = Some(seen);
        let watched = Dropped(Arc::clone(&self), false);
        Box::pin(async move {
            let mut watched = watched;
            self.gone.notified().await;
            watched.1 = true;
            drop(self.life.lock().take());
        })
    }
}

#[test]
fn one_that_hears_the_ask_is_stopped_as_a_group_is() {
    on_paused_time(async {
        let (scope, tree) = (root(), ByHand::mortal_to(ProcessSignal::Term));
        let (process, _output) = tree.spawn(&scope);
        let receipt = stop(&scope).await;
        assert!(receipt.quiet());
        let [item] = receipt.items() else { panic!() };
        let ItemState::Stopped { how, evidence, .. } = &item.state else {
            panic!("{item:?}")
        };
        assert_eq!(*how, EndMethod::Sigterm);
        assert_eq!(evidence.proof(), Some(EndProof::ProcessGroupEmpty));
        assert_eq!(item.containment, Some(Containment::GroupAndMarker));
        assert_eq!(*tree.signals.lock(), [ProcessSignal::Term]);
        assert!(process.members().await.is_empty());
    });
}

#[test]
fn one_that_does_not_is_forced_after_the_grace() {
    on_paused_time(async {
        let (scope, tree) = (root(), ByHand::mortal_to(ProcessSignal::Kill));
        let (_process, _output) = tree.spawn(&scope);
        let before = Instant::now();
        let receipt = stop(&scope).await;
        assert!(receipt.quiet() && before.elapsed() >= GRACE_DEFAULT);
        let ItemState::Stopped { how, .. } = &receipt.items()[0].state else {
            panic!()
        };
        assert_eq!(*how, EndMethod::Sigkill);
        assert_eq!(
            *tree.signals.lock(),
            [ProcessSignal::Term, ProcessSignal::Kill]
        );
    });
}

#[test]
fn one_that_outlasts_even_that_is_named() {
    on_paused_time(async {
        let (scope, tree) = (root(), Arc::new(ByHand::default()));
        let (_process, _output) = tree.spawn(&scope);
        let receipt = stop(&scope).await;
        assert!(!receipt.quiet());
        assert_eq!(receipt.items()[0].state.as_str(), "still_running");
    });
}

#[test]
fn the_output_ends_with_the_main_process_and_the_leftovers_with_the_tree() {
    on_paused_time(async {
        let (scope, tree) = (root(), ByHand::mortal_to(ProcessSignal::Term));
        let (process, mut output) = tree.spawn(&scope);
        let mut buffer = [0; 4];
        tree.print("first ");
        assert_eq!(output.read(&mut buffer).await.unwrap(), 4);
        assert_eq!(&buffer, b"firs");
        tree.print("last");
        tree.exit(ExitInfo::Code(0));
        // What is printed from the moment on at which the end was seen is a descendant's.
        assert_eq!(output.read(&mut buffer).await.unwrap(), 4);
        assert_eq!(&buffer, b"t la");
        tree.print("more");
        assert_eq!(output.read(&mut buffer).await.unwrap(), 2);
        assert_eq!(output.read(&mut buffer).await.unwrap(), 0);
        assert_eq!(process.exited().await.unwrap(), ExitInfo::Code(0));
        assert_eq!(output.read_leftovers(&mut buffer).await.unwrap(), 4);
        assert_eq!(&buffer, b"more");
        process.handle().ask();
        assert_eq!(output.read_leftovers(&mut buffer).await.unwrap(), 0);
    });
}

#[test]
fn a_reader_that_waits_is_woken_by_output_and_by_the_end() {
    on_paused_time(async {
        let (scope, tree) = (root(), Arc::new(ByHand::default()));
        let (_process, mut output) = tree.spawn(&scope);
        let mut buffer = [0; 4];
        let soon = async {
            tokio::task::yield_now().await;
            tree.print("a");
        };
        assert_eq!(tokio::join!(output.read(&mut buffer), soon).0.unwrap(), 1);
        let soon = async {
            tokio::task::yield_now().await;
            tree.exit(ExitInfo::Code(3));
        };
        assert_eq!(tokio::join!(output.read(&mut buffer), soon).0.unwrap(), 0);
    });
}

#[test]
fn a_driver_that_was_dropped_has_killed_its_tree() {
    on_paused_time(async {
        let tree = ByHand::mortal_to(ProcessSignal::Term);
        let (handle, driver, _output) = launch(tree.spec()).unwrap();
        drop(driver);
        assert_eq!(*tree.signals.lock(), [ProcessSignal::Kill]);
        drop(tree.life.lock().take());
        let seen = handle.wait_exited().await;
        assert!(
            matches!(seen, Err(ProcessWaitError::WatcherGone)),
            "{seen:?}"
        );
        assert_eq!(handle.emptiness(), None);
    });
}

#[test]
fn waiters_are_woken_in_the_order_in_which_they_came() {
    const WAITERS: usize = 20;
    on_paused_time(async {
        let (scope, tree) = (root(), ByHand::mortal_to(ProcessSignal::Term));
        let (process, _output) = tree.spawn(&scope);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut waiters = Vec::new();
        for number in 0..WAITERS {
            let (process, woken) = (process.clone(), Arc::clone(&woken));
            let wait = async move {
                drop(process.exited().await);
                woken.lock().push(number);
            };
            waiters.push(
                scope
                    .spawn(WorkSpec::new(ItemKind::Future, "waits"), |_| wait)
                    .unwrap(),
            );
        }
        tokio::task::yield_now().await;
        tree.exit(ExitInfo::Code(0));
        for waiter in waiters {
            waiter.await.unwrap();
        }
        assert_eq!(*woken.lock(), (0..WAITERS).collect::<Vec<_>>());
    });
}
