//! Anthropic's messages API (<https://docs.anthropic.com/en/docs/build-with-claude/streaming>).

use allstop_core::Usage;
use serde_json::{Value, json};

use super::super::answer::AnswerParts;
use super::super::transcript::{
    TranscriptEntry, TranscriptResult, UserPart, arguments_object, entries,
};
use super::answer_schema;
use super::decoding::{AnswerProgress, EventDecodeError, text_at};
use super::settings::{SettingError, put, refuse, stop_texts};
use crate::{FinishReason, ModelRequest, ReasoningEffort, RequestSettings, ToolChoice};

/// Version of the protocol.
pub(super) const VERSION: &str = "2023-06-01";

pub(super) fn body(model: &str, request: &ModelRequest) -> Result<Value, SettingError> {
    let messages: Vec<_> = entries(&request.messages)
        .into_iter()
        .map(|entry| match entry {
            TranscriptEntry::User(parts) => {
                let parts = parts.into_iter().map(part);
                json!({"role": "user", "content": parts.collect::<Value>()})
            }
            TranscriptEntry::Assistant { text, calls } => {
                let text = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
                let calls = calls.iter().map(|call| {
                    json!({
                        "type": "tool_use",
                        "id": call.id,
                        "name": call.name,
                        "input": arguments_object(&call.arguments),
                    })
                });
                let parts: Value = text.into_iter().chain(calls).collect();
                json!({"role": "assistant", "content": parts})
            }
            TranscriptEntry::Results(results) => {
                let parts = results.iter().map(|result| {
                    json!({
                        "type": "tool_result",
                        "tool_use_id": result.call_id,
                        "content": content(result),
                        "is_error": result.is_error,
                    })
                });
                json!({"role": "user", "content": parts.collect::<Value>()})
            }
        })
        .collect();
    let limit = request.max_output_tokens.unwrap_or(output_limit(model));
    let mut body = json!({
        "model": model,
        "messages": messages,
        "max_tokens": limit,
        "stream": true,
    });
    let schema = request.output_schema.as_ref().map(|output| &*output.schema);
    let format = schema
        .filter(|schema| answer_schema::is_object(schema) && has_formats(model))
        .and_then(answer_schema::for_messages);
    let in_prompt = schema.filter(|_| format.is_none());
    put(
        &mut body,
        "system",
        answer_schema::system_with_schema(request, in_prompt),
    );
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
            })
        });
        body["tools"] = tools.collect();
    }
    put(
        &mut body,
        "output_config",
        format.map(|schema| json!({"format": {"type": "json_schema", "schema": schema}})),
    );
    set(&mut body, request)?;
    if request.settings.prompt_cache != Some(false) {
        mark_for_cache(&mut body);
    }
    Ok(body)
}

fn set(body: &mut Value, request: &ModelRequest) -> Result<(), SettingError> {
    let settings = &*request.settings;
    let RequestSettings {
        temperature,
        top_p,
        stop_sequences: _,
        seed,
        presence_penalty,
        frequency_penalty,
        reasoning_effort,
        tool_choice,
        prompt_cache: _,
        provider_options: _,
    } = settings;
    refuse([
        ("seed", seed.is_some()),
        ("presence_penalty", presence_penalty.is_some()),
        ("frequency_penalty", frequency_penalty.is_some()),
    ])?;
    put(body, "temperature", *temperature);
    put(body, "top_p", *top_p);
    put(body, "stop_sequences", stop_texts(settings));
    match reasoning_effort {
        None => {}
        Some(effort @ (ReasoningEffort::None | ReasoningEffort::Minimal)) => {
            return Err(SettingError::UnsupportedValue(
                "reasoning_effort",
                effort.to_string(),
            ));
        }
        Some(effort) => body["output_config"]["effort"] = effort.as_str().into(),
    }
    let has_tools = body.get("tools").is_some();
    let choice = match tool_choice {
        ToolChoice::Auto => None,
        // The provider refuses a choice between no tools.
        ToolChoice::None => has_tools.then(|| json!({"type": "none"})),
        ToolChoice::Required => Some(json!({"type": "any"})),
        ToolChoice::Tool(name) => Some(json!({"type": "tool", "name": name})),
    };
    put(body, "tool_choice", choice);
    Ok(())
}

/// True if the provider constrains the answers of this model to a schema. Models before Claude 4.5 get the schema in the
/// system prompt.
fn has_formats(model: &str) -> bool {
    let is_before = |family: &str| {
        ["-4-0", "-4-1", "-4-2"]
            .iter()
            .any(|version| model.contains(&format!("{family}{version}")))
    };
    model.starts_with("claude")
        && !model.contains("claude-2")
        && !model.contains("claude-3")
        && !is_before("sonnet")
        && !is_before("opus")
}

/// Marks the two ends of the text that the next request repeats: the system prompt with the tools before it, and the
/// conversation. The provider caches the text up to each marker, and ignores markers of short texts.
fn mark_for_cache(body: &mut Value) {
    if let Some(system) = body.get("system").and_then(Value::as_str) {
        body["system"] = json!([{"type": "text", "text": system}]);
    }
    let (system, tools) = ("/system/0".to_owned(), last_of(body, "/tools"));
    let before = [Some(system), tools].into_iter().flatten();
    let before: Vec<_> = before
        .filter(|place| body.pointer(place).is_some())
        .collect();
    let newest =
        last_of(body, "/messages").and_then(|last| last_of(body, &format!("{last}/content")));
    for place in before.into_iter().take(1).chain(newest) {
        match body.pointer_mut(&place) {
            // The provider refuses a marker at an empty text.
            Some(block) if block.get("text") != Some(&"".into()) => {
                block["cache_control"] = json!({"type": "ephemeral"});
            }
            _ => {}
        }
    }
}

/// Pointer to the last element of the list at a pointer.
fn last_of(body: &Value, pointer: &str) -> Option<String> {
    let index = body.pointer(pointer)?.as_array()?.len().checked_sub(1)?;
    Some(format!("{pointer}/{index}"))
}

fn part(part: UserPart<'_>) -> Value {
    match part {
        UserPart::Text(text) => json!({"type": "text", "text": text}),
        UserPart::Image(image) => json!({"type": "image", "source": {
            "type": "base64",
            "media_type": image.media_type(),
            "data": image.to_base64(),
        }}),
    }
}

/// The content of a result: a text, or a list of a text and images.
fn content(result: &TranscriptResult<'_>) -> Value {
    if result.images.is_empty() {
        return result.text.into();
    }
    let text = (!result.text.is_empty()).then_some(UserPart::Text(result.text));
    let images = result.images.iter().map(UserPart::Image);
    text.into_iter().chain(images).map(part).collect()
}

/// Maximum number of tokens of the answer. The request must contain a number, and the provider refuses a number above
/// the model's limit.
fn output_limit(model: &str) -> u64 {
    match model {
        _ if model.contains("claude-3-5") => 8_192,
        _ if model.contains("claude-3-7") => 32_000,
        _ if model.contains("claude-3") => 4_096,
        _ => 32_000,
    }
}

pub(super) fn take(
    event: &Value,
    answer: &mut AnswerParts,
) -> Result<AnswerProgress, EventDecodeError> {
    let index = event
        .get("index")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    match text_at(event, "/type") {
        "message_start" => answer.usage(usage(event.pointer("/message/usage"), None)),
        "content_block_start" if text_at(event, "/content_block/type") == "tool_use" => {
            let block = |key: &str| text_at(event, &format!("/content_block/{key}"));
            answer.begin_call(index, block("id"), block("name"), true)?;
        }
        "content_block_start" => answer.text(text_at(event, "/content_block/text"))?,
        "content_block_delta" => {
            answer.text(text_at(event, "/delta/text"))?;
            answer.reasoning(text_at(event, "/delta/thinking"))?;
            if let Some(piece) = event.pointer("/delta/partial_json").and_then(Value::as_str) {
                answer.more_arguments(index, piece)?;
            }
        }
        "message_delta" => {
            let before = answer.usage_so_far();
            answer.usage(usage(event.get("usage"), before));
            let reason = text_at(event, "/delta/stop_reason");
            let finish = match reason {
                "" => return Ok(AnswerProgress::More),
                "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
                "refusal" => FinishReason::ContentFilter,
                _ => FinishReason::Done,
            };
            answer.finish(finish, reason == "tool_use");
        }
        "message_stop" => return Ok(AnswerProgress::Complete),
        "error" => return Err(EventDecodeError::Provider(event.clone())),
        _ => {}
    }
    Ok(AnswerProgress::More)
}

/// Combines a usage object with the earlier counts. Cached input counts as input, but the provider reports it
/// separately.
fn usage(counted: Option<&Value>, before: Option<Usage>) -> Option<Usage> {
    let counted = counted?;
    let tokens = |name| counted.get(name).and_then(Value::as_u64);
    let input_tokens = tokens("input_tokens").map(|input| {
        ["cache_creation_input_tokens", "cache_read_input_tokens"]
            .into_iter()
            .filter_map(tokens)
            .fold(input, u64::saturating_add)
    });
    let written = tokens("cache_creation_input_tokens")
        .or(before.map(|usage| usage.cache_write_input_tokens))
        .unwrap_or_default();
    let usage = super::decoding::usage_of(
        input_tokens.or(before.map(|usage| usage.input_tokens)),
        tokens("cache_read_input_tokens").or(before.map(|usage| usage.cached_input_tokens)),
        tokens("output_tokens").or(before.map(|usage| usage.output_tokens)),
    )?;
    Some(Usage {
        cache_write_input_tokens: written.min(usage.input_tokens),
        ..usage
    })
}
