//! Records of a session's log. State is a fold over these ([`crate::turn::SessionState`]); nothing else is true.
//!
//! A turn writes: `turn_started` → each call's `call_started` and `call_finished` → `turn_committed` or `turn_stopped`.
//! Readers must skip a record whose `type` they do not know only if it is marked `"optional": true`; this version
//! writes none.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::cause::Cause;
use crate::finish_reason::FinishReason;
use crate::ids::{BackgroundId, CallId, MessageId, SessionId, TurnNumber};
use crate::message::{Arguments, Effect, Message};
use crate::process::ProcessIdentity;
use crate::receipt::{ItemState, Receipt};
use crate::shared_text;
use crate::stop_reason::StopReason;
use crate::time::Timestamp;
use crate::usage::Usage;

/// One record of a session's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionRecord {
    /// The first record of every session.
    SessionOpened {
        /// The session.
        session_id: SessionId,
        /// When.
        at: Timestamp,
        /// The folder it was opened in.
        folder: Arc<str>,
    },
    /// A turn began. It has not ended until a `turn_committed` or `turn_stopped` of the same number.
    TurnStarted {
        /// Its number.
        turn: TurnNumber,
        /// When.
        at: Timestamp,
        /// The user's words.
        input: Arc<str>,
        /// The process that runs it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<ProcessIdentity>,
        /// The message that caused it, where it came with an id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<MessageId>,
        /// Its origin.
        #[serde(default, skip_serializing_if = "TurnOrigin::is_user")]
        origin: TurnOrigin,
        /// The ended background work that the model is told of in it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        told: Vec<BackgroundId>,
    },
    /// A message was handed to a turn under way, between two of its steps.
    MessageSteered {
        /// The turn.
        turn: TurnNumber,
        /// The message.
        message: MessageId,
        /// The user's words.
        text: Arc<str>,
        /// When.
        at: Timestamp,
    },
    /// A call is about to run: durable before it does.
    CallStarted {
        /// Its turn.
        turn: TurnNumber,
        /// The call.
        call: StartedCall,
        /// When.
        at: Timestamp,
    },
    /// A call has ended.
    CallFinished {
        /// Its turn.
        turn: TurnNumber,
        /// The id of the call, as in [`StartedCall::id`].
        id: CallId,
        /// Its outcome.
        outcome: CallOutcome,
        /// Its usage, for model calls: the metered ledger, never taken back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// Reason for an answer that is not whole, for model calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finish: Option<FinishReason>,
        /// The exit code, for tool calls that ran a command to its end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
    },
    /// The one ending of a completed turn.
    TurnCommitted {
        /// The turn.
        turn: TurnNumber,
        /// When.
        at: Timestamp,
        /// Messages that it adds to the conversation, the user's first.
        messages: Vec<Arc<Message>>,
        /// Its part of the committed usage.
        usage: Usage,
    },
    /// The one ending of any other turn.
    TurnStopped {
        /// The turn.
        turn: TurnNumber,
        /// When.
        at: Timestamp,
        /// Reason for its end.
        reason: StopReason,
        /// The first cause.
        cause: Cause,
        /// The receipt; none for a turn refused at its entry and for a crash without accounting.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<Arc<Receipt>>,
        /// Messages that the policy `keep` adds to the conversation; empty under `rollback`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        kept: Vec<Arc<Message>>,
        /// Its part of the committed usage: zero under `rollback`.
        usage: Usage,
    },
    /// The oldest messages of the conversation were replaced by a summary, between two turns.
    Compacted {
        /// When.
        at: Timestamp,
        /// Number of messages that were dropped, from the first one on.
        messages_dropped: u32,
        /// Number of turns that they were. They still count where turns are counted.
        turns_dropped: u32,
        /// Summary that stands in their place; none if they were only dropped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<Arc<str>>,
        /// Usage of the summary: metered.
        usage: Usage,
    },
    /// The last turn of the conversation was taken back, between two turns. What its calls did in the world stays.
    TurnUndone {
        /// The turn.
        turn: TurnNumber,
        /// When.
        at: Timestamp,
    },
    /// Tokens that were used outside a turn, for something that came to nothing: a summary that was stopped.
    Metered {
        /// When.
        at: Timestamp,
        /// The tokens.
        usage: Usage,
    },
    /// Background work began.
    BackgroundStarted {
        /// Its id.
        id: BackgroundId,
        /// The turn that started it.
        turn: TurnNumber,
        /// The call that started it.
        call_id: CallId,
        /// For people: the command.
        name: Arc<str>,
        /// Its kind.
        #[serde(default)]
        kind: BackgroundKind,
        /// Whether idle waits for it.
        attachment: Attachment,
        /// Its process, where it is one: the shell itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<ProcessIdentity>,
        /// The keeper of its process, where it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keeper: Option<ProcessIdentity>,
        /// Marker that its processes carry in their environment: by that they are found without their keeper, too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        marker: Option<Arc<str>>,
        /// Where its output goes, where that is a file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Arc<str>>,
    },
    /// Background work was let go on purpose: it outlives the session.
    BackgroundDetached {
        /// Its id.
        id: BackgroundId,
    },
    /// Background work ended; written once.
    BackgroundEnded {
        /// Its id.
        id: BackgroundId,
        /// Its ending.
        state: ItemState,
        /// Its exit code, where it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Its usage, for sub-agents: metered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
}

/// Origin of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnOrigin {
    /// A message.
    #[default]
    User,
    /// Background work that has ended: the model is told, and answers.
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
    /// A command and all that it starts.
    #[default]
    Shell,
    /// An agent of its own.
    Agent,
}

/// Whether a session's idle waits for background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Attachment {
    /// Idle waits for it.
    Attached,
    /// It is only named.
    Detached,
}

/// A call that was started.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StartedCall {
    /// `step_2` for the model call of the second step, the model's own id for a tool call.
    pub id: CallId,
    /// The model or the tool.
    pub name: Arc<str>,
    /// Its kind.
    #[serde(flatten)]
    pub kind: StartedCallKind,
}

/// By hand, for the reason given at [`Message`]'s.
impl<'de> Deserialize<'de> for StartedCall {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Kind {
            Model,
            Tool,
        }
        #[derive(Deserialize)]
        struct Fields {
            id: CallId,
            #[serde(deserialize_with = "shared_text::deserialize")]
            name: Arc<str>,
            kind: Kind,
            reserved_tokens: Option<u64>,
            arguments: Option<Arguments>,
            effect: Option<Effect>,
        }
        let fields = Fields::deserialize(d)?;
        let missing = D::Error::missing_field;
        let kind = match fields.kind {
            Kind::Model => StartedCallKind::Model {
                reserved_tokens: fields
                    .reserved_tokens
                    .ok_or_else(|| missing("reserved_tokens"))?,
            },
            Kind::Tool => StartedCallKind::Tool {
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
        /// Tokens set aside for it before it was sent.
        reserved_tokens: u64,
    },
    /// A tool call.
    Tool {
        /// With what.
        arguments: Arguments,
        /// Effect of repeating it.
        effect: Effect,
    },
}

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// With a result.
    Succeeded,
    /// With an error result.
    Failed,
    /// The permission policy, a person or a hook said no: it did not run.
    Denied,
    /// A stop ended it before it had a result.
    Stopped,
    /// Its own limit of time ended it.
    TimedOut,
    /// It had started and nobody has seen its end: after a crash, after a stop, or where its keeper or its server was lost.
    Unknown,
}
