//! A tree that an earlier process started and left, taken up again by what the log knows of it: so that it can be
//! stopped, with a receipt that says what was seen.
//!
//! Nobody here is its parent, and its keeper has no socket to us. So its members are signalled one by one, its end is
//! found by sweep, and `ProcessGroupEmpty` is what is claimed.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{Containment, Verified};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use rustix::process::Signal;
use tokio::time::sleep;

use super::driver::ProcessDriver;
use super::found_error::FindError;
use super::handle::{KnownMembers, Lever, ProcessHandle, Shared, detach_channel};
use super::identity::{identity, is_alive};
use super::look::{ask, begin, look};
use super::procfs::Stat;
use super::spec::MARKER_VARIABLE;
use super::status::Member;
use super::status_channel::{StatusSender, status_channel};
use super::sweep::{Emptiness, Found, Sweep};
use super::tree::{as_members, descendants, signal_each};

/// How often it is looked at: a sweep takes some two milliseconds.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Takes a tree up again that another process left. The driver only watches: dropping it ends nothing of the tree.
///
/// # Errors
/// If it has ended, or its processes cannot be told from others for certain.
pub fn find_again(
    main: &ProcessIdentity,
    keeper: Option<&ProcessIdentity>,
    marker: Option<&Arc<str>>,
) -> Result<(ProcessHandle, ProcessDriver), FindError> {
    if survivor(main, keeper, marker.map(AsRef::as_ref)).is_none() {
        return Err(FindError::Gone);
    }
    let keeper = keeper.filter(|keeper| is_alive(keeper));
    let main_lives = is_alive(main);
    let marker = if let Some(marker) = marker {
        Arc::clone(marker)
    } else {
        // A log of before markers were recorded.
        let pid = keeper.unwrap_or(main).pid;
        let marker = ask(move || marker_of(pid)).flatten();
        marker.ok_or(FindError::NoMarker)?.into()
    };
    let sweep = Sweep::of_found(
        Arc::clone(&marker),
        main.clone(),
        keeper.map(|keeper| keeper.pid),
        main_lives,
    );
    let tree = Arc::new(Tree {
        sweep,
        keeper: keeper.cloned(),
        known: KnownMembers::default(),
    });
    tree.known.set(vec![main.clone()]);
    let (status, receiver) = status_channel();
    status.send_modify(|now| now.main = Some(main.clone()));
    // Whoever asked to let it go has done so: nobody answers.
    let (detach_tx, _) = detach_channel();
    let lever = Box::new(TreeLever(Arc::clone(&tree)));
    let shared = Shared::new(marker, Containment::GroupAndMarker, None, lever, detach_tx);
    let driver = ProcessDriver::new(watch(tree, Arc::clone(&shared), status));
    Ok((ProcessHandle::new(shared, receiver), driver))
}

/// A process of a tree that another process left, if there is one: its keeper or else its main process; or, where both are
/// gone, any that carries the marker.
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
        let sweep = Sweep::of_found(marker?.into(), main.clone(), None, false);
        let member = sweep.members().first().copied()?;
        Some(identity(member.pid, member.start_ticks))
    })
}

struct Tree {
    sweep: Sweep,
    /// It lives as long as one of its descendants does.
    keeper: Option<ProcessIdentity>,
    known: KnownMembers,
}

impl Tree {
    /// Whom a sweep finds, and who falls to the keeper.
    fn find(&self) -> Found {
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

    fn members(&self) -> Vec<Stat> {
        self.find().members
    }
}

struct TreeLever(Arc<Tree>);

impl TreeLever {
    fn signal(&self, signal: Signal) {
        let tree = Arc::clone(&self.0);
        let send = move || signal_each(&tree.members(), signal);
        if begin(send.clone()).is_none() {
            // The system gives no thread: better late than not at all.
            send();
        }
    }
}

impl Lever for TreeLever {
    // Not through the keeper, which would force by itself after a grace of its own.
    fn ask(&self) {
        self.signal(Signal::TERM);
    }

    fn force(&self) {
        self.signal(Signal::KILL);
    }

    fn members(&self) -> BoxFuture<'static, Vec<Member>> {
        let tree = Arc::clone(&self.0);
        look(move || as_members(&tree.members()))
            .map(Option::unwrap_or_default)
            .boxed()
    }

    fn known(&self) -> Vec<ProcessIdentity> {
        self.0.known.get()
    }
}

async fn watch(tree: Arc<Tree>, shared: Arc<Shared>, status: StatusSender) {
    let mut emptiness = Emptiness::default();
    let mut is_forced = false;
    loop {
        let looking = Arc::clone(&tree);
        let looked = look(move || {
            // The keeper first: while it lives somebody does.
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
                status.send_modify(|now| now.set_empty(Verified::ProcessGroupEmpty));
                return;
            }
        }
        tokio::select! {
            () = shared.forced.notified(), if !is_forced => is_forced = true,
            () = sleep(LOOK_AGAIN) => {}
        }
    }
}

/// What its launch has put into its environment, and into that of its keeper.
fn marker_of(pid: u32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry
            .strip_prefix(MARKER_VARIABLE.as_bytes())?
            .strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    })
}
