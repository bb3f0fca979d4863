//! Capabilities of a model that a client overrides (`modelCapabilities`).

use serde::{Deserialize, Serialize};

/// Overridden capabilities. The server uses only the vision; it has no other capability to override.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct ModelCapabilities {
    supports: Option<SupportedParts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
struct SupportedParts {
    vision: Option<bool>,
}

impl ModelCapabilities {
    /// False if the model gets no images.
    pub(super) fn sees_images(self) -> bool {
        let vision = self.supports.and_then(|supports| supports.vision);
        vision.unwrap_or(true)
    }
}
