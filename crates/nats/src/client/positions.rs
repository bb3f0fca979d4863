//! Known positions of streams: each maps a version to its sequence number in JetStream.
//!
//! The positions save a request to the servers and decide nothing: JetStream refuses an append with a wrong position.

use allstop_log::{StreamName, Version};
use hashlink::LruCache;
use parking_lot::Mutex;

/// Number of streams whose positions are remembered.
const STREAMS_MAX: usize = 10_000;

/// Last message of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub version: Version,
    /// Sequence number of the message with the version's last record. For version 0, the number of the deletion before
    /// it, or 0.
    pub sequence: u64,
    /// Sequence number of the deletion after which the stream began; 0 without a deletion.
    pub deletion_sequence: u64,
}

impl Position {
    /// The position before the first record of a stream that was never deleted.
    pub(crate) const START: Self = Self {
        version: Version(0),
        sequence: 0,
        deletion_sequence: 0,
    };
}

/// Last positions of a writer and of a reader.
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

    /// The position of this version, if it is known. The position of version 0 is a guess, because few streams were
    /// ever deleted.
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

    /// Forgets a stream whose positions may belong to a deleted predecessor.
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
