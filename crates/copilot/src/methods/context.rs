//! `session.metadata.*`, `session.usage.*` and `session.tools.*`: facts about a session, and its working directory.
//!
//! Numbers of tokens are estimates from the sizes of the texts, because each provider counts in its own way.

use std::path::PathBuf;
use std::sync::Arc;

use allstop_core::Message;
use allstop_core::turn::Conversation;
use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::info::context_window;
use super::method::{
    MethodAnswer, MethodCx, MethodResult, failed, large, later, open_session, read, ready,
};
use super::models::without_nulls;
use super::open::reopen;
use super::open_checks::check_folder;
use super::stops::runs_attached_background;
use crate::hosted::{HostedSession, SessionChoice, now};
use crate::server::CopilotServer;

/// Usual number of bytes per token in English text and code.
const BYTES_PER_TOKEN: usize = 4;

/// Maximum number of the largest messages in an answer, if the client names no limit.
const HEAVIEST_DEFAULT: usize = 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContextParams {
    session_id: String,
    working_directory: Option<PathBuf>,
    context: Option<Value>,
    prompt_token_limit: Option<u64>,
    output_token_limit: Option<u64>,
    limit: Option<usize>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: ContextParams = read(params)?;
    let hosted = open_session(cx, &params.session_id)?;
    let session = &hosted.session;
    let server = cx.server.clone();
    match method {
        "session.metadata.isProcessing" => ready(json!({ "processing": session.is_busy() })),
        "session.metadata.activity" => {
            let has_background = session.background().iter().any(|work| work.is_running());
            ready(json!({
                "abortable": session.is_busy() || runs_attached_background(session),
                "hasActiveWork": session.is_busy() || has_background,
            }))
        }
        "session.metadata.snapshot" => ready(snapshot(&hosted)),
        "session.metadata.setWorkingDirectory" => {
            let folder = params
                .working_directory
                .ok_or_else(|| RpcError::invalid_params("`workingDirectory` is missing"))?;
            Ok(later(set_folder(server, hosted, folder)))
        }
        "session.metadata.recordContextChange" => {
            let context = params.context.unwrap_or_default();
            // The working directory of the session decides.
            if context["cwd"] == json!(hosted.folder()) {
                hosted.note("session.context_changed", without_nulls(context));
            }
            ready(json!({}))
        }
        "session.metadata.contextInfo" => Ok(large(async move {
            let limits = (params.prompt_token_limit, params.output_token_limit);
            let info = ContextSizes::of(&hosted)
                .await?
                .info(&server, &hosted, limits);
            Ok(json!({ "contextInfo": info }))
        })),
        "session.metadata.recomputeContextTokens" => Ok(large(async move {
            let sizes = ContextSizes::of(&hosted).await?;
            Ok(json!({
                "totalTokens": sizes.system + sizes.messages,
                "messagesTokenCount": sizes.messages,
                "systemTokenCount": sizes.system,
            }))
        })),
        "session.metadata.getContextAttribution" => Ok(large(async move {
            let sizes = ContextSizes::of(&hosted).await?;
            Ok(json!({ "contextAttribution": sizes.attribution(&server, &hosted) }))
        })),
        "session.metadata.getContextHeaviestMessages" => Ok(large(async move {
            heaviest(&hosted, params.limit.unwrap_or(HEAVIEST_DEFAULT)).await
        })),
        "session.usage.getMetrics" => Ok(large(usage(hosted))),
        "session.instructions.getSources" => ready(json!({ "sources": sources_of(&hosted) })),
        "session.tools.getCurrentMetadata" => ready(json!({ "tools": hosted.tool_infos() })),
        // The tools are checked when a client declares them.
        "session.tools.initializeAndValidate" => ready(json!({})),
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

/// Estimates the tokens of a text.
pub(super) fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN) as u64
}

/// Text of a message.
fn text_of(message: &Message) -> &str {
    match message {
        Message::User { text, .. }
        | Message::Assistant { text, .. }
        | Message::Note { text }
        | Message::Summary { text }
        | Message::StopMarker { text } => text,
        Message::Tool(result) => &result.content,
    }
}

fn role_of(message: &Message) -> &'static str {
    match message {
        Message::Assistant { .. } => "assistant",
        Message::Tool(_) => "tool",
        _ => "user",
    }
}

/// Describes the files with the project's instructions in the system prompt.
fn sources_of(session: &HostedSession) -> Vec<Value> {
    let files = session.instructions.files.iter();
    let sources = files.map(|file| {
        json!({
            "id": file.path,
            "label": file.path,
            "sourcePath": file.path,
            "content": file.text,
            "type": "repo",
            "location": "repository",
        })
    });
    sources.collect()
}

fn snapshot(session: &HostedSession) -> Value {
    let name = session.state.name();
    let mut workspace = json!({
        "id": session.id(),
        "cwd": session.folder(),
        "user_named": session.state.is_named_by_user(),
        "created_at": session.opened_at,
    });
    if let Some(name) = &name {
        workspace["name"] = name.as_str().into();
    }
    let mut snapshot = json!({
        "sessionId": session.id(),
        "startTime": session.opened_at,
        "modifiedTime": now(),
        "isRemote": false,
        "alreadyInUse": false,
        "workspacePath": session.files.path_of(""),
        "workingDirectory": session.folder(),
        "currentMode": session.state.mode(),
        "selectedModel": session.model_name(),
        "sessionLimits": session.limits(),
        "workspace": workspace,
    });
    if let Some(name) = name {
        snapshot["summary"] = name.into();
    }
    snapshot
}

/// Changes the working directory of a session.
pub(super) async fn set_folder(
    server: CopilotServer,
    session: Arc<HostedSession>,
    folder: PathBuf,
) -> MethodResult {
    check_folder(Some(&folder)).await?;
    let chosen = folder.clone();
    let change = move |choice: &mut SessionChoice| {
        choice.requested.working_directory = Some(chosen.clone());
        choice.folder = Some(chosen);
        Ok(())
    };
    let id = session.id().clone();
    let session = reopen(server, id, "workingDirectory", change).await?;
    session.note("session.context_changed", json!({ "cwd": folder }));
    Ok(json!({ "workingDirectory": folder }))
}

/// Estimated tokens of the parts of a request.
struct ContextSizes {
    system: u64,
    tools: u64,
    messages: u64,
    conversation: Arc<Conversation>,
}

impl ContextSizes {
    async fn of(session: &HostedSession) -> Result<Self, RpcError> {
        let conversation = session.session.history().await;
        let conversation = conversation.map_err(|error| failed(&error))?;
        let messages = conversation.messages.iter();
        let bytes: usize = messages.map(|message| message.bytes()).sum();
        let tools = session.tool_infos().unwrap_or_default();
        Ok(Self {
            system: tokens(session.system_prompt_bytes()),
            tools: tokens(serde_json::to_vec(&tools).map_or(0, |json| json.len())),
            messages: tokens(bytes),
            conversation,
        })
    }

    fn total(&self) -> u64 {
        self.system + self.tools + self.messages
    }

    fn info(
        &self,
        server: &CopilotServer,
        session: &HostedSession,
        (prompt, output): (Option<u64>, Option<u64>),
    ) -> Value {
        let window = context_window(server);
        let prompt = prompt.unwrap_or(window);
        json!({
            "modelName": session.model_name(),
            "systemTokens": self.system,
            "conversationTokens": self.messages,
            "toolDefinitionsTokens": self.tools,
            "mcpToolsTokens": 0,
            "totalTokens": self.total(),
            "promptTokenLimit": prompt,
            "compactionThreshold": prompt,
            "limit": prompt + output.unwrap_or(0),
            "bufferTokens": 0,
        })
    }

    fn attribution(&self, server: &CopilotServer, session: &HostedSession) -> Value {
        let window = context_window(server);
        let entry = |id: &str, label: &str, tokens: u64| json!({ "kind": id, "id": id, "label": label, "tokens": tokens });
        json!({
            "totalTokens": self.total(),
            "modelId": session.model_name(),
            "modelSource": "session",
            "promptTokenLimit": window,
            "limit": window,
            "bufferTokens": 0,
            "compactionThreshold": window,
            "categories": {
                "systemPrompt": self.system,
                "customInstructions": 0,
                "systemTools": self.tools,
                "mcpTools": 0,
                "messages": self.messages,
                "freeSpace": window.saturating_sub(self.total()),
                "buffer": 0,
            },
            "entries": [
                entry("system", "System prompt", self.system),
                entry("tools", "Tool definitions", self.tools),
                entry("messages", "Messages", self.messages),
            ],
            "compactions": { "count": u64::from(summary_of(&self.conversation).is_some()) },
        })
    }
}

/// Returns the summary that has replaced the oldest messages of a conversation.
pub(super) fn summary_of(conversation: &Conversation) -> Option<&Arc<str>> {
    conversation
        .messages
        .iter()
        .find_map(|message| match &**message {
            Message::Summary { text } => Some(text),
            _ => None,
        })
}

/// Returns the largest messages of the conversation.
async fn heaviest(session: &HostedSession, limit: usize) -> MethodResult {
    let sizes = ContextSizes::of(session).await?;
    let messages = sizes.conversation.messages.iter().enumerate();
    let mut messages: Vec<_> = messages
        .map(|(index, message)| (tokens(message.bytes()), index, message))
        .collect();
    messages.sort_by_key(|(tokens, ..)| std::cmp::Reverse(*tokens));
    let infos = messages
        .into_iter()
        .take(limit)
        .map(|(tokens, index, message)| {
            let label: String = text_of(message).chars().take(80).collect();
            json!({
                "id": format!("message-{index}"),
                "label": label,
                "role": role_of(message),
                "tokens": tokens,
            })
        });
    let infos: Vec<_> = infos.collect();
    Ok(json!({ "totalTokens": sizes.messages, "messages": infos }))
}

/// Returns the usage of a session. The provider's prices are not known, so no costs are reported.
async fn usage(session: Arc<HostedSession>) -> MethodResult {
    let conversation = session.session.history().await;
    let conversation = conversation.map_err(|error| failed(&error))?;
    let usage = conversation.usage;
    let model = session.model_name().map_or("unknown", |name| &**name);
    let mut models = serde_json::Map::new();
    if conversation.turns > 0 {
        let metric = json!({
            "requests": { "count": conversation.turns, "cost": 0 },
            "usage": {
                "inputTokens": usage.input_tokens,
                "outputTokens": usage.output_tokens,
                "cacheReadTokens": usage.cached_input_tokens,
                "cacheWriteTokens": usage.cache_write_input_tokens,
            },
        });
        models.insert(model.to_owned(), metric);
    }
    Ok(json!({
        "totalPremiumRequestCost": 0,
        "totalUserRequests": conversation.turns,
        "totalApiDurationMs": 0,
        "sessionStartTime": session.opened_at,
        "codeChanges": {
            "linesAdded": 0,
            "linesRemoved": 0,
            "filesModifiedCount": 0,
            "filesModified": [],
        },
        "modelMetrics": models,
        "currentModel": model,
        "lastCallInputTokens": 0,
        "lastCallOutputTokens": 0,
    }))
}
