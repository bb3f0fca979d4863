//! A model that plays a script, for tests of agents.
//!
//! By default a reply depends only on the request. So a script plays the same replies in any process and after any
//! stop:
//!
//! - If the last user message contains the `when` text of a turn in the script, this turn answers the message. The
//!   first reply of the turn is for the first step, the second reply is for the second step, and so on.
//! - The main list of the script (`replies`) answers all other messages, in the order of the conversation. The index of
//!   the reply is the number of earlier assistant messages from the main list.
//!
//! So after a stop that discarded its turn (a rollback), the script plays the same reply again. After a stop that kept
//! the completed steps of its turn, the script plays the next reply. `docs/scripted-model.md` describes the format of
//! script files.

mod choose;
#[cfg(feature = "script-files")]
mod compile;
#[cfg(feature = "script-files")]
pub mod file;
mod playback;
mod reply;

pub use choose::ReplyOrder;
pub use reply::{Pause, Reply};

use std::fmt;
#[cfg(feature = "script-files")]
use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::{Model, ModelError, ModelErrorKind, ModelRequest, ModelStream};
use choose::{ChosenReply, CompiledScript};
use playback::Playback;

/// A model that plays a script.
///
/// ```
/// use allstop_model::{Reply, ScriptedModel};
/// use serde_json::json;
///
/// let model = ScriptedModel::new(vec![
///     Reply::text("Let me look.").call("shell", json!({"command": "ls"})),
///     Reply::text("Three files."),
/// ]);
/// # let _ = model;
/// ```
pub struct ScriptedModel {
    name: Arc<str>,
    script: CompiledScript,
    requests: Option<Mutex<Vec<ModelRequest>>>,
}

impl ScriptedModel {
    /// A model that plays these replies. The position in the conversation selects the reply.
    pub fn new(replies: Vec<Reply>) -> Self {
        Self::of(
            "script".into(),
            CompiledScript::new(ReplyOrder::History, Vec::new(), replies),
        )
    }

    /// A model that plays the next of these replies for each call. The content of the request does not matter.
    pub fn in_order_of_calls(replies: Vec<Reply>) -> Self {
        Self::of(
            "script".into(),
            CompiledScript::new(ReplyOrder::Calls, Vec::new(), replies),
        )
    }

    #[cfg(feature = "script-files")]
    /// Parses a script. `name` appears in error messages and in receipts of stops.
    ///
    /// # Errors
    /// Returns an error of kind `Script` that contains the line and the column.
    pub fn parse(name: &str, text: &str) -> Result<Self, ModelError> {
        let script = compile::parse(text).map_err(|wrong| {
            ModelError::new(ModelErrorKind::Script, format!("{name}:{wrong}"))
                .with_hint("docs/scripted-model.md describes the format")
        })?;
        Ok(Self::of(format!("script::{name}").into(), script))
    }

    #[cfg(feature = "script-files")]
    /// Parses a script file.
    ///
    /// # Errors
    /// Returns an error of kind `Script` if the file is unreadable or invalid. If the file is invalid, the error
    /// contains the line and the column.
    pub fn from_file(path: &Path) -> Result<Self, ModelError> {
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        let text = std::fs::read_to_string(path).map_err(|error| {
            ModelError::new(
                ModelErrorKind::Script,
                format!("the script {} cannot be read: {error}", path.display()),
            )
        })?;
        Self::parse(&name, &text)
    }

    /// The model in the form that the flag `--model` accepts.
    fn flag(&self) -> String {
        match self.name.strip_prefix("script::") {
            Some(file) => format!("script:{file}"),
            None => self.name.to_string(),
        }
    }

    fn of(name: Arc<str>, script: CompiledScript) -> Self {
        Self {
            name,
            script,
            requests: None,
        }
    }

    /// Returns the model with this name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Returns the model in a form that stores every request, for tests.
    #[must_use]
    pub fn keeping_requests(mut self) -> Self {
        self.requests = Some(Mutex::default());
        self
    }

    /// The requests so far; empty if requests are not stored.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.requests
            .as_ref()
            .map(|kept| kept.lock().clone())
            .unwrap_or_default()
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        request.probe.no_connection();
        let chosen = self.script.choose(&request.messages);
        if let Some(kept) = &self.requests {
            kept.lock().push(request);
        }
        Box::pin(async move {
            let chosen = chosen.map_err(|message| {
                ModelError::new(
                    ModelErrorKind::Script,
                    format!("{}: {message}", self.flag()),
                )
                .with_hint("add a reply to the script, or a turn that matches this message")
            })?;
            play(chosen).await
        })
    }
}

/// Plays a reply to a conversation with this number of assistant messages.
pub(crate) async fn play_reply(reply: Reply, assistants: usize) -> Result<ModelStream, ModelError> {
    play(ChosenReply::of(reply, assistants)).await
}

async fn play(chosen: ChosenReply) -> Result<ModelStream, ModelError> {
    if let Some(pause) = chosen.reply.definition.connect_stall {
        pause.wait().await;
    }
    if let Some(error) = chosen.reply.error_at_start() {
        return Err(error);
    }
    Ok(ModelStream {
        events: Box::pin(Playback::new(chosen)),
    })
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
