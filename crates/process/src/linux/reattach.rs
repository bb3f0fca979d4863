//! Attaches to a process tree that an earlier process started and left running. The log contains the identities of the
//! tree's processes. Afterwards a stop can end the tree, and the result of the stop, its receipt, reports how the
//! processes ended.
//!
//! This process is not the parent of the tree, and has no socket to the tree's keeper (the helper process that started
//! the command). Therefore this process signals each member of the tree individually. Sweeps, which are searches of all
//! processes, determine when the tree is empty. The proof of this end is `ProcessGroupEmpty`, which is weaker than the
//! proof of a keeper.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{Containment, EndProof};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use rustix::process::Signal;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::containment::TreeContainment;
use crate::driver::ProcessDriver;
use crate::handle::ProcessHandle;
use crate::identity::{identity, is_out_of_view};
use crate::reattach_error::ReattachError;
use crate::status::{SearchReason, TreeMember};
use crate::status_channel::{StatusSender, status_channel};

use super::environment::marker_of;
use super::identity::is_alive;
use super::procfs::ProcessStat;
use super::procfs_reader::{read_in_time, read_on_thread, start_on_thread};
use super::sweep::{EmptinessProof, SweepResult, TreeSweep};
use super::tree::{KnownMembers, as_members, descendants, signal_each};

/// Pause between two sweeps. A sweep takes about two milliseconds.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Attaches to a tree that another process left running. The driver only watches the tree: dropping the driver ends no
/// process.
///
/// # Errors
/// If the tree has ended, or if its processes cannot be reliably distinguished from other processes.
pub fn reattach(
    main: &ProcessIdentity,
    keeper: Option<&ProcessIdentity>,
    marker: Option<&Arc<str>>,
) -> Result<(ProcessHandle, ProcessDriver), ReattachError> {
    if is_out_of_view(main) {
        return Err(ReattachError::OutOfView);
    }
    if survivor(main, keeper, marker.map(AsRef::as_ref)).is_none() {
        return Err(ReattachError::Gone);
    }
    let was_kept = keeper.is_some();
    let keeper = keeper.filter(|keeper| is_alive(keeper));
    let main_lives = is_alive(main);
    let marker = if let Some(marker) = marker {
        Arc::clone(marker)
    } else {
        // The log was written by an older version that did not record the marker: a unique value in the environment of
        // the tree's processes.
        let pid = keeper.unwrap_or(main).pid;
        let marker = read_in_time(move || marker_of(pid)).flatten();
        marker.ok_or(ReattachError::NoMarker)?.into()
    };
    let sweep = TreeSweep::of_earlier(
        Arc::clone(&marker),
        main.clone(),
        keeper.map(|keeper| keeper.pid),
        main_lives,
    );
    let tree = Arc::new(ReattachedTree {
        sweep,
        keeper: keeper.cloned(),
        known: KnownMembers::default(),
        forced: Notify::new(),
    });
    tree.known.set(vec![main.clone()]);
    let (status, receiver) = status_channel();
    status.started(main.clone());
    if was_kept && keeper.is_none() {
        status.searched_for(SearchReason::KeeperGone);
    }
    let containment = Arc::new(ReattachedContainment(Arc::clone(&tree)));
    let driver = ProcessDriver::new(watch(tree, status));
    Ok((ProcessHandle::new(marker, containment, receiver), driver))
}

/// A living process of a tree that another process left running: its keeper, otherwise its main process, otherwise any
/// process with the marker. Does not find processes in another PID namespace, because such processes are not visible
/// from here.
pub fn survivor(
    main: &ProcessIdentity,
    keeper: Option<&ProcessIdentity>,
    marker: Option<&str>,
) -> Option<ProcessIdentity> {
    let known = keeper
        .into_iter()
        .chain([main])
        .find(|known| is_alive(known));
    known.cloned().or_else(|| {
        let sweep = TreeSweep::of_earlier(marker?.into(), main.clone(), None, false);
        let member = sweep.members().first().copied()?;
        Some(identity(member.pid, member.start_ticks))
    })
}

struct ReattachedTree {
    sweep: TreeSweep,
    /// The keeper, which runs until all of its descendants have ended.
    keeper: Option<ProcessIdentity>,
    known: KnownMembers,
    /// Wakes the driver after a call of `force`.
    forced: Notify,
}

impl ReattachedTree {
    /// Members that a sweep finds, and descendants of the keeper.
    fn find(&self) -> SweepResult {
        let mut found = self.sweep.find();
        if let Some(keeper) = self.living_keeper() {
            let known: Vec<u32> = found.members.iter().map(|stat| stat.pid).collect();
            let below = descendants(keeper.pid).into_iter();
            let more = below.filter(|stat| !stat.is_dead() && !known.contains(&stat.pid));
            found.members.extend(more);
        }
        found
    }

    fn living_keeper(&self) -> Option<&ProcessIdentity> {
        self.keeper.as_ref().filter(|keeper| is_alive(keeper))
    }

    fn members(&self) -> Vec<ProcessStat> {
        self.find().members
    }
}

struct ReattachedContainment(Arc<ReattachedTree>);

impl ReattachedContainment {
    fn signal(&self, signal: Signal) {
        let tree = Arc::clone(&self.0);
        let send = move || signal_each(&tree.members(), signal);
        if start_on_thread(send.clone()).is_none() {
            // If the system provides no thread, it is better to block the caller than to send no signal.
            send();
        }
    }
}

impl TreeContainment for ReattachedContainment {
    fn level(&self) -> Containment {
        Containment::GroupAndMarker
    }

    // Signals the members directly. If the keeper received SIGTERM, the keeper would send SIGKILL after its own grace
    // period.
    fn ask(&self) {
        self.signal(Signal::TERM);
    }

    fn force(&self) {
        self.signal(Signal::KILL);
        self.0.forced.notify_one();
    }

    fn members(&self) -> BoxFuture<'static, Vec<TreeMember>> {
        let tree = Arc::clone(&self.0);
        read_on_thread(move || as_members(&tree.members()))
            .map(Option::unwrap_or_default)
            .boxed()
    }

    fn known_members(&self) -> Vec<ProcessIdentity> {
        self.0.known.get()
    }
}

async fn watch(tree: Arc<ReattachedTree>, status: StatusSender) {
    let mut emptiness = EmptinessProof::default();
    let mut is_forced = false;
    loop {
        let looking = Arc::clone(&tree);
        let looked = read_on_thread(move || {
            // Checks the keeper first. While the keeper is alive, at least one process of the tree is alive too.
            let is_kept = looking.living_keeper().is_some();
            let found = looking.find();
            if is_forced {
                signal_each(&found.members, Signal::KILL);
            }
            (is_kept, found)
        });
        if let Some((is_kept, found)) = looked.await {
            tree.known.set_stats(&found.members);
            if !is_kept && emptiness.is_proved_by(&found) {
                status.emptied(EndProof::ProcessGroupEmpty);
                return;
            }
        }
        tokio::select! {
            () = tree.forced.notified(), if !is_forced => is_forced = true,
            () = sleep(LOOK_AGAIN) => {}
        }
    }
}
