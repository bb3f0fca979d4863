//! JetStream messages under the subject of a log stream. A message is either an append or the mark of a deletion.
//!
//! The headers describe the append, so that a conflict can be decided without the body. The body contains the records;
//! the length of each record precedes the record. If the body would exceed the size limit of the servers, it is stored
//! in pieces. The body of the append then contains the sequence numbers of the messages with the pieces.

use allstop_log::{AppendId, RecordBytes, Version};
use async_nats::HeaderMap;
use async_nats::header::NATS_ROLLUP;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// Version of this format. Readers refuse messages with a higher version.
const FORMAT: u64 = 1;

const FORMAT_HEADER: &str = "Allstop-Format";
const APPEND_HEADER: &str = "Allstop-Append";
const FIRST_HEADER: &str = "Allstop-First";
const COUNT_HEADER: &str = "Allstop-Count";
const DELETION_HEADER: &str = "Allstop-Birth";
/// Header that is present if the body contains the sequence numbers of the pieces.
const PIECES_HEADER: &str = "Allstop-Pieces";
/// Header that is present in the mark of a deletion.
const DELETED_HEADER: &str = "Allstop-Deleted";

/// Number of bytes for the length before each record.
const LEN_BYTES: usize = 4;

/// Headers of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageHead {
    Append(AppendHead),
    /// The stream was deleted with this message. A stream that ends with such a message is empty.
    Deletion,
}

impl MessageHead {
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, BadMessage> {
        match headers.get(DELETED_HEADER) {
            Some(_) => Ok(Self::Deletion),
            None => AppendHead::of(headers).map(Self::Append),
        }
    }
}

/// Headers of the mark of a deletion, which replaces all messages of its subject.
pub(crate) fn deletion_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(FORMAT_HEADER, FORMAT.to_string());
    headers.insert(DELETED_HEADER, "1");
    headers.insert(NATS_ROLLUP, "sub");
    headers
}

/// Description of an append, stored in the headers of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AppendHead {
    pub id: AppendId,
    /// Number of the first record.
    pub first: Version,
    /// Number of records, at least 1.
    pub count: u64,
    /// Sequence number of the deletion after which the present stream began. 0 if the stream was never deleted. The
    /// subject of the pieces contains this number.
    pub deletion_sequence: u64,
    pub is_in_pieces: bool,
}

/// Reason why a message cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadMessage {
    /// A newer version has written the message.
    #[error("the message was written by a newer version")]
    Newer,
    /// Another program has written the message, or the message is damaged.
    #[error("the message is damaged")]
    Damaged,
}

impl AppendHead {
    /// Number of the last record. This is also the version of the stream after this append.
    pub(crate) fn last(&self) -> Version {
        Version(self.first.0 + self.count - 1)
    }

    /// True if the append contains the record with this number.
    pub(crate) fn holds(&self, number: Version) -> bool {
        self.first <= number && number <= self.last()
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(FORMAT_HEADER, FORMAT.to_string());
        headers.insert(APPEND_HEADER, format!("{:032x}", self.id.0));
        headers.insert(FIRST_HEADER, self.first.to_string());
        headers.insert(COUNT_HEADER, self.count.to_string());
        headers.insert(DELETION_HEADER, self.deletion_sequence.to_string());
        if self.is_in_pieces {
            headers.insert(PIECES_HEADER, "1");
        }
        headers
    }

    fn of(headers: &HeaderMap) -> Result<Self, BadMessage> {
        let number = |name| headers.get(name)?.as_str().parse::<u64>().ok();
        let format = number(FORMAT_HEADER).ok_or(BadMessage::Damaged)?;
        if format > FORMAT {
            return Err(BadMessage::Newer);
        }
        let head = || {
            let id = headers.get(APPEND_HEADER)?.as_str();
            let head = Self {
                id: AppendId(u128::from_str_radix(id, 16).ok()?),
                first: Version(number(FIRST_HEADER)?),
                count: number(COUNT_HEADER)?,
                deletion_sequence: number(DELETION_HEADER)?,
                is_in_pieces: headers.get(PIECES_HEADER).is_some(),
            };
            let is_valid = head.first.0 > 0 && head.count > 0;
            (is_valid && head.first.0.checked_add(head.count).is_some()).then_some(head)
        };
        head().ok_or(BadMessage::Damaged)
    }
}

/// Creates a body with these records.
pub(crate) fn body_of(records: &[RecordBytes]) -> Bytes {
    let len = records.iter().map(|record| LEN_BYTES + record.len()).sum();
    let mut body = BytesMut::with_capacity(len);
    for record in records {
        // The length always fits in 32 bits. No store accepts a record of 4 GiB, because messages of the servers are
        // shorter, and all pieces together are one body.
        body.put_u32_le(u32::try_from(record.len()).unwrap_or(u32::MAX));
        body.extend_from_slice(record);
    }
    body.freeze()
}

/// Parses the records of a body.
pub(crate) fn records_of(mut body: Bytes, count: u64) -> Result<Vec<RecordBytes>, BadMessage> {
    let mut records = Vec::new();
    while !body.is_empty() {
        let len = body
            .try_get_u32_le()
            .map_err(|_short| BadMessage::Damaged)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > body.len() {
            return Err(BadMessage::Damaged);
        }
        records.push(body.split_to(len));
    }
    let is_complete = u64::try_from(records.len()).is_ok_and(|len| len == count);
    is_complete.then_some(records).ok_or(BadMessage::Damaged)
}

/// Creates a body with the sequence numbers of the pieces.
pub(crate) fn body_of_pieces(sequences: &[u64]) -> Bytes {
    let mut body = BytesMut::with_capacity(sequences.len() * 8);
    for sequence in sequences {
        body.put_u64_le(*sequence);
    }
    body.freeze()
}

/// Parses the sequence numbers of the pieces.
pub(crate) fn pieces_of(mut body: Bytes) -> Result<Vec<u64>, BadMessage> {
    let mut sequences = Vec::with_capacity(body.len() / 8);
    while !body.is_empty() {
        let sequence = body
            .try_get_u64_le()
            .map_err(|_short| BadMessage::Damaged)?;
        sequences.push(sequence);
    }
    Ok(sequences)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_of_others_are_refused() {
        assert_eq!(AppendHead::of(&HeaderMap::new()), Err(BadMessage::Damaged));
        let head = AppendHead {
            id: AppendId(7),
            first: Version(1),
            count: 1,
            deletion_sequence: 9,
            is_in_pieces: true,
        };
        let read = |headers: &HeaderMap| MessageHead::of(headers);
        assert_eq!(read(&head.headers()), Ok(MessageHead::Append(head)));
        assert_eq!(read(&deletion_headers()), Ok(MessageHead::Deletion));
        for (name, value, error) in [
            (FORMAT_HEADER, "2", BadMessage::Newer),
            (APPEND_HEADER, "x", BadMessage::Damaged),
            (FIRST_HEADER, "0", BadMessage::Damaged),
            (COUNT_HEADER, "0", BadMessage::Damaged),
            (COUNT_HEADER, "18446744073709551615", BadMessage::Damaged),
        ] {
            let mut headers = head.headers();
            headers.insert(name, value);
            assert_eq!(AppendHead::of(&headers), Err(error), "{name}: {value}");
        }
    }

    proptest! {
        #[test]
        fn records_come_back(records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..9)) {
            let records: Vec<RecordBytes> = records.into_iter().map(Bytes::from).collect();
            let count = records.len() as u64;
            let body = body_of(&records);
            prop_assert_eq!(records_of(body.clone(), count), Ok(records));
            prop_assert_eq!(records_of(body, count + 1), Err(BadMessage::Damaged));
        }

        #[test]
        fn no_body_makes_a_reader_panic(body in prop::collection::vec(any::<u8>(), 0..60), count in 0_u64..5) {
            let body = Bytes::from(body);
            drop((records_of(body.clone(), count), pieces_of(body)));
        }
    }
}
