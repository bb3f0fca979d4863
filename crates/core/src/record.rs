//! Records of a session's log. The state of a session is computed by applying its records in order
//! ([`crate::turn::SessionState`]).
//!
//! The records of a turn: first `turn_started`, then `call_started` and `call_finished` of each call, last
//! `turn_committed` or `turn_stopped`. A reader may skip a record of unknown `type` only if the record contains
//! `"optional": true`. This version writes `settings_changed`, `stopped` and `messages_kept` with that field.
//!
//! There are two totals of tokens. The metered total counts every used token. The committed total counts only the
//! tokens of turns that were added to the conversation.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::cause::Cause;
use crate::finish_reason::FinishReason;
use crate::ids::{BackgroundId, CallId, MessageId, SessionId, TurnNumber};
use crate::image::ImageInfo;
use crate::message::{Arguments, Effect, Message};
use crate::process::ProcessIdentity;
use crate::receipt::{ItemState, Receipt};
use crate::session_settings::SessionSettings;
use crate::shared_text;
use crate::stop_reason::StopReason;
use crate::time::Timestamp;
use crate::usage::Usage;

/// A record of a session's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionRecord {
    /// The first record of every session.
    SessionOpened {
        /// Id of the session.
        session_id: SessionId,
        /// Time of the opening.
        at: Timestamp,
        /// Working folder at the opening.
        folder: Arc<str>,
    },
    /// The session was opened with changed settings. This record is optional, and older versions skip it.
    SettingsChanged {
        /// Time of the opening.
        at: Timestamp,
        /// Settings from now on.
        settings: Arc<SessionSettings>,
    },
    /// Start of a turn. The turn ends with a `turn_committed` or `turn_stopped` of the same number.
    TurnStarted {
        /// Number of the turn.
        turn: TurnNumber,
        /// Time of the start.
        at: Timestamp,
        /// Text of the user's message.
        input: Arc<str>,
        /// Format and size of each image of the message. The messages of the turn contain the images themselves.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<ImageInfo>,
        /// The process that runs the turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<ProcessIdentity>,
        /// Id of the message that caused the turn, if the message had an id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<MessageId>,
        /// Origin of the turn.
        #[serde(default, skip_serializing_if = "TurnOrigin::is_user")]
        origin: TurnOrigin,
        /// Ended background work that this turn reports to the model.
        #[serde(rename = "told", default, skip_serializing_if = "Vec::is_empty")]
        reported: Vec<BackgroundId>,
    },
    /// A user's message was added to the running turn, between two of its steps.
    MessageSteered {
        /// Number of the turn.
        turn: TurnNumber,
        /// Id of the message.
        message: MessageId,
        /// Text of the user's message.
        text: Arc<str>,
        /// Format and size of each image of the message.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<ImageInfo>,
        /// Time of the addition.
        at: Timestamp,
    },
    /// A call is about to run. The record is durable before the call starts.
    CallStarted {
        /// Number of the turn.
        turn: TurnNumber,
        /// The call.
        call: StartedCall,
        /// Time of the start.
        at: Timestamp,
    },
    /// A call has ended.
    CallFinished {
        /// Number of the turn.
        turn: TurnNumber,
        /// Id of the call, as in [`StartedCall::id`].
        id: CallId,
        /// Outcome of the call.
        outcome: CallOutcome,
        /// Usage of a model call or a sub-agent. The metered total includes this usage, and never becomes smaller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// Reason for an incomplete answer, for model calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finish: Option<FinishReason>,
        /// Exit code, for a tool call whose command ended by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Beginning of the result, for a tool call that may have changed something.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Arc<str>>,
    },
    /// Under the policy `keep`: messages that stay in the conversation even if the process of the turn dies. They follow
    /// the messages of the turn's earlier records of this kind. If the turn ends normally, its ending repeats them. This
    /// record is optional, and older versions skip it.
    MessagesKept {
        /// Number of the turn.
        turn: TurnNumber,
        /// The messages.
        messages: Vec<Arc<Message>>,
    },
    /// End of a completed turn.
    TurnCommitted {
        /// Number of the turn.
        turn: TurnNumber,
        /// Time of the commit.
        at: Timestamp,
        /// Messages that the turn adds to the conversation, the user's message first.
        messages: Vec<Arc<Message>>,
        /// Usage that the turn adds to the committed total.
        usage: Usage,
    },
    /// End of a turn that was not completed.
    TurnStopped {
        /// Number of the turn.
        turn: TurnNumber,
        /// Time of the end.
        at: Timestamp,
        /// Reason for the end.
        reason: StopReason,
        /// The first cause of the end.
        cause: Cause,
        /// Receipt of the stop; absent if there was nothing to stop, as after a crash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<Arc<Receipt>>,
        /// Messages that stay in the conversation under the policy `keep`. Empty under the policy `rollback`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        kept: Vec<Arc<Message>>,
        /// Usage that the turn adds to the committed total. Zero under the policy `rollback`.
        usage: Usage,
    },
    /// Receipt of a stop that was not limited to one turn: a stop of a call, of background work or of the session. The
    /// receipt of a single turn's stop is in the ending of that turn. This record is optional, and older versions skip
    /// it.
    Stopped {
        /// Receipt of the stop.
        receipt: Arc<Receipt>,
    },
    /// A summary replaced the oldest messages of the conversation, between two turns.
    Compacted {
        /// Time of the compaction.
        at: Timestamp,
        /// Number of dropped messages, counted from the oldest message.
        messages_dropped: u32,
        /// Number of dropped turns. Dropped turns still count against the limit of turns.
        turns_dropped: u32,
        /// Summary that replaces the messages; absent if they were only dropped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<Arc<str>>,
        /// Usage of the summary call; the metered total includes it.
        usage: Usage,
    },
    /// The last turn of the conversation was undone, between two turns. The effects of its calls remain.
    TurnUndone {
        /// Number of the turn.
        turn: TurnNumber,
        /// Time of the undo.
        at: Timestamp,
    },
    /// Tokens that were used outside a turn and produced no result, such as the tokens of a stopped summary.
    Metered {
        /// Time of the use.
        at: Timestamp,
        /// The tokens.
        usage: Usage,
    },
    /// Start of background work.
    BackgroundStarted {
        /// Id of the work.
        id: BackgroundId,
        /// Turn that started it.
        turn: TurnNumber,
        /// Call that started it.
        call_id: CallId,
        /// Name for people: the command.
        name: Arc<str>,
        /// Kind of work.
        #[serde(default)]
        kind: BackgroundKind,
        /// `attached` if an idle session waits for the work, `detached` if the work outlives the session.
        attachment: Attachment,
        /// Main process of the work, such as the shell, if the work has a process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<ProcessIdentity>,
        /// Keeper of the process, if the process has one: a small process that adopts and kills all descendants of the
        /// command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keeper: Option<ProcessIdentity>,
        /// Marker: a value in the environment of all processes of the work. A search for the marker also finds
        /// processes that no keeper watches.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        marker: Option<Arc<str>>,
        /// Path of the output file, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Arc<str>>,
    },
    /// Background work was detached: it outlives the session.
    BackgroundDetached {
        /// Id of the work.
        id: BackgroundId,
    },
    /// End of background work, written once.
    BackgroundEnded {
        /// Id of the work.
        id: BackgroundId,
        /// State at the end.
        state: ItemState,
        /// Exit code, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Usage of a sub-agent; the metered total includes it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// End of a sub-agent's answer, or the reason of its failure with its calls. The next process reports it to the
        /// model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<Arc<str>>,
    },
}

/// Origin of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnOrigin {
    /// A user's message.
    #[default]
    User,
    /// Ended background work, which the turn reports to the model.
    Background,
}

impl TurnOrigin {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes fields by reference"
    )]
    fn is_user(&self) -> bool {
        *self == Self::User
    }
}

/// Kind of background work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackgroundKind {
    /// A command and all processes that it starts.
    #[default]
    Shell,
    /// A sub-agent.
    Agent,
}

/// Distinguishes background work that an idle session waits for from detached work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Attachment {
    /// The session waits for the work.
    Attached,
    /// The session only lists the work.
    Detached,
}

/// A call that was started.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StartedCall {
    /// Id: `step_2` for the model call of the second step, the model's id for a tool call.
    pub id: CallId,
    /// Name of the model or the tool.
    pub name: Arc<str>,
    /// Kind of call.
    #[serde(flatten)]
    pub kind: StartedCallKind,
}

/// Written by hand for speed, like the `Deserialize` of [`Message`].
impl<'de> Deserialize<'de> for StartedCall {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum StartedCallTag {
            Model,
            Tool,
        }
        #[derive(Deserialize)]
        struct StartedCallFields {
            id: CallId,
            #[serde(deserialize_with = "shared_text::deserialize")]
            name: Arc<str>,
            kind: StartedCallTag,
            reserved_tokens: Option<u64>,
            arguments: Option<Arguments>,
            effect: Option<Effect>,
        }
        let fields = StartedCallFields::deserialize(d)?;
        let missing = D::Error::missing_field;
        let kind = match fields.kind {
            StartedCallTag::Model => StartedCallKind::Model {
                reserved_tokens: fields
                    .reserved_tokens
                    .ok_or_else(|| missing("reserved_tokens"))?,
            },
            StartedCallTag::Tool => StartedCallKind::Tool {
                arguments: fields.arguments.ok_or_else(|| missing("arguments"))?,
                effect: fields.effect.ok_or_else(|| missing("effect"))?,
            },
        };
        let (id, name) = (fields.id, fields.name);
        Ok(Self { id, name, kind })
    }
}

/// Kind of a started call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StartedCallKind {
    /// A model call.
    Model {
        /// Tokens of the budget that were reserved before the call was sent.
        reserved_tokens: u64,
    },
    /// A tool call.
    Tool {
        /// Arguments of the call.
        arguments: Arguments,
        /// Effect of repeating the call.
        effect: Effect,
    },
}

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// The call has a result.
    Succeeded,
    /// The call has an error result.
    Failed,
    /// The permission policy, a person or a hook refused: the call did not run.
    Denied,
    /// A stop ended the call before it had a result.
    Stopped,
    /// The timeout of the call ended it.
    TimedOut,
    /// The call started and its end was not observed: after a crash, a stop, or the loss of its keeper or server.
    Unknown,
}
