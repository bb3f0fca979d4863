//! Format of script files and their JSON Schema.
//!
//! The format is documented in `docs/scripted-model.md`; `schemas/script.schema.json` is generated from these types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::ReplyOrder;
use crate::{FinishReason, ModelErrorKind};
use allstop_core::HumanDuration;

/// A script for a model.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Allstop script")]
pub struct ScriptFile {
    /// Order of `replies`.
    #[serde(default, skip_serializing_if = "ReplyOrder::is_history")]
    pub order: ReplyOrder,
    /// Replies to user messages that contain a text. The first turn that matches answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<ScriptTurn>,
    /// Replies to all other messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ScriptReply>")]
    pub replies: Vec<Spanned<ScriptReply>>,
}

impl ReplyOrder {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde asks for a reference"
    )]
    fn is_history(&self) -> bool {
        *self == Self::History
    }
}

/// The replies to one user message: the first reply for the first step of the turn, and so on.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptTurn {
    /// Text that the user message must contain; without it every message matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Number of images that the user message must have; without it any number matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<usize>,
    /// One reply per step.
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
    /// The text. It arrives in one piece, or word by word if there are delays or faults in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The text in pieces, instead of `text`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<ScriptChunk>,
    /// Tool calls, after the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ScriptCall>,
    /// Delay before each piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<HumanDuration>,
    /// Point at which the reply hangs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<StallAt>,
    /// Time for which it hangs; by default until the call is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_for: Option<HumanDuration>,
    /// Error of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ScriptError>,
    /// The connection is lost in the middle of the reply.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disconnect: bool,
    /// Usage that the provider reports. By default it reports none, like many servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ScriptUsage>,
    /// Finish reason of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<FinishReason>,
}

/// One piece of a reply: text or reasoning.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptChunk {
    /// Delay before this piece, instead of the reply's `delay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<HumanDuration>,
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
    /// Delay before this call, instead of the reply's `delay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<HumanDuration>,
    /// Name of the tool.
    pub tool: String,
    /// The arguments; by default `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// Arguments as text that is not JSON, instead of `arguments`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed_arguments: Option<String>,
    /// Id of the call; generated by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Point at which a reply hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StallAt {
    /// Before the provider has accepted the request.
    Connect,
    /// After the request was accepted, before anything arrives.
    FirstToken,
    /// After half of the pieces.
    MidStream,
    /// After the last piece, before the end.
    End,
}

/// Error of a scripted call.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptError {
    /// The kind of failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ModelErrorKind>,
    /// The HTTP status, instead of `kind`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The error message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Wait that the provider asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<HumanDuration>,
    /// Number of requests that fail before the reply is given; by default all. Each process counts anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// Point at which the call fails.
    #[serde(default, skip_serializing_if = "ErrorAt::is_start")]
    pub at: ErrorAt,
}

/// Point at which a call fails.
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

/// Usage of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptUsage {
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
}
