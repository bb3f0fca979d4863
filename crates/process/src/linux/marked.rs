//! Search for processes by the marker in their environment: a unique value for each call (launched command).

use std::collections::HashMap;
use std::iter::successors;
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use rustix::process::getuid;

use crate::identity::identity;
use crate::status::{MarkedProcess, MarkedSearch};

use super::environment::marker_of;
use super::procfs::{ProcessStat, user_of, visit_processes};
use super::tree::as_members;

/// Living processes of this user with a marker that satisfies `is_wanted`. These are the processes of calls, without
/// their keepers. A process that has cleared its environment is not found. Blocks as
/// [`all_processes`](super::all_processes) does.
pub fn marked_processes(is_wanted: impl Fn(&str) -> bool) -> MarkedSearch {
    let user = getuid().as_raw();
    let mut all = HashMap::new();
    let mut markers: HashMap<u32, Arc<str>> = HashMap::new();
    let is_complete = visit_processes(|stat| {
        all.insert(stat.pid, stat);
        if stat.is_dead() || stat.is_kernel || user_of(stat.pid) != Some(user) {
            return;
        }
        // Read without a time limit: a busy machine would exceed a limit, and the process would be missing.
        if let Some(marker) = marker_of(stat.pid).filter(|marker| is_wanted(marker)) {
            markers.insert(stat.pid, marker.into());
        }
    });
    let stats = markers.keys().filter_map(|pid| all.get(pid).copied());
    let members = as_members(&stats.collect::<Vec<_>>());
    let found = members.into_iter().filter_map(|member| {
        let stat = all.get(&member.identity.pid)?;
        let marker = markers.get(&stat.pid)?;
        Some(MarkedProcess {
            parent: unmarked_parent(stat, marker, &all, &markers),
            marker: Arc::clone(marker),
            member,
        })
    });
    MarkedSearch {
        processes: found.collect(),
        is_complete,
    }
}

/// The nearest ancestor without this marker.
fn unmarked_parent(
    stat: &ProcessStat,
    marker: &Arc<str>,
    all: &HashMap<u32, ProcessStat>,
    markers: &HashMap<u32, Arc<str>>,
) -> Option<ProcessIdentity> {
    let parent = |stat: &&ProcessStat| all.get(&stat.parent);
    // Pids that were reused during the search can form a cycle, so the number of steps is limited.
    let mut ancestors = successors(parent(&stat), parent).take(all.len());
    let found = ancestors.find(|ancestor| markers.get(&ancestor.pid) != Some(marker))?;
    Some(identity(found.pid, found.start_ticks))
}
