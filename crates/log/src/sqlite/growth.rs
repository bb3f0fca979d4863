//! Notifies the followers of a stream when it grows.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::StreamName;

#[derive(Debug, Default)]
pub(super) struct Growth(Mutex<HashMap<StreamName, Arc<Notify>>>);

#[derive(Debug)]
pub(super) struct Follower {
    growth: Arc<Growth>,
    stream: StreamName,
    pub(super) grown: Arc<Notify>,
}

impl Growth {
    pub(super) fn grown(&self, stream: &StreamName) {
        if let Some(grown) = self.0.lock().get(stream) {
            grown.notify_waiters();
        }
    }
}

impl Follower {
    pub(super) fn new(growth: Arc<Growth>, stream: StreamName) -> Self {
        let grown = growth.0.lock().entry(stream.clone()).or_default().clone();
        Self {
            growth,
            stream,
            grown,
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut followed = self.growth.0.lock();
        // Two references left: this was the last follower. New followers clone theirs under this lock.
        if Arc::strong_count(&self.grown) == 2 {
            followed.remove(&self.stream);
        }
    }
}
