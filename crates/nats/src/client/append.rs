//! Append of records. An append is one message. The servers accept this message only if the last message of the subject
//! is the message that the append expects.

use std::time::Duration;

use allstop_log::{AppendError, AppendId, LogError, RecordBytes, StreamName, Version};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;

use crate::client::append_message::{AppendHead, body_of, body_of_pieces};
use crate::client::attempts::Attempts;
use crate::client::errors::{NotPublished, RequestFailure};
use crate::client::positions::Position;
use crate::client::store::NatsStore;

/// Number of bytes of a message that are reserved for headers.
const HEADERS_BYTES: usize = 4_096;

/// Maximum size of one piece of a long body. Even many messages of this size do not delay the short messages of other
/// appends.
const PIECE_BYTES_MAX: usize = 512 << 10;

/// Next step of an append.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AppendStep {
    /// Publish the message after this position.
    Publish(Position),
    /// The append is already stored. The value is the version after this append.
    Repeated(Version),
    /// Other writers have appended records.
    Conflict { actual: Version },
}

/// Decides the next step of an append. `last` is the end of the stream. If the stream is longer than expected, `holder`
/// is the append that contains the first record after the expected version.
pub(crate) fn decide(
    expected: Version,
    id: AppendId,
    last: Position,
    holder: Option<AppendHead>,
) -> AppendStep {
    if last.version == expected {
        return AppendStep::Publish(last);
    }
    let own = holder.filter(|head| head.id == id && head.first.0 == expected.0.saturating_add(1));
    match own {
        Some(head) => AppendStep::Repeated(head.last()),
        None => AppendStep::Conflict {
            actual: last.version,
        },
    }
}

impl NatsStore {
    /// Implements [`Log::append`](allstop_log::Log::append).
    pub(crate) async fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: &[RecordBytes],
    ) -> Result<Version, AppendError> {
        Self::check_name(stream)?;
        let mut attempts = Attempts::within(self.options.answer_max);
        let mut pieces = Pieces::default();
        // True if the servers may have stored the append. In this case, a later failure does not prove that the append
        // is not stored.
        let mut may_be_written = false;
        let mut known = self.positions.at(stream, expected);
        // The servers have confirmed the expected version once. If a server reports an earlier end, its data is
        // outdated.
        let is_confirmed = known.is_some() && expected > Version(0);
        loop {
            let step = match known.take() {
                Some(position) => Ok(AppendStep::Publish(position)),
                None => self.next_step(stream, expected, id).await,
            };
            let failure = match step {
                Ok(AppendStep::Repeated(version)) => return Ok(version),
                Ok(AppendStep::Conflict { actual })
                    if actual < expected && (may_be_written || is_confirmed) =>
                {
                    may_be_written = true;
                    None
                }
                Ok(AppendStep::Conflict { actual }) => {
                    self.remove(pieces).await;
                    return Err(AppendError::Conflict { actual });
                }
                Ok(AppendStep::Publish(position)) if records.is_empty() => {
                    // The known position may be outdated, so read the actual end.
                    let actual = self.end(stream).await?.position.version;
                    if actual == position.version {
                        return Ok(actual);
                    }
                    return Err(AppendError::Conflict { actual });
                }
                Ok(AppendStep::Publish(position)) => {
                    let published = self.publish_append(stream, position, id, records, &mut pieces);
                    match published.await {
                        Ok(written) => {
                            self.positions.written(stream, written);
                            return Ok(written.version);
                        }
                        Err(NotPublished::WrongPosition) => {
                            self.positions.forget(stream);
                            None
                        }
                        Err(NotPublished::Unknown(error)) => {
                            tracing::debug!(%error, %stream, "an append is not answered");
                            may_be_written = true;
                            None
                        }
                        Err(NotPublished::Failed(failure)) => Some(failure),
                    }
                }
                Err(error) => Some(RequestFailure::Lasting(error)),
            };
            let error = match failure {
                Some(RequestFailure::Lasting(error)) => Some(error),
                _ if attempts.next().await => continue,
                Some(RequestFailure::Passing(error)) => Some(error),
                None => None,
            };
            return Err(match error {
                Some(error) if !may_be_written => error.into(),
                // Also reached if other appends blocked the subject until the time was over. A repetition of this
                // append will show whether the append is stored.
                _ => AppendError::Indeterminate,
            });
        }
    }

    async fn next_step(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
    ) -> Result<AppendStep, LogError> {
        let last = self.end(stream).await?.position;
        let holder = if last.version > expected {
            let holder = self.holding(stream, expected.next()).await?;
            holder.map(|append| append.head)
        } else {
            None
        };
        Ok(decide(expected, id, last, holder))
    }

    async fn publish_append(
        &self,
        stream: &StreamName,
        position: Position,
        id: AppendId,
        records: &[RecordBytes],
        pieces: &mut Pieces,
    ) -> Result<Position, NotPublished> {
        let body = body_of(records);
        let body_bytes_max = self.payload_max().saturating_sub(HEADERS_BYTES);
        let is_in_pieces = body.len() > body_bytes_max;
        let body = if is_in_pieces {
            self.publish_pieces(stream, position.deletion_sequence, &body, pieces)
                .await?;
            body_of_pieces(&pieces.sequences)
        } else {
            body
        };
        let head = AppendHead {
            id,
            first: position.version.next(),
            count: records.len() as u64,
            deletion_sequence: position.deletion_sequence,
            is_in_pieces,
        };
        let message = PublishMessage::build()
            .headers(head.headers())
            .payload(body)
            .expected_last_subject_sequence(position.sequence);
        let sequence = self.publish_message(self.subject(stream), message).await?;
        Ok(Position {
            version: head.last(),
            sequence,
            deletion_sequence: position.deletion_sequence,
        })
    }

    /// Publishes the pieces of the body that are not published yet.
    async fn publish_pieces(
        &self,
        stream: &StreamName,
        deletion_sequence: u64,
        body: &Bytes,
        pieces: &mut Pieces,
    ) -> Result<(), NotPublished> {
        let piece_len = PIECE_BYTES_MAX.min(self.payload_max().saturating_sub(HEADERS_BYTES));
        if (pieces.deletion_sequence, pieces.piece_len) != (deletion_sequence, piece_len) {
            // The stream was deleted and created again, or the connection is now to a server that accepts only shorter
            // messages.
            self.remove(std::mem::take(pieces)).await;
            (pieces.deletion_sequence, pieces.piece_len) = (deletion_sequence, piece_len);
        }
        for piece in body.chunks(piece_len.max(1)).skip(pieces.sequences.len()) {
            let message = PublishMessage::build().payload(body.slice_ref(piece));
            let subject = self.piece_subject(stream, deletion_sequence);
            let sequence = self.publish_message(subject, message).await;
            // After an unknown outcome, the piece is published again. A duplicate piece is harmless, because no message
            // refers to it.
            pieces.sequences.push(sequence.map_err(|error| match error {
                NotPublished::Unknown(error) => {
                    NotPublished::Failed(RequestFailure::Passing(error))
                }
                other => other,
            })?);
        }
        Ok(())
    }

    /// Removes pieces that no message refers to. If a piece cannot be removed, it is deleted together with its stream
    /// later.
    async fn remove(&self, pieces: Pieces) {
        for sequence in pieces.sequences {
            let removed = self.records.delete_message(sequence);
            if !matches!(
                tokio::time::timeout(REMOVAL_MAX, removed).await,
                Ok(Ok(true))
            ) {
                tracing::debug!(sequence, "a piece of a refused append stays");
            }
        }
    }
}

/// Timeout for the removal of one piece.
const REMOVAL_MAX: Duration = Duration::from_secs(1);

/// Published pieces of a long body.
#[derive(Debug, Default)]
struct Pieces {
    deletion_sequence: u64,
    piece_len: usize,
    sequences: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn append_is_decided_by_the_end_of_the_stream_and_its_own_id() {
        let at = |version, sequence| Position {
            version: Version(version),
            sequence,
            deletion_sequence: 0,
        };
        let head = |id, first, count| AppendHead {
            id: AppendId(id),
            first: Version(first),
            count,
            deletion_sequence: 0,
            is_in_pieces: false,
        };
        let decided = |expected, last, holder| decide(Version(expected), AppendId(7), last, holder);
        let conflict = |version| AppendStep::Conflict {
            actual: Version(version),
        };
        assert_eq!(decided(3, at(3, 90), None), AppendStep::Publish(at(3, 90)));
        // The expected version is after the end of the stream.
        assert_eq!(decided(4, at(3, 90), None), conflict(3));
        assert_eq!(decided(u64::MAX, at(3, 90), None), conflict(3));
        // The append is already stored. Later messages may follow.
        assert_eq!(
            decided(3, at(5, 91), Some(head(7, 4, 2))),
            AppendStep::Repeated(Version(5))
        );
        assert_eq!(
            decided(3, at(9, 99), Some(head(7, 4, 2))),
            AppendStep::Repeated(Version(5))
        );
        // The records were stored by other writers, or by an append with this id at another version.
        assert_eq!(decided(3, at(5, 91), Some(head(8, 4, 2))), conflict(5));
        assert_eq!(decided(4, at(5, 91), Some(head(7, 4, 2))), conflict(5));
    }
}
