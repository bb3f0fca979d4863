//! Facts that were delivered to the user of a session. The log must contain each delivered fact.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use allstop_core::{MessageId, StopReason, TurnNumber};
use allstop_log::Version;
use allstop_session::MessageOutcome;

const FILE: &str = "delivered";

/// All facts that were delivered to the user.
#[derive(Debug, Clone, Default)]
pub struct DeliveredFacts {
    /// Number of the last record that the subscriber received.
    pub newest_record: u64,
    /// Outcomes of messages.
    pub outcomes: Vec<DeliveredOutcome>,
}

/// Outcome of a message, as it was delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveredOutcome {
    /// The message.
    pub message: MessageId,
    /// The message that the outcome itself names.
    pub named: Option<MessageId>,
    /// Number of the message's turn; `None` if it has no turn.
    pub turn: Option<TurnNumber>,
    /// Ending of that turn, in the form of [`StopReason::as_str`].
    pub reason: String,
    /// The answer; empty if the notes of a process do not contain it.
    pub output: String,
    /// True if recovery may have written the ending in place of the turn: the clock jumped by hours, longer than an
    /// ending waits for its store.
    pub may_be_recovered: bool,
}

impl DeliveredOutcome {
    /// Converts an outcome as it was delivered to the sender of the message.
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

    /// True if a turn with this ending fits the delivered outcome.
    pub(crate) fn is(&self, reason: StopReason) -> bool {
        let recovered = self.may_be_recovered && reason == StopReason::Error;
        recovered || self.reason == reason.as_str()
    }
}

/// File next to the store, for a process that may be killed. Each line is one write, so a kill loses no line.
#[derive(Debug)]
pub(crate) struct DeliveryJournal(File);

impl DeliveryJournal {
    /// # Panics
    /// Panics if the file cannot be created.
    pub(crate) fn begin(folder: &Path) -> Self {
        Self(File::create(folder.join(FILE)).expect("a file beside the store"))
    }

    /// Notes that the subscriber received this record.
    pub(crate) fn record(&self, version: Version) {
        self.write(&format!("record {}\n", version.0));
    }

    /// Notes the outcome of a message. Skips a message without a turn, because it has no trace in a store.
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

    /// Reads the notes of a process; empty if the process wrote none.
    ///
    /// # Errors
    /// Returns an error that quotes an invalid line.
    pub(crate) fn read(folder: &Path) -> Result<DeliveredFacts, String> {
        let text = fs::read_to_string(folder.join(FILE)).unwrap_or_default();
        let mut delivered = DeliveredFacts::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let unreadable = || format!("written down was {line:?}");
            match words.as_slice() {
                ["record", version] => {
                    delivered.newest_record = version.parse().map_err(|_| unreadable())?;
                }
                ["outcome", message, turn, reason] => delivered.outcomes.push(DeliveredOutcome {
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
        Ok(delivered)
    }
}
