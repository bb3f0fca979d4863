//! Reads messages. The leader of the stream answers, because the data of a replica may be outdated.

use allstop_log::{LogError, LogErrorKind, RecordBytes, StreamName, Version};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessageError;
use bytes::{Bytes, BytesMut};

use crate::client::append_message::{AppendHead, MessageHead, pieces_of, records_of};
use crate::client::attempts::Attempts;
use crate::client::errors::{self, RequestFailure, place};
use crate::client::positions::Position;
use crate::client::store::NatsStore;

/// Size at which a read ends. The read stops after the append with which its records reach this number of bytes.
const READ_BYTES_MAX: usize = 8 << 20;

/// A message that contains an append.
#[derive(Debug)]
pub(crate) struct StoredAppend {
    pub head: AppendHead,
    pub sequence: u64,
    body: Bytes,
}

/// A message under the subject of a stream.
#[derive(Debug)]
enum Stored {
    Append(StoredAppend),
    /// The mark of a deletion, with its sequence number.
    Deletion(u64),
}

/// End of a stream.
#[derive(Debug)]
pub(crate) struct FoundEnd {
    pub position: Position,
    /// The last append. `None` if the stream is empty.
    pub append: Option<StoredAppend>,
}

impl Stored {
    fn of(message: StreamMessage) -> Result<Self, LogError> {
        let sequence = message.sequence;
        let head = MessageHead::of(&message.headers);
        Ok(
            match head.map_err(|error| errors::of_message(error, sequence))? {
                MessageHead::Deletion => Self::Deletion(sequence),
                MessageHead::Append(head) => Self::Append(StoredAppend {
                    head,
                    sequence,
                    body: message.payload,
                }),
            },
        )
    }
}

impl StoredAppend {
    pub(crate) fn position(&self) -> Position {
        Position {
            version: self.head.last(),
            sequence: self.sequence,
            deletion_sequence: self.head.deletion_sequence,
        }
    }
}

impl NatsStore {
    /// Finds the end of a stream.
    pub(crate) async fn end(&self, stream: &StreamName) -> Result<FoundEnd, LogError> {
        let subject = self.subject(stream);
        let last = self.message_by(|| {
            let ask = self.records.raw_message_builder();
            ask.last_by_subject(&*subject).send()
        });
        Ok(match last.await?.map(Stored::of).transpose()? {
            None => FoundEnd {
                position: Position::START,
                append: None,
            },
            Some(Stored::Deletion(sequence)) => FoundEnd {
                position: Position {
                    version: Version(0),
                    sequence,
                    deletion_sequence: sequence,
                },
                append: None,
            },
            Some(Stored::Append(append)) => FoundEnd {
                position: append.position(),
                append: Some(append),
            },
        })
    }

    /// Returns the first append of a stream whose sequence number in JetStream is this number or a greater number.
    pub(crate) async fn next(
        &self,
        stream: &StreamName,
        sequence: u64,
    ) -> Result<Option<StoredAppend>, LogError> {
        let subject = self.subject(stream);
        let mut sequence = sequence.max(1);
        loop {
            let message = self.message_by(|| {
                let (ask, subject) = (&self.records, subject.clone());
                ask.get_first_raw_message_by_subject(subject, sequence)
            });
            match message.await?.map(Stored::of).transpose()? {
                None => return Ok(None),
                Some(Stored::Append(append)) => return Ok(Some(append)),
                // Each further deletion has a greater sequence number, so the loop ends.
                Some(Stored::Deletion(deletion)) => sequence = deletion + 1,
            }
        }
    }

    /// Repeats the request until the servers answer.
    pub(crate) async fn message_by<F>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<Option<StreamMessage>, LogError>
    where
        F: Future<Output = Result<StreamMessage, RawMessageError>>,
    {
        let mut attempts = Attempts::within(self.options.answer_max);
        loop {
            let failure = match self.check_connection() {
                Err(failure) => failure,
                Ok(()) => match self.answer(ask()).await {
                    Some(Ok(message)) => return Ok(Some(message)),
                    Some(Err(error)) => match errors::of_read(error) {
                        None => return Ok(None),
                        Some(failure) => failure,
                    },
                    None => RequestFailure::Passing(errors::disconnected("read")),
                },
            };
            match failure {
                RequestFailure::Passing(_) if attempts.next().await => {}
                failure => return Err(failure.into_error()),
            }
        }
    }

    /// Reads the records of an append. `None` if the stream was deleted in the meantime.
    async fn records(&self, append: &StoredAppend) -> Result<Option<Vec<RecordBytes>>, LogError> {
        let damaged = |error| errors::of_message(error, append.sequence);
        let mut body = append.body.clone();
        if append.head.is_in_pieces {
            let mut whole = BytesMut::new();
            for sequence in pieces_of(body).map_err(damaged)? {
                let piece = self.message_by(|| self.records.get_raw_message(sequence));
                if let Some(piece) = piece.await? {
                    whole.extend_from_slice(&piece.payload);
                    continue;
                }
                let head = self.message_by(|| self.records.get_raw_message(append.sequence));
                if head.await?.is_none() {
                    return Ok(None);
                }
                let place = place(&format!("piece {sequence}"));
                return Err(LogError::new(LogErrorKind::Corrupt, place));
            }
            body = whole.freeze();
        }
        let records = records_of(body, append.head.count);
        records.map(Some).map_err(damaged)
    }

    /// Finds the append that contains this record. `None` if this record does not exist yet.
    pub(crate) async fn holding(
        &self,
        stream: &StreamName,
        number: Version,
    ) -> Result<Option<StoredAppend>, LogError> {
        let before = Version(number.0.saturating_sub(1));
        if let Some(known) = self.positions.at(stream, before) {
            let found = self.next(stream, known.sequence + 1).await?;
            match &found {
                Some(append) if append.head.holds(number) => return Ok(found),
                None => return Ok(None),
                // The position belongs to an earlier stream of this name, which was deleted.
                Some(_) => self.positions.forget(stream),
            }
        }
        self.search(stream, number).await
    }

    /// Finds the append with a binary search: later messages contain records with greater numbers.
    async fn search(
        &self,
        stream: &StreamName,
        number: Version,
    ) -> Result<Option<StoredAppend>, LogError> {
        let Some(last) = self.end(stream).await?.append else {
            return Ok(None);
        };
        if last.head.last() < number {
            return Ok(None);
        }
        if last.head.holds(number) {
            return Ok(Some(last));
        }
        // The sequence number of the append is at least `low` and less than `high`.
        let (mut low, mut high) = (1, last.sequence);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.next(stream, middle).await? {
                Some(found) if found.head.holds(number) => return Ok(Some(found)),
                Some(found) if found.head.last() < number => low = found.sequence + 1,
                _ => high = middle,
            }
        }
        // The stream was deleted in the meantime.
        Ok(None)
    }

    /// Implements [`Log::read`](allstop_log::Log::read).
    pub(crate) async fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> Result<Vec<(Version, RecordBytes)>, LogError> {
        let from = from.max(Version(1));
        let mut read = Vec::new();
        if limit == 0 {
            return Ok(read);
        }
        let mut bytes = 0;
        let mut next = self.holding(stream, from).await?;
        while let Some(append) = next {
            let Some(records) = self.records(&append).await? else {
                break;
            };
            let numbered = (append.head.first.0..).map(Version).zip(records);
            for (number, record) in numbered.filter(|(number, _)| *number >= from) {
                bytes += record.len();
                read.push((number, record));
                if read.len() == limit {
                    return Ok(read);
                }
            }
            self.positions.read(stream, append.position());
            if bytes >= READ_BYTES_MAX {
                break;
            }
            let expected = append.head.last().next();
            next = self.next(stream, append.sequence + 1).await?;
            // If the stream was deleted and created again, this read ends here, and the next call of `read` reads the
            // new stream.
            next = next.filter(|append| append.head.first == expected);
        }
        Ok(read)
    }
}
