//! Reasons why a log cannot be opened.

use allstop_log::{LogError, LogErrorKind};

/// Oldest server version that has all required features. The newest of these features is the time to live of messages.
pub(crate) const SERVER_MIN: (i64, i64, i64) = (2, 11, 0);

/// Minimum value for the servers' size limit of a message.
pub(crate) const PAYLOAD_MIN: usize = 16 << 10;

/// Reason why a log cannot be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// No server can be reached, or the server refuses the user.
    #[error("NATS cannot be reached at {servers}: {reason}")]
    Unreachable {
        /// Addresses of the servers, without users and passwords.
        servers: String,
        /// The reason.
        reason: String,
    },
    /// A program accepts connections at this address but does not answer like a NATS server.
    #[error("NATS does not answer at {servers}: timed out")]
    NoAnswer {
        /// Addresses of the servers, without users and passwords.
        servers: String,
    },
    /// The server is too old.
    #[error("the NATS server has version {found}; the required version is {}.{} or later", SERVER_MIN.0, SERVER_MIN.1)]
    ServerTooOld {
        /// Version of the server.
        found: String,
    },
    /// The server has no JetStream, or JetStream is not enabled for this account.
    #[error("JetStream is off at the NATS server, or for this account")]
    NoJetStream,
    /// The number of servers in the cluster is smaller than the number of copies of each record.
    #[error("the NATS servers cannot keep {replicas} copies of each record: {reason}")]
    Replicas {
        /// Requested number of copies.
        replicas: usize,
        /// The reason.
        reason: String,
    },
    /// The streams cannot be opened or created.
    #[error("the streams of the log cannot be opened: {0}")]
    Streams(String),
    /// The size limit of the server for a message is too low.
    #[error(
        "the NATS server accepts messages of at most {found} bytes, but Allstop needs {PAYLOAD_MIN}: raise `max_payload`"
    )]
    PayloadTooSmall {
        /// Size of the largest message that the server accepts, in bytes.
        found: usize,
    },
    /// Another program has created a stream of this name, with limits that can drop records.
    #[error(
        "the stream {0} at the NATS server has its own limits, which would drop records: use another prefix, --nats-prefix NAME"
    )]
    OtherLimits(String),
    /// The file with the credentials or the certificates cannot be read.
    #[error("the credentials cannot be read: {0}")]
    Credentials(String),
    /// The program was built without the NATS client.
    #[error("this program was built without the feature `nats`")]
    NotBuilt,
    /// The scope of the log is stopped.
    #[error("the program is stopping")]
    Stopping,
}

impl From<ConnectError> for LogError {
    fn from(error: ConnectError) -> Self {
        let kind = match error {
            ConnectError::Unreachable { .. } | ConnectError::NoAnswer { .. } => {
                LogErrorKind::Unreachable
            }
            ConnectError::Stopping => LogErrorKind::Closed,
            _ => LogErrorKind::Io,
        };
        Self::new(kind, "NATS").caused_by(error)
    }
}
