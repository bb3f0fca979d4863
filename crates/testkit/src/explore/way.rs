//! Ways to stop.

use std::fmt;
use std::str::FromStr;

use allstop_core::{CauseKind, Extent};
use allstop_session::FollowUp;

use super::store::StoreFault;

/// A way to stop a run at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// One stop of this extent with this cause.
    Stop(Extent, CauseKind),
    /// Whoever waits for the run goes away.
    Drop,
    /// A deadline that passes at this moment of the paused clock.
    Deadline,
    /// A user's stop of the turn, and the same again so many points later.
    Again(u32),
    /// A user's stop of the turn, and so many points later one of the whole process.
    Wider(u32),
    /// A user's stop of the turn, and so many points later one that does not wait for the grace.
    Force(u32),
    /// The store fails, from the append at this point on.
    Store(StoreFault),
    /// A further message under this policy. Of sessions only, as the next two.
    Send(FollowUp),
    /// The session is closed.
    Close,
    /// The last turn is to be taken back.
    Undo,
    /// `kill -9` of the process that runs the scenario on a store on disk.
    Kill,
}

/// Every cause that somebody can bring, in the order of the design.
pub const CAUSES: [CauseKind; 11] = [
    CauseKind::User,
    CauseKind::Superseded,
    CauseKind::Deadline,
    CauseKind::Inactivity,
    CauseKind::Budget,
    CauseKind::Guardrail,
    CauseKind::Parent,
    CauseKind::Shutdown,
    CauseKind::LeaseLost,
    CauseKind::Disconnect,
    CauseKind::Failure,
];

/// Every extent. Those of background work only a session has.
const EXTENTS: [Extent; 6] = [
    Extent::Call,
    Extent::Turn,
    Extent::TurnAndBackground,
    Extent::Session,
    Extent::Subtree,
    Extent::Process,
];

impl Way {
    /// The stop that everybody knows: the user's, of the turn.
    pub const USER: Self = Self::Stop(Extent::Turn, CauseKind::User);

    /// How many points later its second stop falls, where it has one.
    pub(crate) fn second_after(self) -> Option<u32> {
        match self {
            Self::Again(after) | Self::Wider(after) | Self::Force(after) => Some(after),
            _ => None,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stop(extent, cause) => write!(f, "{extent}:{cause}"),
            Self::Drop => f.write_str("drop"),
            Self::Deadline => f.write_str("deadline"),
            Self::Again(after) => write!(f, "again+{after}"),
            Self::Wider(after) => write!(f, "wider+{after}"),
            Self::Force(after) => write!(f, "force+{after}"),
            Self::Store(fault) => write!(f, "store:{fault}"),
            Self::Send(policy) => write!(f, "send:{policy}"),
            Self::Close => f.write_str("close"),
            Self::Undo => f.write_str("undo"),
            Self::Kill => f.write_str("kill"),
        }
    }
}

/// Not the name of a way to stop.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no way to stop: write turn:user, call:user, process:shutdown, drop, deadline, again+1, wider+1, force+1, store:refuses, send:interrupt, close, undo or kill"
)]
pub struct UnknownWay(String);

impl FromStr for Way {
    type Err = UnknownWay;

    fn from_str(text: &str) -> Result<Self, UnknownWay> {
        let unknown = || UnknownWay(text.to_owned());
        let second = |name: &str, make: fn(u32) -> Self| {
            let after = text.strip_prefix(name)?.strip_prefix('+')?;
            after.parse().ok().map(make)
        };
        let stop = || {
            let (extent, cause) = text.split_once(':')?;
            let extent = EXTENTS.into_iter().find(|known| known.as_str() == extent)?;
            let cause = CAUSES.into_iter().find(|known| known.as_str() == cause)?;
            Some(Self::Stop(extent, cause))
        };
        let store = || {
            let fault = text.strip_prefix("store:")?;
            fault.parse().ok().map(Self::Store)
        };
        let send = || {
            let policy = text.strip_prefix("send:")?;
            policy.parse().ok().map(Self::Send)
        };
        match text {
            "drop" => Ok(Self::Drop),
            "deadline" => Ok(Self::Deadline),
            "close" => Ok(Self::Close),
            "undo" => Ok(Self::Undo),
            "kill" => Ok(Self::Kill),
            _ => second("again", Self::Again)
                .or_else(|| second("wider", Self::Wider))
                .or_else(|| second("force", Self::Force))
                .or_else(store)
                .or_else(send)
                .or_else(stop)
                .ok_or_else(unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_read_back_as_it_is_written() {
        let stops = EXTENTS
            .into_iter()
            .flat_map(|extent| CAUSES.map(|cause| Way::Stop(extent, cause)));
        let others = [Way::Drop, Way::Deadline, Way::Close, Way::Undo, Way::Kill];
        let sends = FollowUp::ALL.map(Way::Send);
        let faults = StoreFault::ALL.map(Way::Store);
        let second = [Way::Again(1), Way::Wider(7), Way::Force(30)];
        for way in stops.chain(others).chain(sends).chain(faults).chain(second) {
            assert_eq!(way.to_string().parse::<Way>().unwrap(), way);
        }
        assert!("turn:nobody".parse::<Way>().is_err());
        assert!("again".parse::<Way>().is_err());
    }
}
