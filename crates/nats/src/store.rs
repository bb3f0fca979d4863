//! The servers as a store: the connection, the two streams of JetStream, and the names in them.

use allstop_log::StreamName;
use async_nats::Client;
use async_nats::jetstream::Context;
use async_nats::jetstream::stream::Stream;
use tokio::sync::watch;

use crate::options::NatsOptions;
use crate::positions::Positions;
use crate::subject::tokens_of;

pub(crate) struct NatsStore {
    pub options: NatsOptions,
    pub client: Client,
    pub context: Context,
    /// Stream with all records.
    pub records: Stream,
    /// Stream with processes and locks.
    pub locks: Stream,
    pub positions: Positions,
    /// Number of disconnections so far.
    pub disconnections: watch::Sender<u64>,
}

impl NatsStore {
    /// The answer to a request; `None`: the connection was lost meanwhile, so there will be none.
    pub(crate) async fn answer<T>(&self, request: impl IntoFuture<Output = T>) -> Option<T> {
        let mut disconnections = self.disconnections.subscribe();
        tokio::select! {
            biased;
            answer = request.into_future() => Some(answer),
            // The sender is in this store, so the wait ends with a change.
            _changed = disconnections.changed() => None,
        }
    }

    pub(crate) fn subject(&self, stream: &StreamName) -> String {
        format!("{}.{}", self.log_root(), tokens_of(stream))
    }

    /// Subject of the pieces of long appends.
    pub(crate) fn piece_subject(&self, stream: &StreamName) -> String {
        format!("{}.piece.{}", self.options.prefix, tokens_of(stream))
    }

    pub(crate) fn lock_subject(&self, stream: &StreamName) -> String {
        format!("{}.lock.{}", self.options.prefix, tokens_of(stream))
    }

    pub(crate) fn presence_subject(&self, presence: &str) -> String {
        format!("{}.process.{presence}", self.options.prefix)
    }

    pub(crate) fn log_root(&self) -> String {
        format!("{}.log", self.options.prefix)
    }

    /// Most bytes of a message that the present server takes.
    pub(crate) fn payload_max(&self) -> usize {
        self.client.server_info().max_payload
    }
}
