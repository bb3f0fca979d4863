//! Facts that were delivered to the user of a session. Each of these facts must also be in the log.

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
    /// Id of the message, as the outcome itself contains it.
    pub named: Option<MessageId>,
    /// Number of the turn that contains the message; `None` if no turn contains it.
    pub turn: Option<TurnNumber>,
    /// Ending of that turn, in the form of [`StopReason::as_str`].
    pub reason: String,
    /// The answer; empty if the observation comes from the journal of a process, which does not contain answers.
    pub output: String,
    /// True if recovery may have written the ending instead of the turn. In this case the clock has jumped by hours,
    /// which is longer than an ending waits for its store.
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

    /// True if a turn with this ending agrees with the delivered outcome.
    pub(crate) fn is(&self, reason: StopReason) -> bool {
        let recovered = self.may_be_recovered && reason == StopReason::Error;
        recovered || self.reason == reason.as_str()
    }
}

/// File next to the store, for a process that may be killed. The process writes each line with one call, so a kill
/// loses no complete line.
#[derive(Debug)]
pub(crate) struct DeliveryJournal(File);

impl DeliveryJournal {
    /// # Panics
    /// Panics if the file cannot be created.
    pub(crate) fn begin(folder: &Path) -> Self {
        Self(File::create(folder.join(FILE)).expect("a file beside the store"))
    }

    /// Writes that the subscriber received this record.
    pub(crate) fn record(&self, version: Version) {
        self.write(&format!("record {}\n", version.0));
    }

    /// Writes the outcome of a message. A message without a turn is skipped, because the store contains nothing about
    /// such a message.
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

    /// Reads the journal of a process; empty if the process wrote no journal.
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
