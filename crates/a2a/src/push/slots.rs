//! Limits of concurrent requests to webhooks: per host, per user and in total.
//!
//! A request first acquires a permit of its host, then a permit of its user, and then a global permit. While a request
//! waits for a permit of a hanging host, the request holds no permit that a request to another host could use.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::options::PushOptions;

/// Number of entries at which a map first removes unused entries.
const PRUNE_LEN_MIN: usize = 64;

/// Permits for concurrent requests.
#[derive(Debug)]
pub(crate) struct DeliverySlots {
    all: Arc<Semaphore>,
    owners: KeyedSlots,
    hosts: KeyedSlots,
}

/// Permits of a running request. Dropping this value returns them.
#[derive(Debug)]
#[must_use = "dropping it returns the permits"]
pub(crate) struct DeliverySlot {
    _all: OwnedSemaphorePermit,
    _owner: OwnedSemaphorePermit,
    _host: OwnedSemaphorePermit,
}

impl DeliverySlots {
    pub(crate) fn new(options: &PushOptions) -> Self {
        Self {
            all: Arc::new(Semaphore::new(options.running_max)),
            owners: KeyedSlots::new(options.running_per_owner_max),
            hosts: KeyedSlots::new(options.running_per_host_max),
        }
    }

    /// Waits for a permit of each kind.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn acquire(&self, owner: &str, host: &str) -> DeliverySlot {
        DeliverySlot {
            // The order of the fields is the order of acquisition; see the module.
            _host: permit(self.hosts.of_key(host)).await,
            _owner: permit(self.owners.of_key(owner)).await,
            _all: permit(Arc::clone(&self.all)).await,
        }
    }
}

async fn permit(slots: Arc<Semaphore>) -> OwnedSemaphorePermit {
    let permit = slots.acquire_owned().await;
    permit.expect("the semaphore is never closed")
}

/// Permits per key. After the next removal of unused entries, an unused key uses no memory.
#[derive(Debug)]
struct KeyedSlots {
    len: usize,
    state: Mutex<KeyedState>,
}

#[derive(Debug)]
struct KeyedState {
    keys: HashMap<Box<str>, Weak<Semaphore>>,
    prune_at: usize,
}

impl KeyedSlots {
    fn new(len: usize) -> Self {
        Self {
            len,
            state: Mutex::new(KeyedState {
                keys: HashMap::new(),
                prune_at: PRUNE_LEN_MIN,
            }),
        }
    }

    fn of_key(&self, key: &str) -> Arc<Semaphore> {
        let mut state = self.state.lock();
        if let Some(known) = state.keys.get(key).and_then(Weak::upgrade) {
            return known;
        }
        if state.keys.len() >= state.prune_at {
            state.keys.retain(|_, slots| slots.strong_count() > 0);
            state.prune_at = (state.keys.len() * 2).max(PRUNE_LEN_MIN);
        }
        let new = Arc::new(Semaphore::new(self.len));
        state.keys.insert(key.into(), Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn slots(all: usize, owner: usize, host: usize) -> DeliverySlots {
        DeliverySlots::new(&PushOptions {
            running_max: all,
            running_per_owner_max: owner,
            running_per_host_max: host,
            ..PushOptions::default()
        })
    }

    #[test]
    fn full_host_takes_no_permit_of_its_user() {
        let slots = slots(10, 2, 1);
        let first = slots.acquire("alice", "slow").now_or_never();
        assert!(first.is_some());
        let mut waiting = Box::pin(slots.acquire("alice", "slow"));
        assert!((&mut waiting).now_or_never().is_none());
        let other_host = slots.acquire("alice", "fast").now_or_never();
        assert!(other_host.is_some());
        assert!(slots.acquire("alice", "third").now_or_never().is_none());
        assert!(slots.acquire("bob", "third").now_or_never().is_some());
        drop((first, other_host));
        assert!(waiting.now_or_never().is_some());
    }

    #[test]
    fn unused_keys_are_forgotten() {
        let slots = KeyedSlots::new(1);
        let used = slots.of_key("used");
        for number in 0..10 * PRUNE_LEN_MIN {
            drop(slots.of_key(&number.to_string()));
        }
        assert!(slots.state.lock().keys.len() <= PRUNE_LEN_MIN);
        assert!(Arc::ptr_eq(&used, &slots.of_key("used")));
    }
}
