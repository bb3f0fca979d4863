//! Requests to the clients whose answer is a separate request of a client: forms, slash commands and tokens.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

/// Requests without an answer so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnansweredRequests<T = Value>(Arc<Mutex<HashMap<Arc<str>, oneshot::Sender<T>>>>);

/// A request that waits for its answer. Dropping it withdraws the request.
#[derive(Debug)]
pub(crate) struct UnansweredRequest<T> {
    id: Arc<str>,
    all: UnansweredRequests<T>,
    answer: oneshot::Receiver<T>,
}

impl<T: Clone> UnansweredRequests<T> {
    /// Adds a request.
    pub(crate) fn add(&self) -> UnansweredRequest<T> {
        let id: Arc<str> = ulid::Ulid::generate().to_string().into();
        let (sender, answer) = oneshot::channel();
        self.0.lock().insert(Arc::clone(&id), sender);
        UnansweredRequest {
            id,
            all: self.clone(),
            answer,
        }
    }

    /// Answers a request. Returns false if no request with this id waits.
    pub(crate) fn answer(&self, id: &str, answer: T) -> bool {
        let sender = self.0.lock().remove(id);
        sender.is_some_and(|sender| sender.send(answer).is_ok())
    }
}

impl<T> UnansweredRequest<T> {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Waits for the answer; `None` if the session was closed.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request.
    pub(crate) async fn answer(mut self) -> Option<T> {
        (&mut self.answer).await.ok()
    }
}

impl<T> Drop for UnansweredRequest<T> {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_first_answer_counts() {
        let all = UnansweredRequests::<Value>::default();
        let request = all.add();
        let id = request.id().to_owned();
        assert!(all.answer(&id, 1.into()));
        assert!(!all.answer(&id, 2.into()));
        assert_eq!(request.answer().await, Some(1.into()));
        let id = all.add().id().to_owned();
        assert!(!all.answer(&id, 3.into()), "the request was dropped");
    }
}
