//! Arguments of the tools.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use allstop_core::MessageId;
use allstop_task::TaskMessage;
use allstop_task::model::{MessagePart, MessageSender, PartContent};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

/// Arguments of `exec` and `background`. The message of a command's task contains them as JSON.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandArguments {
    /// The command, as given to `sh -c`. It has no input.
    #[schemars(length(min = 1))]
    pub(crate) command: Arc<str>,
    /// Working directory; a relative path is relative to the folder of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<PathBuf>,
    /// Variables to add to the environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) env: BTreeMap<String, String>,
    /// Milliseconds after which the command and everything it started are stopped; without it, there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) timeout_ms: Option<u64>,
}

/// Arguments of `stop`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopArguments {
    /// Id of the command.
    pub(crate) id: String,
    /// True to kill at once, without time for the command to end by itself.
    #[serde(default)]
    pub(crate) force: bool,
}

/// Arguments of `preview`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreviewArguments {
    /// Id of the command; without it, all your running commands.
    #[serde(default)]
    pub(crate) id: Option<String>,
}

/// Arguments of `receipt`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReceiptArguments {
    /// Id of the command; without it, your command that ended last.
    #[serde(default)]
    pub(crate) id: Option<String>,
}

impl CommandArguments {
    /// The message that starts the task of this command.
    pub(crate) fn to_message(&self) -> serde_json::Result<TaskMessage> {
        let content = PartContent::Data(serde_json::to_value(self)?);
        let id = MessageId::new(Ulid::generate().to_string());
        let mut message = TaskMessage::text(id, MessageSender::User, "");
        message.parts = vec![MessagePart {
            content,
            ..MessagePart::text("")
        }];
        Ok(message)
    }

    /// The arguments in a message; `None` if another program wrote the message.
    pub(crate) fn of_message(message: &TaskMessage) -> Option<Self> {
        message.parts.iter().find_map(|part| match &part.content {
            PartContent::Data(data) => Self::deserialize(data).ok(),
            _ => None,
        })
    }
}
