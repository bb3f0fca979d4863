//! `OpenAI`'s responses API (<https://platform.openai.com/docs/api-reference/responses-streaming>).

use serde_json::{Value, json};

use super::super::answer::AnswerParts;
use super::super::transcript::{
    TranscriptEntry, TranscriptResult, UserPart, arguments_object, data_url, entries, only_text,
};
use super::answer_schema;
use super::decoding::{AnswerProgress, EventDecodeError, text_at, usage_of};
use super::settings::{SettingError, put, refuse};
use crate::{FinishReason, ModelRequest, RequestSettings, ToolChoice};

pub(super) fn body(model: &str, request: &ModelRequest) -> Result<Value, SettingError> {
    let mut input = Vec::new();
    for entry in entries(&request.messages) {
        match entry {
            TranscriptEntry::User(parts) => {
                input.push(json!({"role": "user", "content": content(&parts)}));
            }
            TranscriptEntry::Assistant { text, calls } => {
                if !text.is_empty() {
                    input.push(json!({"role": "assistant", "content": text}));
                }
                input.extend(calls.iter().map(|call| {
                    json!({
                        "type": "function_call",
                        "call_id": call.id,
                        "name": call.name,
                        "arguments": arguments_object(&call.arguments).to_string(),
                    })
                }));
            }
            TranscriptEntry::Results(results) => input.extend(results.iter().map(|result| {
                json!({
                    "type": "function_call_output",
                    "call_id": result.call_id,
                    "output": output(result),
                })
            })),
        }
    }
    let mut body = json!({"model": model, "input": input, "stream": true, "store": false});
    let schema = request.output_schema.as_ref().map(|output| &*output.schema);
    let in_prompt = schema.filter(|schema| !answer_schema::is_object(schema));
    put(
        &mut body,
        "instructions",
        answer_schema::system_with_schema(request, in_prompt),
    );
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema,
                // A strict schema must require every field. The schemas of tools have optional fields.
                "strict": false,
            })
        });
        body["tools"] = tools.collect();
    }
    put(&mut body, "max_output_tokens", request.max_output_tokens);
    set(&mut body, request)?;
    Ok(body)
}

fn set(body: &mut Value, request: &ModelRequest) -> Result<(), SettingError> {
    let settings = &*request.settings;
    let RequestSettings {
        temperature,
        top_p,
        stop_sequences,
        seed,
        presence_penalty,
        frequency_penalty,
        reasoning_effort,
        tool_choice,
        // The provider caches without markers.
        prompt_cache: _,
        provider_options: _,
    } = settings;
    refuse([
        ("stop_sequences", !stop_sequences.is_empty()),
        ("seed", seed.is_some()),
        ("presence_penalty", presence_penalty.is_some()),
        ("frequency_penalty", frequency_penalty.is_some()),
    ])?;
    put(body, "temperature", *temperature);
    put(body, "top_p", *top_p);
    put(
        body,
        "reasoning",
        reasoning_effort.map(|effort| json!({"effort": effort.as_str()})),
    );
    let choice = match tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some("none".into()),
        ToolChoice::Required => Some("required".into()),
        ToolChoice::Tool(name) => Some(json!({"type": "function", "name": name})),
    };
    put(body, "tool_choice", choice);
    if let Some(output) = &request.output_schema
        && answer_schema::is_object(&output.schema)
    {
        let strict = answer_schema::strict(&output.schema);
        body["text"] = json!({"format": {
            "type": "json_schema",
            "name": output.name,
            "strict": strict.is_some(),
            "schema": strict.as_ref().unwrap_or(&output.schema),
        }});
    }
    Ok(())
}

/// A text, or a list of texts and images.
fn content(parts: &[UserPart<'_>]) -> Value {
    if let Some(text) = only_text(parts) {
        return text.into();
    }
    let parts = parts.iter().map(|part| match part {
        UserPart::Text(text) => json!({"type": "input_text", "text": text}),
        UserPart::Image(image) => json!({"type": "input_image", "image_url": data_url(image)}),
    });
    parts.collect()
}

fn output(result: &TranscriptResult<'_>) -> Value {
    let images = result.images.iter().map(UserPart::Image);
    let parts = [UserPart::Text(result.text)].into_iter().chain(images);
    content(&parts.collect::<Vec<_>>())
}

pub(super) fn take(
    event: &Value,
    answer: &mut AnswerParts,
) -> Result<AnswerProgress, EventDecodeError> {
    let index = event
        .get("output_index")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    match text_at(event, "/type") {
        "response.output_text.delta" | "response.refusal.delta" => {
            answer.text(text_at(event, "/delta"))?;
        }
        "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
            answer.reasoning(text_at(event, "/delta"))?;
        }
        "response.output_item.added" if text_at(event, "/item/type") == "function_call" => {
            let (id, name) = (
                text_at(event, "/item/call_id"),
                text_at(event, "/item/name"),
            );
            answer.begin_call(index, id, name, false)?;
            answer.more_arguments(index, text_at(event, "/item/arguments"))?;
        }
        "response.function_call_arguments.delta" => {
            answer.more_arguments(index, text_at(event, "/delta"))?;
        }
        "response.completed" => {
            finish(event, FinishReason::Done, answer);
            return Ok(AnswerProgress::Complete);
        }
        "response.incomplete" => {
            let reason = match text_at(event, "/response/incomplete_details/reason") {
                "content_filter" => FinishReason::ContentFilter,
                _ => FinishReason::Length,
            };
            finish(event, reason, answer);
            return Ok(AnswerProgress::Complete);
        }
        "response.failed" => {
            let response = event.get("response").unwrap_or(event);
            return Err(EventDecodeError::Provider(response.clone()));
        }
        "error" => return Err(EventDecodeError::Provider(event.clone())),
        _ if event.get("error").is_some_and(Value::is_object) => {
            return Err(EventDecodeError::Provider(event.clone()));
        }
        _ => {}
    }
    Ok(AnswerProgress::More)
}

fn finish(event: &Value, reason: FinishReason, answer: &mut AnswerParts) {
    let tokens = |name| event.pointer(&format!("/response/usage/{name}"))?.as_u64();
    let cached = tokens("input_tokens_details/cached_tokens");
    answer.usage(usage_of(
        tokens("input_tokens"),
        cached,
        tokens("output_tokens"),
    ));
    answer.finish(reason, false);
}
