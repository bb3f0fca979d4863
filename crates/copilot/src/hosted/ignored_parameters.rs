//! Warnings about parameters of requests that this server does not offer.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use allstop_core::SessionId;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::provider::is_set;

/// Maximum number of parameters with a warning, more than the methods of the protocol have. A client that invents names gets
/// no further warnings.
const NAMES_MAX: usize = 256;

/// Maximum length of a name in a warning, in bytes. The names of the protocol are shorter.
const NAME_BYTES_MAX: usize = 64;

/// Maximum number of sessions whose warnings the server remembers. The warnings of the session that was opened least recently
/// are forgotten first, and are then repeated.
const SESSIONS_MAX: usize = 1_024;

/// Parameters with a warning, by session. A session keeps them after its close, for a later resume.
#[derive(Debug, Default)]
pub(crate) struct SessionWarnings(Mutex<VecDeque<(SessionId, Arc<IgnoredParameters>)>>);

impl SessionWarnings {
    /// Returns the parameters with a warning in this session, also in its earlier openings.
    pub(super) fn of(&self, session: &SessionId) -> Arc<IgnoredParameters> {
        let mut known = self.0.lock();
        let at = known.iter().position(|(id, _)| id == session);
        let found = at.and_then(|at| known.remove(at));
        let found = found.unwrap_or_else(|| (session.clone(), Arc::default()));
        let parameters = Arc::clone(&found.1);
        if known.len() == SESSIONS_MAX {
            known.pop_front();
        }
        known.push_back(found);
        parameters
    }

    /// Forgets the warnings of a deleted session.
    pub(crate) fn remove(&self, session: &SessionId) {
        self.0.lock().retain(|(id, _)| id != session);
    }
}

/// Parameters about which the clients of a session already have a warning.
#[derive(Debug, Default)]
pub(crate) struct IgnoredParameters(Mutex<HashSet<String>>);

impl IgnoredParameters {
    /// Returns a warning for each of these parameters that has none yet.
    pub(super) fn warnings(&self, method: &str, others: &Map<String, Value>) -> Vec<Arc<str>> {
        let requested = others.iter().filter(|(_, value)| is_set(value));
        let parameters = requested.map(|(name, _)| {
            let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
            format!("`{name}` of `{method}`")
        });
        let mut known = self.0.lock();
        let mut is_new =
            |parameter: &String| known.len() < NAMES_MAX && known.insert(parameter.clone());
        let new = parameters.filter(|parameter| is_new(parameter));
        new.map(|parameter| format!("{parameter} is not offered and has no effect").into())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_remembers_the_last_sessions() {
        let warnings = SessionWarnings::default();
        let others = Map::from_iter([("verbosity".to_owned(), Value::from("low"))]);
        let count = |session: &str| {
            let parameters = warnings.of(&SessionId::new(session));
            parameters.warnings("session.send", &others).len()
        };
        assert_eq!((count("s"), count("s")), (1, 0));
        warnings.remove(&SessionId::new("s"));
        assert_eq!(count("s"), 1);
        for number in 0..SESSIONS_MAX {
            assert_eq!(count(&format!("s{number}")), 1);
        }
        assert_eq!((count("s"), count("s1")), (1, 0));
    }
}
