//! Google's `generateContent` (<https://ai.google.dev/api/generate-content>).

use serde_json::{Value, json};

use super::super::answer::AnswerParts;
use super::super::transcript::{TranscriptEntry, UserPart, arguments_object, entries};
use super::answer_schema;
use super::decoding::{AnswerProgress, EventDecodeError, text_at, usage_of};
use super::settings::{SettingError, put, stop_texts};
use crate::{FinishReason, ModelRequest, ReasoningEffort, ToolChoice};

pub(super) fn body(model: &str, request: &ModelRequest) -> Result<Value, SettingError> {
    let contents: Vec<_> = entries(&request.messages)
        .into_iter()
        .map(|entry| match entry {
            TranscriptEntry::User(parts) => {
                let parts = parts.into_iter().map(part);
                json!({"role": "user", "parts": parts.collect::<Value>()})
            }
            TranscriptEntry::Assistant { text, calls } => {
                let text = (!text.is_empty()).then(|| json!({"text": text}));
                let calls = calls.iter().map(|call| {
                    let args = arguments_object(&call.arguments);
                    json!({"functionCall": {"name": call.name, "args": args}})
                });
                let parts: Value = text.into_iter().chain(calls).collect();
                json!({"role": "model", "parts": parts})
            }
            TranscriptEntry::Results(results) => {
                let responses = results.iter().map(|result| {
                    let key = if result.is_error { "error" } else { "result" };
                    let response = json!({key: result.text});
                    json!({"functionResponse": {"name": result.tool, "response": response}})
                });
                // Older models accept only text in a response, so the images follow the responses.
                let images = results.iter().flat_map(|result| result.images);
                let parts = responses.chain(images.map(|image| part(UserPart::Image(image))));
                json!({"role": "user", "parts": parts.collect::<Value>()})
            }
        })
        .collect();
    let mut body = json!({"contents": contents});
    let schema = request.output_schema.as_ref().map(|output| &*output.schema);
    let is_constrained = |schema: &&Value| {
        answer_schema::is_object(schema) && (request.tools.is_empty() || !is_before_3(model))
    };
    let format = schema.filter(is_constrained);
    let in_prompt = schema.filter(|_| format.is_none());
    if let Some(system) = answer_schema::system_with_schema(request, in_prompt) {
        body["systemInstruction"] = json!({"parts": [{"text": system}]});
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "parametersJsonSchema": tool.input_schema,
            })
        });
        body["tools"] = json!([{"functionDeclarations": tools.collect::<Value>()}]);
    }
    let mut config = config(model, request)?;
    if let Some(schema) = format {
        config["responseMimeType"] = "application/json".into();
        config["responseJsonSchema"] = schema.clone();
    }
    if config != json!({}) {
        body["generationConfig"] = config;
    }
    let choice = match &request.settings.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::None => (!request.tools.is_empty()).then(|| json!({"mode": "NONE"})),
        ToolChoice::Required => Some(json!({"mode": "ANY"})),
        ToolChoice::Tool(name) => Some(json!({"mode": "ANY", "allowedFunctionNames": [name]})),
    };
    if let Some(choice) = choice {
        body["toolConfig"] = json!({"functionCallingConfig": choice});
    }
    Ok(body)
}

fn config(model: &str, request: &ModelRequest) -> Result<Value, SettingError> {
    let settings = &request.settings;
    let mut config = json!({});
    put(&mut config, "maxOutputTokens", request.max_output_tokens);
    put(&mut config, "temperature", settings.temperature);
    put(&mut config, "topP", settings.top_p);
    put(&mut config, "stopSequences", stop_texts(settings));
    put(&mut config, "seed", settings.seed);
    put(&mut config, "presencePenalty", settings.presence_penalty);
    put(&mut config, "frequencyPenalty", settings.frequency_penalty);
    if let Some(effort) = settings.reasoning_effort {
        let thinking = if is_before_3(model) {
            thinking_budget(effort).map(|tokens| json!({"thinkingBudget": tokens}))
        } else {
            thinking_level(effort).map(|level| json!({"thinkingLevel": level}))
        };
        config["thinkingConfig"] = thinking.ok_or_else(|| {
            SettingError::UnsupportedValue("reasoning_effort", effort.to_string())
        })?;
    }
    Ok(config)
}

/// True for models before Gemini 3. They have a budget instead of levels of thinking, and refuse a schema of the answer
/// together with tools.
fn is_before_3(model: &str) -> bool {
    ["gemini-1", "gemini-2"]
        .iter()
        .any(|version| model.contains(version))
}

/// Tokens for the thinking of models before Gemini 3: the numbers of the provider's compatible API for these levels.
fn thinking_budget(effort: ReasoningEffort) -> Option<u32> {
    match effort {
        ReasoningEffort::None => Some(0),
        ReasoningEffort::Minimal | ReasoningEffort::Low => Some(1_024),
        ReasoningEffort::Medium => Some(8_192),
        ReasoningEffort::High => Some(24_576),
        ReasoningEffort::Xhigh | ReasoningEffort::Max => None,
    }
}

fn thinking_level(effort: ReasoningEffort) -> Option<&'static str> {
    match effort {
        ReasoningEffort::Minimal
        | ReasoningEffort::Low
        | ReasoningEffort::Medium
        | ReasoningEffort::High => Some(effort.as_str()),
        ReasoningEffort::None | ReasoningEffort::Xhigh | ReasoningEffort::Max => None,
    }
}

fn part(part: UserPart<'_>) -> Value {
    match part {
        UserPart::Text(text) => json!({"text": text}),
        UserPart::Image(image) => json!({"inlineData": {
            "mimeType": image.media_type(),
            "data": image.to_base64(),
        }}),
    }
}

pub(super) fn take(
    mut event: Value,
    answer: &mut AnswerParts,
) -> Result<AnswerProgress, EventDecodeError> {
    if event.get("error").is_some() {
        return Err(EventDecodeError::Provider(event));
    }
    if let Some(usage) = event.get("usageMetadata") {
        let tokens = |name| usage.get(name).and_then(Value::as_u64);
        let thoughts = tokens("thoughtsTokenCount").unwrap_or_default();
        let output = tokens("candidatesTokenCount").map(|tokens| tokens.saturating_add(thoughts));
        answer.usage(usage_of(
            tokens("promptTokenCount"),
            tokens("cachedContentTokenCount"),
            output,
        ));
    }
    // If the provider refuses a prompt, the answer has no candidate, and so no finish reason.
    if event.pointer("/promptFeedback/blockReason").is_some() {
        answer.finish(FinishReason::ContentFilter, false);
    }
    let reason = text_at(&event, "/candidates/0/finishReason").to_owned();
    let parts = event.pointer_mut("/candidates/0/content/parts");
    if let Some(Value::Array(parts)) = parts.map(Value::take) {
        for mut part in parts {
            let text = text_at(&part, "/text");
            if part.get("thought").and_then(Value::as_bool) == Some(true) {
                answer.reasoning(text)?;
            } else {
                answer.text(text)?;
            }
            if let Some(mut call) = part.get_mut("functionCall").map(Value::take) {
                let arguments = match call.get_mut("args").map(Value::take) {
                    None | Some(Value::Null) => json!({}),
                    Some(arguments) => arguments,
                };
                let index = answer.newest_calls().count() as u64;
                let (id, name) = (text_at(&call, "/id"), text_at(&call, "/name"));
                answer.begin_call(index, id, name, false)?;
                answer.more_arguments(index, &arguments.to_string())?;
            }
        }
    }
    match &*reason {
        "" | "FINISH_REASON_UNSPECIFIED" => {}
        "MAX_TOKENS" => answer.finish(FinishReason::Length, false),
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => {
            answer.finish(FinishReason::ContentFilter, false);
        }
        // The model wrote a call that the provider could not parse.
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => {
            answer.finish(FinishReason::Done, true);
        }
        _ => answer.finish(FinishReason::Done, false),
    }
    Ok(AnswerProgress::More)
}
