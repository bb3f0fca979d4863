//! Chat completions of `OpenAI` and compatible servers
//! (<https://platform.openai.com/docs/api-reference/chat-streaming>).

use serde_json::{Value, json};

use super::super::answer::AnswerParts;
use super::super::transcript::{
    TranscriptEntry, UserPart, arguments_object, data_url, entries, only_text,
};
use super::answer_schema;
use super::decoding::{AnswerProgress, EventDecodeError, text_at, usage_of};
use super::settings::{put, stop_texts};
use crate::{FinishReason, ModelRequest, ReasoningEffort, RequestSettings, ToolChoice};

/// Data of the event that ends the stream.
pub(super) const END_MARKER: &str = "[DONE]";

/// Text before the images of a tool result.
const IMAGES_OF_RESULT: &str = "[images of a tool result]";

/// Field of the maximum number of tokens of an answer, as all compatible servers know it.
pub(super) const LIMIT: &str = "max_tokens";

/// Like [`LIMIT`], but at `OpenAI` itself: its reasoning models (`o1` and later) refuse the deprecated `max_tokens`, and all
/// its models accept this field (API reference, page "Create chat completion").
pub(super) const LIMIT_OF_OPENAI: &str = "max_completion_tokens";

/// `limit` is the name of the field for the maximum number of tokens of the answer.
pub(super) fn body(model: &str, request: &ModelRequest, limit: &str) -> Value {
    let mut messages = Vec::new();
    let schema = request.output_schema.as_ref().map(|output| &*output.schema);
    let in_prompt = schema.filter(|schema| !answer_schema::is_object(schema));
    if let Some(system) = answer_schema::system_with_schema(request, in_prompt) {
        messages.push(json!({"role": "system", "content": system}));
    }
    let mut images_of_results = Vec::new();
    for entry in entries(&request.messages) {
        match entry {
            TranscriptEntry::User(parts) => {
                images_of_results.extend(parts);
                messages.push(user_message(&std::mem::take(&mut images_of_results)));
            }
            TranscriptEntry::Assistant { text, calls } => {
                if !images_of_results.is_empty() {
                    messages.push(user_message(&std::mem::take(&mut images_of_results)));
                }
                let mut message = json!({"role": "assistant", "content": text});
                let calls: Vec<_> = calls
                    .iter()
                    .map(|call| {
                        json!({"id": call.id, "type": "function", "function": {
                            "name": call.name,
                            "arguments": arguments_object(&call.arguments).to_string(),
                        }})
                    })
                    .collect();
                if !calls.is_empty() {
                    message["tool_calls"] = calls.into();
                }
                messages.push(message);
            }
            TranscriptEntry::Results(results) => {
                for result in results {
                    messages.push(
                        json!({"role": "tool", "tool_call_id": result.call_id, "content": result.text}),
                    );
                    // A result contains only text, so its images follow in a user message.
                    if !result.images.is_empty() {
                        images_of_results.push(UserPart::Text(IMAGES_OF_RESULT));
                        images_of_results.extend(result.images.iter().map(UserPart::Image));
                    }
                }
            }
        }
    }
    if !images_of_results.is_empty() {
        messages.push(user_message(&images_of_results));
    }
    let mut body = json!({
        "model": model,
        "messages": messages,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({"type": "function", "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema,
            }})
        });
        body["tools"] = tools.collect();
    }
    put(&mut body, limit, request.max_output_tokens);
    set(&mut body, request);
    body
}

fn set(body: &mut Value, request: &ModelRequest) {
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
        // Servers with this protocol cache without markers.
        prompt_cache: _,
        provider_options: _,
    } = settings;
    put(body, "temperature", *temperature);
    put(body, "top_p", *top_p);
    put(body, "stop", stop_texts(settings));
    put(body, "seed", *seed);
    put(body, "presence_penalty", *presence_penalty);
    put(body, "frequency_penalty", *frequency_penalty);
    put(
        body,
        "reasoning_effort",
        reasoning_effort.map(ReasoningEffort::as_str),
    );
    let has_tools = body.get("tools").is_some();
    let choice = match tool_choice {
        ToolChoice::Auto => None,
        // Servers refuse a choice between no tools.
        ToolChoice::None => has_tools.then(|| "none".into()),
        ToolChoice::Required => Some("required".into()),
        ToolChoice::Tool(name) => Some(json!({"type": "function", "function": {"name": name}})),
    };
    put(body, "tool_choice", choice);
    if let Some(output) = &request.output_schema
        && answer_schema::is_object(&output.schema)
    {
        let strict = answer_schema::strict(&output.schema);
        body["response_format"] = json!({"type": "json_schema", "json_schema": {
            "name": output.name,
            "strict": strict.is_some(),
            "schema": strict.as_ref().unwrap_or(&output.schema),
        }});
    }
}

fn user_message(parts: &[UserPart<'_>]) -> Value {
    // The texts are joined into one, because some servers do not accept a list of parts.
    if let Some(text) = only_text(parts) {
        return json!({"role": "user", "content": text});
    }
    let parts = parts.iter().map(|part| match part {
        UserPart::Text(text) => json!({"type": "text", "text": text}),
        UserPart::Image(image) => {
            json!({"type": "image_url", "image_url": {"url": data_url(image)}})
        }
    });
    json!({"role": "user", "content": parts.collect::<Value>()})
}

pub(super) fn take(
    event: &Value,
    answer: &mut AnswerParts,
) -> Result<AnswerProgress, EventDecodeError> {
    if event.get("error").is_some_and(|error| !error.is_null()) {
        return Err(EventDecodeError::Provider(event.clone()));
    }
    if let Some(usage) = event.get("usage") {
        let tokens = |name| usage.get(name).and_then(Value::as_u64);
        answer.usage(usage_of(
            tokens("prompt_tokens"),
            // DeepSeek has a separate field.
            usage
                .pointer("/prompt_tokens_details/cached_tokens")
                .and_then(Value::as_u64)
                .or(tokens("prompt_cache_hit_tokens")),
            tokens("completion_tokens"),
        ));
    }
    let Some(choice) = event.pointer("/choices/0") else {
        return Ok(AnswerProgress::More);
    };
    answer.reasoning(text_at(choice, "/delta/reasoning_content"))?;
    answer.reasoning(text_at(choice, "/delta/reasoning"))?;
    take_content(choice.pointer("/delta/content"), answer)?;
    answer.text(text_at(choice, "/delta/refusal"))?;
    for call in list_at(choice, "/delta/tool_calls") {
        take_call(call, answer)?;
    }
    if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
        let finish = match reason {
            // Gateways send this reason if their provider failed in the middle of the answer.
            "error" => return Err(EventDecodeError::Provider(choice.clone())),
            "length" => FinishReason::Length,
            "content_filter" => FinishReason::ContentFilter,
            _ => FinishReason::Done,
        };
        answer.finish(finish, matches!(reason, "tool_calls" | "function_call"));
    }
    Ok(AnswerProgress::More)
}

/// Takes content that is a text or a list of parts. Some servers send the thinking of the model as parts of the list.
fn take_content(content: Option<&Value>, answer: &mut AnswerParts) -> Result<(), EventDecodeError> {
    match content {
        Some(Value::String(text)) => answer.text(text),
        Some(Value::Array(parts)) => parts.iter().try_for_each(|part| {
            list_at(part, "/thinking")
                .iter()
                .try_for_each(|thought| answer.reasoning(text_at(thought, "/text")))?;
            answer.text(text_at(part, "/text"))
        }),
        _ => Ok(()),
    }
}

/// Takes a piece of a call. Servers identify the calls in different ways: most give each call an index, some send only
/// an id, and some give every call the index 0.
fn take_call(piece: &Value, answer: &mut AnswerParts) -> Result<(), EventDecodeError> {
    let id = text_at(piece, "/id");
    let name = text_at(piece, "/function/name");
    let index = piece.get("index").and_then(Value::as_u64);
    let open = {
        let mut calls = answer.newest_calls();
        match index {
            Some(index) => calls.find(|call| call.index() == index),
            None if id.is_empty() => calls.next(),
            None => calls.find(|call| call.id() == id),
        }
    };
    let is_another = open.is_none_or(|call| {
        !name.is_empty() && !id.is_empty() && id != call.id() && call.is_whole()
    });
    let index = match open {
        Some(call) => call.index(),
        None => index.unwrap_or_else(|| answer.newest_calls().count() as u64),
    };
    if is_another {
        answer.begin_call(index, id, name, false)?;
    }
    match piece.pointer("/function/arguments") {
        Some(Value::String(text)) => answer.more_arguments(index, text),
        Some(whole @ Value::Object(_)) => answer.more_arguments(index, &whole.to_string()),
        _ => Ok(()),
    }
}

fn list_at<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::super::super::call_ids::CallIds;
    use super::*;
    use crate::AnswerLimits;
    use crate::ModelEvent;

    /// The text and the reasoning of an answer that consists of these pieces.
    fn words(deltas: &[Value]) -> (String, String) {
        let mut answer =
            AnswerParts::new(CallIds::avoiding(&[]), AnswerLimits::ANSWER_BYTES_DEFAULT);
        for delta in deltas {
            let event = json!({"choices": [{"delta": delta}]});
            take(&event, &mut answer).unwrap();
        }
        let (mut text, mut reasoning) = (String::new(), String::new());
        while let Some(event) = answer.next_event() {
            match event {
                ModelEvent::Text(piece) => text.push_str(&piece),
                ModelEvent::Reasoning(piece) => reasoning.push_str(&piece),
                _ => {}
            }
        }
        (text, reasoning)
    }

    #[test]
    fn refusals_and_lists_of_parts_are_text() {
        let thinking = json!({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]});
        let text = json!({"type": "text", "text": "yes"});
        let deltas = [
            json!({"content": [thinking, text], "refusal": null}),
            json!({"content": null, "refusal": "no"}),
        ];
        assert_eq!(words(&deltas), ("yesno".to_owned(), "hm".to_owned()));
    }

    #[test]
    fn finish_reason_error_is_an_error() {
        let error = json!({"code": 502, "message": "gone"});
        let event = json!({"choices": [{"delta": {}, "finish_reason": "error", "error": error}]});
        let mut answer =
            AnswerParts::new(CallIds::avoiding(&[]), AnswerLimits::ANSWER_BYTES_DEFAULT);
        let taken = take(&event, &mut answer);
        assert!(matches!(taken, Err(EventDecodeError::Provider(_))));
    }

    /// Ids and arguments of the calls in an answer that consists of these pieces.
    fn calls(pieces: &[Value]) -> Vec<(String, String)> {
        let mut answer =
            AnswerParts::new(CallIds::avoiding(&[]), AnswerLimits::ANSWER_BYTES_DEFAULT);
        for piece in pieces {
            let event = json!({"choices": [{"delta": {"tool_calls": [piece]}}]});
            take(&event, &mut answer).unwrap();
        }
        answer.end().unwrap();
        std::iter::from_fn(|| answer.next_event())
            .filter_map(|event| match event {
                ModelEvent::ToolCall(call) => {
                    let arguments = arguments_object(&call.arguments).to_string();
                    Some((call.id.to_string(), arguments))
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn calls_are_separated_for_every_numbering() {
        let first = json!({"name": "t", "arguments": "{\"a\":"});
        let (rest, whole) = (
            json!({"arguments": "1}"}),
            json!({"name": "t", "arguments": "{}"}),
        );
        let a = ("a".to_owned(), "{\"a\":1}".to_owned());
        let b = ("b".to_owned(), "{}".to_owned());
        for pieces in [
            // Each call has an index.
            [
                json!({"index": 0, "id": "a", "function": first}),
                json!({"index": 0, "function": rest}),
                json!({"index": 1, "id": "b", "function": whole}),
            ],
            // Each call has only an id.
            [
                json!({"id": "a", "function": first}),
                json!({"id": "a", "function": rest}),
                json!({"id": "b", "function": whole}),
            ],
            // The second piece has neither index nor id.
            [
                json!({"id": "a", "function": first}),
                json!({"function": rest}),
                json!({"id": "b", "function": whole}),
            ],
            // Every call has index 0.
            [
                json!({"index": 0, "id": "a", "function": first}),
                json!({"index": 0, "function": rest}),
                json!({"index": 0, "id": "b", "function": whole}),
            ],
            // Id and name are repeated in each piece. The arguments of the last call are not text.
            [
                json!({"index": 0, "id": "a", "function": first}),
                json!({"index": 0, "id": "a", "function": {"name": "t", "arguments": "1}"}}),
                json!({"index": 1, "id": "b", "function": {"name": "t", "arguments": {}}}),
            ],
            // The second piece has another id.
            [
                json!({"index": 0, "id": "a", "function": first}),
                json!({"index": 0, "id": "x", "function": {"name": "t", "arguments": "1}"}}),
                json!({"index": 1, "id": "b", "function": whole}),
            ],
        ] {
            assert_eq!(calls(&pieces), [a.clone(), b.clone()], "{pieces:?}");
        }
    }
}
