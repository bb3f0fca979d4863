//! Stray processes of a call (launched command): processes that are no longer descendants of the call's keeper, the
//! helper process that contains the process tree. There are two causes. If a process enters another PID namespace, the
//! first process of that namespace adopts the orphaned children of the process that entered. And a daemon may start a
//! job with the environment of the call that requested the job.

use allstop_core::receipt::EndProof;
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use crate::spec::MARKER_VARIABLE;
use crate::status::SearchReason;

use super::environment::has_variable;
use super::keeper_client::KeeperClient;
use super::keeper_loss::LOOK_REPEAT;
use super::procfs::{ProcessStat, visit_processes};
use super::procfs_reader::{ANSWER_MAX, read_on_thread};
use super::sweep::EMPTY_SWEEPS;
use super::tree::{rooted, signal_each};

/// Kills the processes with the marker (a unique value in the environment of a call's processes) and their descendants,
/// but no process that started before `since_ticks`. Returns the processes that got a signal.
fn kill_strays(marker: &str, since_ticks: u64) -> Vec<ProcessStat> {
    let mut all = Vec::new();
    // An incomplete search is accepted here: an empty result is not used as proof that no process exists.
    let _is_complete = visit_processes(|stat| all.push(stat));
    let is_marked = |stat: &ProcessStat| {
        stat.start_ticks >= since_ticks
            && !stat.is_kernel
            && !stat.is_dead()
            && has_variable(stat.pid, MARKER_VARIABLE, marker) == Some(true)
    };
    let mut found = rooted(&all, is_marked);
    found.retain(|stat| !stat.is_dead() && stat.pid != std::process::id());
    signal_each(&found, Signal::KILL);
    found
}

impl KeeperClient {
    /// The proof that the tree is empty. Call this function when the keeper has no child left. After a stop, the
    /// function kills processes with the marker until a search finds none.
    pub(super) async fn proof_of_end(&self) -> EndProof {
        let Some(main) = &self.main else {
            return EndProof::ProcessTreeEmpty;
        };
        let mut looks_left = match (self.call.is_stopped(), self.status.is_searched()) {
            (false, _) => 0,
            // Nothing indicates a process outside the tree, so one search is enough.
            (true, false) => 1,
            (true, true) => EMPTY_SWEEPS,
        };
        while looks_left > 0 {
            let (marker, since) = (self.marker.clone(), main.start_ticks);
            let looking = read_on_thread(move || kill_strays(&marker, since));
            // The time is limited, because a read of locked memory never returns.
            let found = timeout(ANSWER_MAX, looking).await.ok().flatten();
            let found = found.unwrap_or_default();
            if found.is_empty() {
                looks_left -= 1;
            } else {
                looks_left = EMPTY_SWEEPS;
                self.known.set_stats(&found);
                self.status.searched_for(SearchReason::Strays);
                sleep(LOOK_REPEAT).await;
            }
        }
        if self.status.is_searched() {
            EndProof::ProcessGroupEmpty
        } else {
            EndProof::ProcessTreeEmpty
        }
    }
}
