//! Access to the servers: the connection, the two streams of JetStream, and the names in these streams.

use std::time::Duration;

use allstop_log::{LogError, LogErrorKind, StreamName};
use async_nats::Client;
use async_nats::connection::State;
use async_nats::jetstream::Context;
use async_nats::jetstream::stream::Stream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::client::errors::{self, RequestFailure};
use crate::client::positions::Positions;
use crate::client::subject::tokens_of;
use crate::options::NatsOptions;

/// Timeout of one answer. After this time, the request is repeated.
pub(crate) const REQUEST_MAX: Duration = Duration::from_secs(1);

/// Maximum length of a stream's name in a subject, in bytes. The servers accept lines of 4,096 bytes.
const TOKENS_BYTES_MAX: usize = 1_024;

pub(crate) struct NatsStore {
    pub options: NatsOptions,
    pub client: Client,
    pub context: Context,
    /// Stream that contains all records.
    pub records: Stream,
    /// Stream that contains the locks, and the presences of processes. A presence is a message that the process renews.
    pub locks: Stream,
    pub positions: Positions,
    /// Number of disconnections so far.
    pub disconnections: watch::Sender<u64>,
    /// True while a connection exists.
    pub is_connected: watch::Sender<bool>,
}

impl NatsStore {
    /// Returns the answer to a request. `None` if an answer can no longer come; the servers may have received the
    /// request.
    pub(crate) async fn answer<T>(&self, request: impl IntoFuture<Output = T>) -> Option<T> {
        let mut disconnections = self.disconnections.subscribe();
        tokio::select! {
            biased;
            answer = timeout(REQUEST_MAX, request.into_future()) => answer.ok(),
            // The sender is part of this store, so the wait ends only with a change.
            _changed = disconnections.changed() => None,
        }
    }

    /// Checks that a connection exists. Without a connection, the client would keep the request and send it much later.
    pub(crate) fn check_connection(&self) -> Result<(), RequestFailure> {
        match self.client.connection_state() {
            State::Connected => Ok(()),
            State::Pending | State::Disconnected => {
                Err(RequestFailure::Passing(errors::disconnected("connection")))
            }
        }
    }

    /// Checks that the name of a stream fits into a subject. The servers would close the connection for a longer name,
    /// and all requests would fail.
    pub(crate) fn check_name(stream: &StreamName) -> Result<(), LogError> {
        if tokens_of(stream).len() <= TOKENS_BYTES_MAX {
            return Ok(());
        }
        let place = format!("stream name of {} bytes", stream.as_str().len());
        Err(LogError::new(LogErrorKind::Io, errors::place(&place)))
    }

    /// Time to live of a lock, rounded up to whole seconds. The servers accept only whole seconds.
    pub(crate) fn lock_ttl(&self) -> Duration {
        let ttl = self.options.lock_ttl;
        let part = u64::from(ttl.subsec_nanos() > 0);
        Duration::from_secs((ttl.as_secs() + part).max(1))
    }

    pub(crate) fn subject(&self, stream: &StreamName) -> String {
        format!("{}.{}", self.log_root(), tokens_of(stream))
    }

    /// Subject of the pieces of long appends. If a stream is deleted and created again, the new stream has another
    /// subject for its pieces. Therefore a deletion of the old stream never removes pieces of the new stream.
    pub(crate) fn piece_subject(&self, stream: &StreamName, deletion_sequence: u64) -> String {
        format!(
            "{}.piece.{deletion_sequence}.{}",
            self.options.prefix,
            tokens_of(stream)
        )
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

    /// Size of the largest message that the connected server accepts, in bytes.
    pub(crate) fn payload_max(&self) -> usize {
        self.client.server_info().max_payload
    }
}
