//! Replacement model of a session without a chosen model, in a system without a configured model.

use allstop_model::{Model, ModelError, ModelErrorKind, ModelRequest, ModelStream};
use futures::future::BoxFuture;

/// Fails every call with a message that contains the remedy.
#[derive(Debug)]
pub(super) struct MissingModel;

impl Model for MissingModel {
    fn name(&self) -> &'static str {
        "none"
    }

    fn stream(&self, _request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        let error = ModelError::new(
            ModelErrorKind::NotFound,
            "no model is chosen: name one when the session is created, or start this program with `--model` or \
             `ALLSTOP_MODEL`, or with the section `[model]` in its configuration",
        );
        Box::pin(std::future::ready(Err(error)))
    }
}
