//! Search for processes by the marker in their environment: a unique value for each call (launched command).

use super::environment::marker_of;
use super::tree::listed;
use crate::status::TreeMember;

/// Living processes with a marker that satisfies `is_wanted`, with their command lines. These are the processes of
/// calls, and their keepers. A process that has cleared its environment is not found. Blocks as
/// [`all_processes`](super::all_processes) does.
pub fn marked_processes(is_wanted: impl Fn(&str) -> bool) -> Vec<TreeMember> {
    listed(|stat| marker_of(stat.pid).is_some_and(|marker| is_wanted(&marker)))
}
