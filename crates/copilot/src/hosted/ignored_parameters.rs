//! Warnings about parameters of requests that this server does not offer.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::provider::is_set;

/// Maximum number of parameters with a warning, more than the methods of the protocol have. A client that invents names gets
/// no further warnings.
const NAMES_MAX: usize = 256;

/// Maximum length of a name in a warning, in bytes. The names of the protocol are shorter.
const NAME_BYTES_MAX: usize = 64;

/// Parameters about which the clients of a session already have a warning.
#[derive(Debug, Default)]
pub(super) struct IgnoredParameters(Mutex<HashSet<String>>);

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
