//! Ways to stop at a random moment.

use std::fmt;
use std::time::Duration;

use allstop_core::{CauseKind, Extent};

use super::random::Random;

/// A way to stop at a random moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RandomWay {
    /// One stop of this extent.
    Stop(Extent, CauseKind),
    /// Whoever waits for the run goes away.
    Drop,
    /// The run's own deadline.
    Deadline,
    /// A user's stop of the turn, and so much later one that does not wait for the grace.
    Force(Duration),
    /// A user's stop of the turn, and so much later one of the whole process.
    Wider(Duration),
}

/// How much later a second stop comes at most: longer than the grace that the explored runs have.
const SECOND_WITHIN: Duration = Duration::from_millis(150);

impl RandomWay {
    pub(super) fn choose(random: &mut Random) -> Self {
        match random.below(8) {
            0 | 1 => Self::Stop(Extent::Turn, CauseKind::User),
            2 => Self::Stop(Extent::Session, CauseKind::Superseded),
            3 => Self::Stop(Extent::Process, CauseKind::Shutdown),
            4 => Self::Drop,
            5 => Self::Deadline,
            6 => Self::Force(random.before(SECOND_WITHIN)),
            _ => Self::Wider(random.before(SECOND_WITHIN)),
        }
    }

    /// The cause that the turn must have ended with, if this ended it.
    pub(super) fn cause(self) -> CauseKind {
        match self {
            Self::Stop(_, cause) => cause,
            Self::Drop => CauseKind::Disconnect,
            Self::Deadline => CauseKind::Deadline,
            Self::Force(_) | Self::Wider(_) => CauseKind::User,
        }
    }
}

impl fmt::Display for RandomWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stop(extent, cause) => write!(f, "{extent}:{cause}"),
            Self::Drop => f.write_str("drop"),
            Self::Deadline => f.write_str("deadline"),
            Self::Force(_) => f.write_str("force"),
            Self::Wider(_) => f.write_str("wider"),
        }
    }
}
