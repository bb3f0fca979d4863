//! The result of a command, as its task stores it.

use allstop_core::Receipt;
use allstop_core::receipt::EndProof;
use allstop_process::{ExitInfo, TreeMember};
use allstop_task::TaskEvent;
use allstop_task::model::{Artifact, MessagePart, PartContent};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Id of the artifact with the result.
pub(crate) const RESULT_ARTIFACT: &str = "result";

/// Id of the item of a command in receipts. The item includes all processes of the command.
pub(crate) const COMMAND_ITEM: &str = "command";

/// Exit, output and remaining processes of a command.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CommandResult {
    /// Exit code; absent if a signal ended the command, or if it has not exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<i32>,
    /// Number of the signal that ended the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i32>,
    /// Standard output and standard error. The middle of a long output is left out, with a note.
    #[serde(default)]
    pub(crate) output: String,
    /// Number of bytes that the command has printed; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output_bytes: Option<u64>,
    /// Processes that still ran after the exit and were stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_processes: Vec<LeftProcess>,
    /// Proof that no process of the command is left; absent without a proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(crate) verified: Option<EndProof>,
    /// Receipt of the stop; absent if nothing was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub(crate) receipt: Option<Receipt>,
    /// Note on the processes, such as a killed keeper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// A process that still ran after the exit of its command.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LeftProcess {
    /// Process id.
    pub(crate) pid: u32,
    /// Command line, with arguments separated by spaces.
    pub(crate) command_line: String,
}

impl CommandResult {
    /// Sets the exit.
    pub(crate) fn set_exit(&mut self, exit: Option<ExitInfo>) {
        match exit {
            Some(ExitInfo::Code(code)) => self.exit_code = Some(code),
            Some(ExitInfo::Signal(signal)) => self.signal = Some(signal),
            Some(ExitInfo::Unknown) | None => {}
        }
    }

    /// The event that stores this result. It replaces an earlier result.
    pub(crate) fn to_event(&self) -> TaskEvent {
        let content = PartContent::Data(serde_json::to_value(self).unwrap_or_default());
        let mut artifact = Artifact::text(RESULT_ARTIFACT, "");
        artifact.parts = vec![MessagePart {
            content,
            ..MessagePart::text("")
        }];
        TaskEvent::artifact(artifact)
    }

    /// The result in an artifact; `None` if the artifact has another content.
    pub(crate) fn of_artifact(artifact: &Artifact) -> Option<Self> {
        let part = artifact.parts.first()?;
        match &part.content {
            PartContent::Data(data) if &*artifact.id == RESULT_ARTIFACT => {
                Self::deserialize(data).ok()
            }
            _ => None,
        }
    }
}

impl From<&TreeMember> for LeftProcess {
    fn from(member: &TreeMember) -> Self {
        Self {
            pid: member.identity.pid,
            command_line: member.command_line.clone(),
        }
    }
}
