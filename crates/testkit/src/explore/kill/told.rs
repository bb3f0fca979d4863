//! What the user of a session was told before its process was killed: written down as it is told, beside the store.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use allstop_core::{MessageId, StopReason, TurnNumber};
use allstop_log::Version;
use allstop_session::MessageOutcome;

const FILE: &str = "told";

/// Where it is written down. A killed process loses nothing of it: each line is one write, and the system has it then.
#[derive(Debug)]
pub(crate) struct Notebook(File);

impl Notebook {
    /// # Panics
    /// If there can be no file.
    pub(super) fn begin(folder: &Path) -> Self {
        Self(File::create(folder.join(FILE)).expect("a file beside the store"))
    }

    /// The subscriber was given this record.
    pub(crate) fn record(&self, version: Version) {
        self.write(&format!("record {}\n", version.0));
    }

    /// Somebody was told what a message came to.
    pub(crate) fn outcome(&self, message: &MessageId, outcome: &MessageOutcome) {
        if let Some(turn) = outcome.turn {
            let reason = outcome.stop_reason.as_str();
            self.write(&format!("outcome {message} {turn} {reason}\n"));
        }
    }

    fn write(&self, line: &str) {
        let mut file = &self.0;
        file.write_all(line.as_bytes())
            .expect("a disk with room for a line");
    }
}

/// A message that somebody was told the outcome of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldOutcome {
    /// Which message.
    pub message: MessageId,
    /// The number of its turn.
    pub turn: TurnNumber,
    /// How that ended, as [`StopReason::as_str`] says it.
    pub reason: String,
}

impl ToldOutcome {
    /// Whether it ended like this.
    pub(super) fn is(&self, reason: StopReason) -> bool {
        self.reason == reason.as_str()
    }
}

/// What was told.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// The newest record that the subscriber was given.
    pub newest_record: u64,
    /// What messages came to. Those without a turn leave nothing in a store.
    pub outcomes: Vec<ToldOutcome>,
}

impl Told {
    /// Reads what a process wrote down; nothing where it did not.
    pub(super) fn read(folder: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(folder.join(FILE)).unwrap_or_default();
        let mut told = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let unreadable = || format!("written down was {line:?}");
            match words.as_slice() {
                ["record", version] => {
                    told.newest_record = version.parse().map_err(|_| unreadable())?;
                }
                ["outcome", message, turn, reason] => told.outcomes.push(ToldOutcome {
                    message: MessageId::new(*message),
                    turn: TurnNumber(turn.parse().map_err(|_| unreadable())?),
                    reason: (*reason).to_owned(),
                }),
                _ => return Err(unreadable()),
            }
        }
        Ok(told)
    }
}
