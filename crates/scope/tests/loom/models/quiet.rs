//! The countdown of a stop alone: the count is zero exactly when all work has ended, and then every waiter is woken.

use std::sync::Arc;

use crate::sync::block_on;

use super::{every_interleaving, joined, spawn};
use crate::group::countdown::Countdown;
use crate::sync::{AtomicBool, Ordering};

#[test]
fn quiet_is_signalled_when_the_last_work_has_ended() {
    every_interleaving(|| {
        let count = Arc::new(Countdown::of_walk());
        let ended: Arc<[AtomicBool; 2]> = Arc::default();
        // The walk of a stop reaches a node (a scope) with one piece of work, and later another node. The work of the
        // first node may end before the walk reaches the second node.
        count.more(1);
        let workers = [0, 1].map(|worker| {
            if worker == 1 {
                count.more(1);
            }
            let (count, ended) = (Arc::clone(&count), Arc::clone(&ended));
            spawn(move || {
                ended[worker].store(true, Ordering::Relaxed);
                count.decrement();
            })
        });
        assert!(!count.is_quiet(), "the walk goes on");
        count.decrement();
        block_on(count.quiet());
        for ended in &*ended {
            assert!(ended.load(Ordering::Relaxed), "quiet before the end");
        }
        workers.into_iter().for_each(joined);
    });
}
