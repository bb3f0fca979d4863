//! Settings of a session that do not change while the session is open.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::prompt_sections::RequestedPrompt;

/// Settings that a client requests, or that an open session has. A field is `None` if the client does not request the
/// setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FixedSettings {
    /// Name of the model.
    pub model: Option<Arc<str>>,
    /// Digest of the provider, which contains a key.
    pub provider: Option<[u8; 32]>,
    pub system_message: Option<RequestedPrompt>,
    pub available_tools: Option<Vec<String>>,
    pub excluded_tools: Option<Vec<String>>,
    pub working_directory: Option<PathBuf>,
    pub instruction_directories: Option<Vec<PathBuf>>,
    /// Further settings by their names in the protocol, as the client has sent them.
    pub further: BTreeMap<&'static str, Value>,
}

/// True if a client requests another value than the session has.
fn differs<T: PartialEq>(requested: Option<&T>, current: Option<&T>) -> bool {
    requested.is_some() && requested != current
}

impl FixedSettings {
    /// Returns the name of the first requested setting that differs from these settings of a session.
    pub(crate) fn difference(&self, requested: &Self) -> Option<&'static str> {
        let differences = [
            (
                "provider",
                differs(requested.provider.as_ref(), self.provider.as_ref()),
            ),
            (
                "model",
                differs(requested.model.as_ref(), self.model.as_ref()),
            ),
            (
                "systemMessage",
                differs(
                    requested.system_message.as_ref(),
                    self.system_message.as_ref(),
                ),
            ),
            (
                "availableTools",
                differs(
                    requested.available_tools.as_ref(),
                    self.available_tools.as_ref(),
                ),
            ),
            (
                "excludedTools",
                differs(
                    requested.excluded_tools.as_ref(),
                    self.excluded_tools.as_ref(),
                ),
            ),
            (
                "workingDirectory",
                differs(
                    requested.working_directory.as_ref(),
                    self.working_directory.as_ref(),
                ),
            ),
            (
                "instructionDirectories",
                differs(
                    requested.instruction_directories.as_ref(),
                    self.instruction_directories.as_ref(),
                ),
            ),
        ];
        let found = differences.into_iter().find(|(_, differs)| *differs);
        found.map(|(name, _)| name).or_else(|| {
            let mut further = requested.further.iter();
            let found = further.find(|(name, value)| self.further.get(*name) != Some(value));
            found.map(|(name, _)| *name)
        })
    }
}
