//! The script file: what people write, and its JSON Schema.
//!
//! `docs/scripted-model.md` explains it; `schemas/script.schema.json` is generated from these types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_saphyr::Spanned;

use crate::{FinishReason, ModelErrorKind};
use allstop_core::WrittenDuration;

/// A script for a model.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Allstop script")]
pub struct ScriptFile {
    /// In what order `replies` are given.
    #[serde(default, skip_serializing_if = "Order::is_history")]
    pub order: Order,
    /// Replies to user messages that contain a text. The first turn that matches answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<ScriptTurn>,
    /// Replies to everything else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ScriptReply>")]
    pub replies: Vec<Spanned<ScriptReply>>,
}

/// In what order the replies outside of `turns` are given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The number of the reply is the number of assistant messages in the request: the same request gets the same
    /// reply, in a new process too.
    #[default]
    History,
    /// Each call takes the next reply, whatever it asks: a retry gets the next one too.
    Calls,
}

impl Order {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde asks for a reference"
    )]
    fn is_history(&self) -> bool {
        *self == Self::History
    }
}

/// The replies to one user message: the first step of the turn gets the first reply, and so on.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptTurn {
    /// The user message must contain this text; without it every message matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// One reply a step.
    #[schemars(with = "Vec<ScriptReply>")]
    pub replies: Vec<Spanned<ScriptReply>>,
}

/// One reply of the model.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptReply {
    /// Reasoning that comes before the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The text. It comes in one piece, or word by word where something has to happen in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The text in pieces, in place of `text`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<ScriptChunk>,
    /// Tool calls, after the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ScriptCall>,
    /// A wait before each piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<WrittenDuration>,
    /// Where the reply hangs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<StallAt>,
    /// How long it hangs there; without it until the call is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_for: Option<WrittenDuration>,
    /// How the call fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ScriptError>,
    /// The connection is lost in the middle of the reply.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disconnect: bool,
    /// What the provider says it cost. Without it no usage arrives, as with many servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ScriptUsage>,
    /// Why the reply ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<FinishReason>,
}

/// One piece of a reply: text or reasoning.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptChunk {
    /// A wait before this piece, in place of the reply's `delay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<WrittenDuration>,
    /// A piece of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// A piece of reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
}

/// A tool call.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptCall {
    /// A wait before this call, in place of the reply's `delay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<WrittenDuration>,
    /// The tool's name.
    pub tool: String,
    /// The arguments; `{}` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The arguments as text that is no JSON, in place of `arguments`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed_arguments: Option<String>,
    /// The call's id; made up if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Where a reply hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StallAt {
    /// Before the provider has accepted the request.
    Connect,
    /// After that, before anything arrives.
    FirstToken,
    /// After half of the pieces.
    MidStream,
    /// After the last piece, before the end.
    End,
}

/// How a call fails.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptError {
    /// The kind of failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ModelErrorKind>,
    /// The HTTP status, in place of `kind`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How long the provider asks to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<WrittenDuration>,
    /// How many requests fail before the reply is given; without it all do. Each process counts anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// Where it fails.
    #[serde(default, skip_serializing_if = "ErrorAt::is_start")]
    pub at: ErrorAt,
}

/// Where a call fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorAt {
    /// Instead of the reply.
    #[default]
    Start,
    /// After half of the pieces.
    MidStream,
    /// After the last piece, before the end.
    End,
}

impl ErrorAt {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde asks for a reference"
    )]
    fn is_start(&self) -> bool {
        *self == Self::Start
    }
}

/// What a reply cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptUsage {
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
}
