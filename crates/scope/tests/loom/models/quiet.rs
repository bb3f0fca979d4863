//! The countdown alone: quiet exactly when all have ended, and heard by whoever waits.

use std::sync::Arc;

use crate::sync::block_on;

use super::{every_interleaving, joined, spawn};
use crate::cell::countdown::Countdown;
use crate::sync::{AtomicBool, Ordering};

#[test]
fn quiet_is_heard_exactly_when_the_last_has_ended() {
    every_interleaving(|| {
        let count = Arc::new(Countdown::of_walk());
        let ended: Arc<[AtomicBool; 2]> = Arc::default();
        // A node with one piece of work is reached, then another; the work of the first may end before.
        count.more(1);
        let workers = [0, 1].map(|worker| {
            if worker == 1 {
                count.more(1);
            }
            let (count, ended) = (Arc::clone(&count), Arc::clone(&ended));
            spawn(move || {
                ended[worker].store(true, Ordering::Relaxed);
                count.one_less();
            })
        });
        assert!(!count.is_quiet(), "the walk goes on");
        count.one_less();
        block_on(count.quiet());
        for ended in &*ended {
            assert!(ended.load(Ordering::Relaxed), "quiet before the end");
        }
        workers.into_iter().for_each(joined);
    });
}
