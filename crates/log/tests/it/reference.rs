//! Reference implementation of a log. The streams are vectors, and the log remembers every append.

use std::collections::BTreeMap;

use allstop_log::{AppendError, AppendId, RecordBytes, StreamName, Version};

/// The reference log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reference {
    streams: BTreeMap<StreamName, Stream>,
}

#[derive(Debug, Clone, Default)]
struct Stream {
    records: Vec<RecordBytes>,
    /// Id, expected version and new version of each append that wrote records.
    appends: Vec<(AppendId, Version, Version)>,
}

/// One append. It can be repeated.
#[derive(Debug, Clone)]
pub(crate) struct Append {
    pub(crate) stream: StreamName,
    pub(crate) expected: Version,
    pub(crate) id: AppendId,
    pub(crate) records: Vec<RecordBytes>,
}

impl Reference {
    /// Result of an append: the new version, or the present version if there is a conflict.
    pub(crate) fn append(&mut self, append: &Append) -> Result<Version, Version> {
        let stream = self.streams.entry(append.stream.clone()).or_default();
        let actual = Version(stream.records.len() as u64);
        if append.expected == actual {
            stream.records.extend(append.records.iter().cloned());
            let reached = Version(stream.records.len() as u64);
            if reached != actual {
                stream.appends.push((append.id, actual, reached));
            }
            return Ok(reached);
        }
        let before = stream
            .appends
            .iter()
            .find(|(id, expected, _)| (*id, *expected) == (append.id, append.expected));
        before.map(|(_, _, reached)| *reached).ok_or(actual)
    }

    pub(crate) fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> Vec<(Version, RecordBytes)> {
        let records = self.streams.get(stream).map(|s| &s.records[..]);
        let numbered = (1..).map(Version).zip(records.unwrap_or_default().to_vec());
        numbered
            .skip_while(|(number, _)| *number < from)
            .take(limit)
            .collect()
    }

    pub(crate) fn version(&self, stream: &StreamName) -> Version {
        Version(
            self.streams
                .get(stream)
                .map_or(0, |s| s.records.len() as u64),
        )
    }

    pub(crate) fn list(&self, prefix: &str) -> Vec<(StreamName, Version)> {
        let all = self
            .streams
            .keys()
            .map(|name| (name.clone(), self.version(name)));
        all.filter(|(name, version)| name.as_str().starts_with(prefix) && *version > Version(0))
            .collect()
    }

    pub(crate) fn delete(&mut self, stream: &StreamName) {
        self.streams.remove(stream);
    }
}

/// True if the log's result equals the result of the reference log.
pub(crate) fn is_same(
    given: &Result<Version, AppendError>,
    answer: Result<Version, Version>,
) -> bool {
    match given {
        Ok(version) => answer == Ok(*version),
        Err(AppendError::Conflict { actual }) => answer == Err(*actual),
        Err(_) => false,
    }
}
