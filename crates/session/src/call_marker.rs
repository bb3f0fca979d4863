//! Markers of the calls of a session. A marker is a value in the environment of all processes of one call, by which a
//! search finds the processes. The marker names the session and the Allstop process that owns the call:
//! `SESSION.@PID-START.UNIQUE`.

use std::sync::Arc;

use allstop_core::SessionId;
use allstop_core::process::ProcessIdentity;
use allstop_process::{identity_of, is_alive, this_process};

/// Common beginning of the markers of all commands that this process starts for a session. A unique text without a dot
/// must follow.
pub fn marker_prefix(session: &SessionId) -> Arc<str> {
    prefix_of(session, this_process()).into()
}

fn prefix_of(session: &SessionId, owner: &ProcessIdentity) -> String {
    format!("{session}.@{}-{}.", owner.pid, owner.start_ticks)
}

/// Facts in the marker of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallMarker {
    /// The session of the call.
    pub session: SessionId,
    /// Pid and start time of the process that owns the call. `None` in markers of older versions.
    pub(crate) owner: Option<(u32, u64)>,
}

impl CallMarker {
    /// Reads a marker. `None` if the marker belongs to no session.
    pub fn parse(marker: &str) -> Option<Self> {
        let (front, _unique) = marker.rsplit_once('.')?;
        let named = front.rsplit_once('.').and_then(|(session, owner)| {
            let (pid, start) = owner.strip_prefix('@')?.split_once('-')?;
            Some((session, (pid.parse().ok()?, start.parse().ok()?)))
        });
        let (session, owner) =
            named.map_or((front, None), |(session, owner)| (session, Some(owner)));
        let session = SessionId::new(session);
        Some(Self { session, owner })
    }

    /// True if the owner of the call runs. False for a marker of an older version.
    pub fn owner_lives(&self) -> bool {
        self.owner.is_some_and(|(pid, start_ticks)| {
            let found = identity_of(pid).filter(|found| found.start_ticks == start_ticks);
            found.is_some_and(|owner| is_alive(&owner))
        })
    }

    /// True if this process owns the call.
    pub(crate) fn is_owned_by(&self, process: &ProcessIdentity) -> bool {
        self.owner == Some((process.pid, process.start_ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_names_its_session_and_its_owner() {
        let owner = this_process();
        for id in ["s", "context-a.b", "context-a.@1-2"] {
            let session = SessionId::new(id);
            let parse = |text: &str| CallMarker::parse(text).expect("a marker of a session");
            let marker = parse(&format!("{}01JD", marker_prefix(&session)));
            assert_eq!(marker.session, session);
            assert!(marker.is_owned_by(owner) && marker.owner_lives());
        }
        let older = CallMarker::parse("context-a.b.01JD").expect("a marker of a session");
        assert_eq!(older.session.as_str(), "context-a.b");
        assert!(!older.is_owned_by(owner) && !older.owner_lives());
        assert_eq!(CallMarker::parse("01JD"), None);
    }
}
