//! Events of streams and webhooks in the form of version 0.3.

use a2a::{A2AError, StreamResponse};
use serde_json::Value;

use super::to_v0_3;

/// Returns an event of a stream in the form of version 0.3.
pub(crate) fn event(event: StreamResponse) -> Result<Value, A2AError> {
    written(to_v0_3::event(event))
}

pub(super) fn written(value: serde_json::Result<Value>) -> Result<Value, A2AError> {
    value.map_err(|error| A2AError::internal(error.to_string()))
}
