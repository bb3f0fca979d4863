//! Converts errors of the servers to errors of the log.

use std::error::Error as _;
use std::sync::Arc;

use allstop_log::{LogError, LogErrorKind};
use async_nats::jetstream::Error as ServerError;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::stream::{RawMessageError, RawMessageErrorKind};

use crate::client::append_message::BadMessage;

/// Failure of one request.
#[derive(Debug, Clone)]
pub(crate) enum RequestFailure {
    /// A later attempt may succeed: there was no leader, no connection, or no answer.
    Passing(LogError),
    /// No later attempt can succeed.
    Lasting(LogError),
}

impl RequestFailure {
    pub(crate) fn into_error(self) -> LogError {
        match self {
            Self::Passing(error) | Self::Lasting(error) => error,
        }
    }
}

/// Failure of a publication.
#[derive(Debug)]
pub(crate) enum NotPublished {
    /// The last message of the subject is not the expected message, or another append to the subject is in progress.
    WrongPosition,
    /// The servers may have stored the message.
    Unknown(LogError),
    /// The servers have not stored the message.
    Failed(RequestFailure),
}

impl NotPublished {
    pub(crate) fn into_error(self) -> LogError {
        match self {
            Self::WrongPosition => LogError::new(LogErrorKind::Busy, place("publish")),
            Self::Unknown(error) => error,
            Self::Failed(failure) => failure.into_error(),
        }
    }
}

/// Text for an error message that names the failed operation.
pub(crate) fn place(what: &str) -> Arc<str> {
    format!("NATS, {what}").into()
}

pub(crate) fn unreachable(
    what: &str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> LogError {
    LogError::new(LogErrorKind::Unreachable, place(what)).caused_by(error)
}

/// Error of a request whose connection was lost before the answer came.
pub(crate) fn disconnected(what: &str) -> LogError {
    LogError::new(LogErrorKind::Unreachable, place(what))
}

pub(crate) fn of_message(error: BadMessage, sequence: u64) -> LogError {
    let kind = match error {
        BadMessage::Newer => LogErrorKind::NewerVersion,
        BadMessage::Damaged => LogErrorKind::Corrupt,
    };
    LogError::new(kind, place(&format!("message {sequence}"))).caused_by(error)
}

/// Failure of a read. `None` if the message does not exist.
pub(crate) fn of_read(error: RawMessageError) -> Option<RequestFailure> {
    match error.kind() {
        RawMessageErrorKind::NoMessageFound => None,
        RawMessageErrorKind::JetStream(server) => Some(of_server("read", &server)),
        RawMessageErrorKind::InvalidSubject => {
            let error = LogError::new(LogErrorKind::Io, place("read")).caused_by(error);
            Some(RequestFailure::Lasting(error))
        }
        RawMessageErrorKind::Other => Some(RequestFailure::Passing(unreachable("read", error))),
    }
}

/// Failure of a publication. If the error arose before the servers store a message, the message is certainly not
/// stored. After any other error, the message may be stored: servers also return errors that arise after their group
/// has agreed on the message.
pub(crate) fn of_publish(error: PublishError, replicas: usize) -> NotPublished {
    let server = error.source();
    if let Some(server) = server.and_then(|source| source.downcast_ref::<ServerError>()) {
        let is_full = replicas == 1 && FULL.contains(&server.error_code());
        return if is_wrong_position(server) {
            NotPublished::WrongPosition
        } else if is_full || BEFORE_STORED.contains(&server.error_code()) {
            NotPublished::Failed(of_server("publish", server))
        } else {
            NotPublished::Unknown(unreachable("publish", server.clone()))
        };
    }
    match error.kind() {
        // No server accepts the subject at this time, because the stream has no leader.
        PublishErrorKind::StreamNotFound => {
            NotPublished::Failed(RequestFailure::Passing(unreachable("publish", error)))
        }
        _ => NotPublished::Unknown(unreachable("publish", error)),
    }
}

/// Failure of a publication that the client did not pass to the connection.
pub(crate) fn of_unsent(error: PublishError) -> NotPublished {
    NotPublished::Failed(match error.kind() {
        PublishErrorKind::TimedOut | PublishErrorKind::MaxAckPending => {
            RequestFailure::Passing(unreachable("publish", error))
        }
        _ => RequestFailure::Lasting(
            LogError::new(LogErrorKind::Io, place("publish")).caused_by(error),
        ),
    })
}

/// Errors that the servers return before they store a message.
const BEFORE_STORED: [ErrorCode; 6] = [
    ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM,
    ErrorCode::STREAM_SEALED,
    ErrorCode::MESSAGE_TTL_INVALID,
    ErrorCode::MESSAGE_TTL_DISABLED,
    ErrorCode::JETSTREAM_NOT_ENABLED,
    ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT,
];

/// Errors that the servers return if there is no space.
const FULL: [ErrorCode; 4] = [
    ErrorCode::INSUFFICIENT_RESOURCES,
    ErrorCode::STORAGE_RESOURCES_EXCEEDED,
    ErrorCode::MEMORY_RESOURCES_EXCEEDED,
    ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
];

/// True if the last message of the subject is not the expected message, or if the servers have not finished another
/// append to this subject.
fn is_wrong_position(error: &ServerError) -> bool {
    [
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE,
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT,
        ErrorCode::STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_NOT_READY,
    ]
    .contains(&error.error_code())
}

/// Status code of a server that cannot answer at this time. The codes are like the codes of HTTP.
const UNAVAILABLE: usize = 503;

fn of_server(what: &str, error: &ServerError) -> RequestFailure {
    let code = error.error_code();
    if FULL.contains(&code) {
        let error = LogError::new(LogErrorKind::Full, place(what)).caused_by(error.clone());
        return RequestFailure::Lasting(error);
    }
    if error.code() == UNAVAILABLE || code == ErrorCode::CLUSTER_NOT_LEADER {
        return RequestFailure::Passing(unreachable(what, error.clone()));
    }
    let error = LogError::new(LogErrorKind::Io, place(what)).caused_by(error.clone());
    RequestFailure::Lasting(error)
}
