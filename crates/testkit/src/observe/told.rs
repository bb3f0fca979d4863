//! Word that the user of a session was given of records and messages: whoever was told something must find it in the
//! log.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use allstop_core::{MessageId, StopReason, TurnNumber};
use allstop_log::Version;
use allstop_session::MessageOutcome;

const FILE: &str = "told";

/// Everything that the user was told.
#[derive(Debug, Clone, Default)]
pub struct ToldFacts {
    /// The newest record that the subscriber was given.
    pub newest_record: u64,
    /// Outcomes of messages.
    pub outcomes: Vec<ToldOutcome>,
}

/// Outcome of a message, as somebody was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldOutcome {
    /// The message.
    pub message: MessageId,
    /// The message that the outcome names itself.
    pub named: Option<MessageId>,
    /// Number of its turn, if it got one.
    pub turn: Option<TurnNumber>,
    /// Ending of that turn, as [`StopReason::as_str`] writes it.
    pub reason: String,
    /// The answer, where it was kept.
    pub output: String,
    /// True if recovery may have written the ending in place of the turn: hours passed at once meanwhile, longer than
    /// an ending waits for its store.
    pub may_be_recovered: bool,
}

impl ToldOutcome {
    /// An outcome as it was given to whoever sent the message.
    pub fn of(message: &MessageId, outcome: &MessageOutcome) -> Self {
        Self {
            message: message.clone(),
            named: outcome.message.clone(),
            turn: outcome.turn,
            reason: outcome.stop_reason.as_str().to_owned(),
            output: outcome.output.to_string(),
            may_be_recovered: false,
        }
    }

    /// True if a turn that ended like this is what was told.
    pub(crate) fn is(&self, reason: StopReason) -> bool {
        let recovered = self.may_be_recovered && reason == StopReason::Error;
        recovered || self.reason == reason.as_str()
    }
}

/// File beside the store, for a process that may be killed: each line is one write, so a kill loses none of them.
#[derive(Debug)]
pub(crate) struct ToldNotebook(File);

impl ToldNotebook {
    /// # Panics
    /// If there can be no file.
    pub(crate) fn begin(folder: &Path) -> Self {
        Self(File::create(folder.join(FILE)).expect("a file beside the store"))
    }

    /// Notes that the subscriber was given this record.
    pub(crate) fn record(&self, version: Version) {
        self.write(&format!("record {}\n", version.0));
    }

    /// Notes the outcome of a message. One without a turn leaves nothing in a store.
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

    /// Reads the notes of a process; no facts where it took none.
    ///
    /// # Errors
    /// The line that is none.
    pub(crate) fn read(folder: &Path) -> Result<ToldFacts, String> {
        let text = fs::read_to_string(folder.join(FILE)).unwrap_or_default();
        let mut told = ToldFacts::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let unreadable = || format!("written down was {line:?}");
            match words.as_slice() {
                ["record", version] => {
                    told.newest_record = version.parse().map_err(|_| unreadable())?;
                }
                ["outcome", message, turn, reason] => told.outcomes.push(ToldOutcome {
                    message: MessageId::new(*message),
                    named: Some(MessageId::new(*message)),
                    turn: Some(TurnNumber(turn.parse().map_err(|_| unreadable())?)),
                    reason: (*reason).to_owned(),
                    output: String::new(),
                    may_be_recovered: false,
                }),
                _ => return Err(unreadable()),
            }
        }
        Ok(told)
    }
}
