//! The event that a command of a hook or of a guardrail receives, as JSON in an environment variable.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;

use allstop_agent::{GuardrailStage, HookCx, HookEvent};
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;

/// Environment variable that contains the event.
pub const EVENT_VARIABLE: &str = "ALLSTOP_EVENT";

/// Maximum size of an event in the variable, in bytes. The operating system accepts variables of twice this size. A
/// longer event is stored in a file, and the variable contains the path of the file under `"file"` instead of the
/// details.
pub const EVENT_BYTES_MAX: usize = 64 * 1024;

/// Event for one command. Dropping it removes its file.
#[derive(Debug)]
pub(super) struct CommandEvent {
    text: String,
    _file: Option<NamedTempFile>,
}

impl CommandEvent {
    pub(super) fn variable(&self) -> (OsString, OsString) {
        (EVENT_VARIABLE.into(), self.text.as_str().into())
    }

    pub(super) fn of_hook(cx: &HookCx, event: &HookEvent, folder: &Path) -> io::Result<Self> {
        let details = match event {
            HookEvent::TurnStart { input } => json!({ "input": input }),
            HookEvent::ModelStart { step } => json!({ "step": step }),
            HookEvent::ModelEnd { step, text } => json!({ "step": step, "text": text }),
            HookEvent::ToolRequested { call } | HookEvent::ToolStart { call } => {
                json!({ "call": call })
            }
            HookEvent::ToolEnd {
                call,
                outcome,
                content,
            } => json!({ "call": call, "outcome": outcome, "content": content }),
            HookEvent::FinalAnswer { text, prolonged } => {
                json!({ "text": text, "prolonged": prolonged })
            }
            HookEvent::TurnEnd { stop_reason } => json!({ "stop_reason": stop_reason }),
            HookEvent::SessionStart { resumed } => json!({ "resumed": resumed }),
            HookEvent::SessionEnd => json!({}),
            HookEvent::Stop { receipt } => json!({ "receipt": receipt }),
            HookEvent::Error { message } => json!({ "message": message }),
        };
        Self::new(cx, event.name(), details, folder)
    }

    pub(super) fn of_guardrail(
        cx: &HookCx,
        stage: GuardrailStage,
        text: &str,
        folder: &Path,
    ) -> io::Result<Self> {
        let event = match stage {
            GuardrailStage::Input => "input",
            GuardrailStage::Output => "output",
        };
        Self::new(cx, event, json!({ "text": text }), folder)
    }

    fn new(cx: &HookCx, event: &str, details: Value, folder: &Path) -> io::Result<Self> {
        let head = || {
            Map::from_iter([
                ("event".to_owned(), event.into()),
                ("session_id".to_owned(), cx.session_id.as_str().into()),
                ("turn".to_owned(), cx.turn.0.into()),
            ])
        };
        let mut whole = head();
        if let Value::Object(details) = details {
            whole.extend(details);
        }
        let text = Value::Object(whole).to_string();
        if text.len() <= EVENT_BYTES_MAX {
            return Ok(Self { text, _file: None });
        }
        // Only the owner can read a temporary file.
        let mut file = tempfile::Builder::new()
            .prefix("event-")
            .suffix(".json")
            .tempfile_in(folder)?;
        // While the command runs, no process removes the file to free space for output. A file system without locks
        // refuses the lock, and then no file is removed.
        drop(file.as_file().try_lock_shared());
        file.write_all(text.as_bytes())?;
        let mut stub = head();
        stub.insert("file".to_owned(), file.path().to_string_lossy().into());
        Ok(Self {
            text: Value::Object(stub).to_string(),
            _file: Some(file),
        })
    }
}
