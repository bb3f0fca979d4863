//! Reads of messages, from the leader of the stream: a replica may be behind.

use allstop_log::{LogError, LogErrorKind, RecordBytes, StreamName, Version};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessageError;
use bytes::{Bytes, BytesMut};

use crate::append_message::{AppendHead, pieces_of, records_of};
use crate::attempts::Attempts;
use crate::errors::{self, RequestFailure, place};
use crate::positions::Position;
use crate::store::NatsStore;

/// Bytes of records after which a read answers with what it has.
const READ_BYTES_MAX: usize = 8 << 20;

/// Message with an append.
#[derive(Debug)]
pub(crate) struct StoredAppend {
    pub head: AppendHead,
    pub sequence: u64,
    body: Bytes,
}

impl StoredAppend {
    fn of(message: StreamMessage) -> Result<Self, LogError> {
        let head = AppendHead::of(&message.headers)
            .map_err(|error| errors::of_message(error, message.sequence))?;
        Ok(Self {
            head,
            sequence: message.sequence,
            body: message.payload,
        })
    }

    pub(crate) fn position(&self) -> Position {
        Position {
            version: self.head.last(),
            sequence: self.sequence,
        }
    }
}

impl NatsStore {
    /// The last append of a stream; `None` if it has none.
    pub(crate) async fn last(&self, stream: &StreamName) -> Result<Option<StoredAppend>, LogError> {
        let subject = self.subject(stream);
        self.append_by(|| {
            self.records
                .raw_message_builder()
                .last_by_subject(&*subject)
                .send()
        })
        .await
    }

    /// The first append of a stream at this sequence number of JetStream or behind it.
    pub(crate) async fn next(
        &self,
        stream: &StreamName,
        sequence: u64,
    ) -> Result<Option<StoredAppend>, LogError> {
        let subject = self.subject(stream);
        self.append_by(|| {
            self.records
                .get_first_raw_message_by_subject(subject.clone(), sequence.max(1))
        })
        .await
    }

    async fn append_by<F>(&self, ask: impl Fn() -> F) -> Result<Option<StoredAppend>, LogError>
    where
        F: Future<Output = Result<StreamMessage, RawMessageError>>,
    {
        let message = self.message_by(ask).await?;
        message.map(StoredAppend::of).transpose()
    }

    /// Asks until there is an answer.
    pub(crate) async fn message_by<F>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<Option<StreamMessage>, LogError>
    where
        F: Future<Output = Result<StreamMessage, RawMessageError>>,
    {
        let mut attempts = Attempts::within(self.options.answer_max);
        loop {
            let failure = match self.answer(ask()).await {
                Some(Ok(message)) => return Ok(Some(message)),
                Some(Err(error)) => match errors::of_read(error) {
                    None => return Ok(None),
                    Some(failure) => failure,
                },
                None => RequestFailure::Passing(errors::disconnected("read")),
            };
            match failure {
                RequestFailure::Passing(_) if attempts.next().await => {}
                failure => return Err(failure.into_error()),
            }
        }
    }

    /// Records of an append.
    pub(crate) async fn records(
        &self,
        append: &StoredAppend,
    ) -> Result<Vec<RecordBytes>, LogError> {
        let damaged = |error| errors::of_message(error, append.sequence);
        let mut body = append.body.clone();
        if append.head.is_in_pieces {
            let mut whole = BytesMut::new();
            for sequence in pieces_of(body).map_err(damaged)? {
                let piece = self
                    .message_by(|| self.records.get_raw_message(sequence))
                    .await?;
                let piece = piece.ok_or_else(|| {
                    LogError::new(LogErrorKind::Corrupt, place(&format!("piece {sequence}")))
                })?;
                whole.extend_from_slice(&piece.payload);
            }
            body = whole.freeze();
        }
        records_of(body, append.head.count).map_err(damaged)
    }

    /// The append that holds this record; `None` if there is none yet.
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
                // The position was that of a deleted stream.
                Some(_) => self.positions.forget(stream),
            }
        }
        self.search(stream, number).await
    }

    /// Searches the messages by halves: their numbers rise with their sequence numbers.
    async fn search(
        &self,
        stream: &StreamName,
        number: Version,
    ) -> Result<Option<StoredAppend>, LogError> {
        let Some(last) = self.last(stream).await? else {
            return Ok(None);
        };
        if last.head.last() < number {
            return Ok(None);
        }
        if last.head.holds(number) {
            return Ok(Some(last));
        }
        // The append lies at `low` or behind it, and before `high`.
        let (mut low, mut high) = (1, last.sequence);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.next(stream, middle).await? {
                Some(found) if found.head.holds(number) => return Ok(Some(found)),
                Some(found) if found.head.last() < number => low = found.sequence + 1,
                _ => high = middle,
            }
        }
        // Its stream was deleted meanwhile.
        Ok(None)
    }

    /// Reads records as [`Log::read`](allstop_log::Log::read) has it.
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
            let records = self.records(&append).await?;
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
            // A stream that was deleted and begins again is read by the next call.
            next = next.filter(|append| append.head.first == expected);
        }
        Ok(read)
    }
}
