//! Known positions of streams. A position gives the sequence number in JetStream for a version of a stream.
//!
//! The positions only save requests to the servers. A wrong position does no harm, because JetStream refuses an append
//! after a wrong position.

use allstop_log::{StreamName, Version};
use hashlink::LruCache;
use parking_lot::Mutex;

/// Number of streams whose positions are remembered.
const STREAMS_MAX: usize = 10_000;

/// Position of a version: the message with the last record of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub version: Version,
    /// Sequence number of the message that contains the last record of the version. For version 0, the sequence number
    /// of the deletion after which the stream began, or 0.
    pub sequence: u64,
    /// Sequence number of the deletion after which the present stream began. 0 if the stream was never deleted.
    pub deletion_sequence: u64,
}

impl Position {
    /// The position before the first record of a stream without earlier deletions.
    pub(crate) const START: Self = Self {
        version: Version(0),
        sequence: 0,
        deletion_sequence: 0,
    };
}

/// The last positions of the writer and of the reader of a stream.
#[derive(Debug, Clone, Copy)]
struct StreamPositions {
    written: Position,
    read: Position,
}

pub(crate) struct Positions(Mutex<LruCache<StreamName, StreamPositions>>);

impl Positions {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(LruCache::new(STREAMS_MAX)))
    }

    /// The position of this version, if it is known. For version 0 the method guesses that the stream was never
    /// deleted, because few streams are deleted.
    pub(crate) fn at(&self, stream: &StreamName, version: Version) -> Option<Position> {
        if version == Version(0) {
            return Some(Position::START);
        }
        let mut known = self.0.lock();
        let known = known.get(stream)?;
        [known.written, known.read]
            .into_iter()
            .find(|position| position.version == version)
    }

    pub(crate) fn written(&self, stream: &StreamName, position: Position) {
        self.note(stream, |known| known.written = position);
    }

    pub(crate) fn read(&self, stream: &StreamName, position: Position) {
        self.note(stream, |known| known.read = position);
    }

    /// Forgets the positions of a stream. The positions may belong to an earlier stream of this name, which was
    /// deleted.
    pub(crate) fn forget(&self, stream: &StreamName) {
        self.0.lock().remove(stream);
    }

    fn note(&self, stream: &StreamName, change: impl FnOnce(&mut StreamPositions)) {
        let mut all = self.0.lock();
        if let Some(known) = all.get_mut(stream) {
            change(known);
            return;
        }
        let mut known = StreamPositions {
            written: Position::START,
            read: Position::START,
        };
        change(&mut known);
        all.insert(stream.clone(), known);
    }
}
