//! Reasons why a log cannot be opened.

use allstop_log::{LogError, LogErrorKind};

/// Oldest server with all that the log needs: messages with a time to live.
pub(crate) const SERVER_MIN: (i64, i64, i64) = (2, 11, 0);

/// Least size of a message at the servers.
pub(crate) const PAYLOAD_MIN: usize = 16 << 10;

/// Reason why a log cannot be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// There is no server, or it refuses the user.
    #[error("NATS cannot be reached at {servers}: {reason}")]
    Unreachable {
        /// Addresses of the servers, without users and passwords.
        servers: String,
        /// The reason.
        reason: String,
    },
    /// Something takes connections there, and does not answer as a NATS server.
    #[error("NATS does not answer at {servers}: timed out")]
    NoAnswer {
        /// Addresses of the servers, without users and passwords.
        servers: String,
    },
    /// The server is too old.
    #[error("the NATS server has version {found}, and {}.{} or later is needed", SERVER_MIN.0, SERVER_MIN.1)]
    ServerTooOld {
        /// Version of the server.
        found: String,
    },
    /// The server has no JetStream, or not for this account.
    #[error("the NATS server has no JetStream, or not for this account")]
    NoJetStream,
    /// There are fewer servers than copies of each record.
    #[error("the NATS servers cannot keep {replicas} copies of each record: {reason}")]
    Replicas {
        /// Copies that were asked for.
        replicas: usize,
        /// The reason.
        reason: String,
    },
    /// The streams cannot be opened or made.
    #[error("the streams of the log cannot be opened: {0}")]
    Streams(String),
    /// The server takes only short messages.
    #[error(
        "the NATS server takes messages of {found} bytes, and {PAYLOAD_MIN} are needed: raise `max_payload`"
    )]
    PayloadTooSmall {
        /// Most bytes of a message.
        found: usize,
    },
    /// A stream was made by others, with limits that drop records.
    #[error(
        "the stream {0} at the NATS server has limits of its own, which would drop records: use another prefix"
    )]
    OtherLimits(String),
    /// The file with credentials or certificates cannot be read.
    #[error("the credentials cannot be read: {0}")]
    Credentials(String),
    /// This program has no client.
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
