//! The end of a process tree after its keeper, the helper process that contained the tree, was killed.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::EndProof;
use rustix::process::Signal;
use tokio::time::sleep;

use crate::identity::identity;
use crate::launch_error::LaunchError;

use super::adopted::{InheritedChildren, kill_adopted};
use super::keeper_client::KeeperClient;
use super::procfs_reader::read_on_thread;
use super::readiness::watch;
use super::sweep::{EMPTY_SWEEPS, EmptinessProof, TreeSweep};
use super::tree::signal_each;

/// Pause between two searches for the tree of a dead keeper.
pub(super) const LOOK_REPEAT: Duration = Duration::from_millis(5);

impl KeeperClient {
    /// Finds and ends the tree of a keeper that was killed.
    pub(super) async fn end_lost_tree(mut self) {
        self.status.publish(|now| now.keeper_lost = true);
        let Some(keeper) = self.keeper.take() else {
            return;
        };
        let pid = keeper.identity.pid;
        keeper.kill();
        // The keeper's children are adopted when the keeper has ended. The keeper ends a moment after its socket has
        // closed.
        if let Ok(ended) = watch(Arc::clone(&keeper.pidfd)) {
            drop(ended.readable().await);
        }
        self.keepers.reap_later(keeper);
        let main = self.main.clone();
        if main.is_none() {
            self.failed = Some(LaunchError::KeeperLost);
        }
        if let Some(inherited) = self.keepers.inherited().cloned() {
            self.end_adopted(pid, inherited).await;
        } else {
            // The main process is unknown if the keeper was killed before it reported a start. If the keeper had
            // already started the command, the kernel has killed the command, unless the command forked at once. The
            // search for the marker in the environment finds the remaining processes.
            let main = main.unwrap_or_else(|| identity(pid, 0));
            self.sweep_away(main, pid).await;
        }
    }

    /// Kills adopted processes until several searches in a row find none.
    async fn end_adopted(&mut self, keeper: u32, inherited: InheritedChildren) {
        let mut empty_looks = 0;
        while empty_looks < EMPTY_SWEEPS {
            let inherited = inherited.clone();
            let killed = read_on_thread(move || kill_adopted(keeper, &inherited)).await;
            let Some(adopted) = killed.flatten() else {
                sleep(LOOK_REPEAT).await;
                continue;
            };
            self.known.set_stats(&adopted.living);
            if adopted.is_empty() {
                empty_looks += 1;
            } else {
                empty_looks = 0;
                sleep(LOOK_REPEAT).await;
            }
        }
        self.publish_empty(EndProof::ProcessTreeEmpty);
    }

    async fn sweep_away(&mut self, main: ProcessIdentity, keeper: u32) {
        let sweep = Arc::new(TreeSweep::of_lost_keeper(
            Arc::clone(&self.marker),
            main,
            keeper,
        ));
        let mut emptiness = EmptinessProof::default();
        loop {
            let sweeping = Arc::clone(&sweep);
            let found = read_on_thread(move || {
                let found = sweeping.find();
                signal_each(&found.members, Signal::KILL);
                found
            });
            if let Some(found) = found.await {
                self.known.set_stats(&found.members);
                if emptiness.is_proved_by(&found) {
                    break;
                }
            }
            sleep(LOOK_REPEAT).await;
        }
        self.publish_empty(EndProof::ProcessGroupEmpty);
    }
}
