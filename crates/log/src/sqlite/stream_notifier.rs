//! Notifies the followers of a stream when the stream grows.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::StreamName;

#[derive(Debug, Default)]
pub(super) struct StreamNotifier(Mutex<HashMap<StreamName, Arc<Notify>>>);

#[derive(Debug)]
pub(super) struct StreamFollower {
    notifier: Arc<StreamNotifier>,
    stream: StreamName,
    pub(super) grown: Arc<Notify>,
}

impl StreamNotifier {
    pub(super) fn notify_grown(&self, stream: &StreamName) {
        if let Some(grown) = self.0.lock().get(stream) {
            grown.notify_waiters();
        }
    }
}

impl StreamFollower {
    pub(super) fn new(notifier: Arc<StreamNotifier>, stream: StreamName) -> Self {
        let grown = notifier.0.lock().entry(stream.clone()).or_default().clone();
        Self {
            notifier,
            stream,
            grown,
        }
    }
}

impl Drop for StreamFollower {
    fn drop(&mut self) {
        let mut followed = self.notifier.0.lock();
        // If only two references exist, this was the last follower. No new follower can appear now, because a follower
        // must hold this lock to clone a reference.
        if Arc::strong_count(&self.grown) == 2 {
            followed.remove(&self.stream);
        }
    }
}
