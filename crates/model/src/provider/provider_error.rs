//! Error responses of providers: body and headers.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use serde_json::Value;

use super::bounded_json::parse;

/// Error text and error code of a provider, in any of the common formats.
pub(super) struct ProviderErrorText {
    pub(super) message: Option<String>,
    /// Word or number that identifies the error.
    pub(super) code: Option<String>,
    pub(super) is_html: bool,
}

impl ProviderErrorText {
    pub(super) fn of(body: &str) -> Self {
        if let Ok(value) = parse(body) {
            // Google sends a list that contains one error object.
            let value = value.get(0).unwrap_or(&value);
            return Self::of_value(value.get("error").unwrap_or(value));
        }
        let text = body.trim();
        let is_html = text.starts_with('<');
        let message = (!is_html && !text.is_empty()).then(|| text.to_owned());
        Self {
            message,
            code: None,
            is_html,
        }
    }

    pub(super) fn of_value(value: &Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let word = |key: &str| match value.get(key)? {
            Value::String(word) => Some(word.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        Self {
            message: value
                .as_str()
                .map(str::to_owned)
                .or_else(|| text("message"))
                .or_else(|| text("detail"))
                .or_else(|| text("error")),
            code: word("code").or_else(|| word("type")),
            is_html: false,
        }
    }
}

/// True if the code means that the account stays refused, even if the caller waits.
pub(super) fn is_out_of_quota(code: &str) -> bool {
    matches!(
        code,
        "insufficient_quota" | "billing_hard_limit_reached" | "billing_not_active"
    )
}

/// Codes of a request that is longer than the context window.
const CONTEXT_CODES: [&str; 4] = [
    "context_length_exceeded",
    "exceed_context_size_error",
    "model_context_window_exceeded",
    "request_too_large",
];

/// Parts of the messages about such a request, in lower case. Many providers send no code, or the code of any invalid
/// request.
const CONTEXT_TEXTS: [&str; 17] = [
    // OpenAI, vLLM, OpenRouter, DeepSeek
    "maximum context length",
    "exceeds the context window",
    // Anthropic
    "prompt is too long",
    "exceed context limit",
    // Gemini
    "exceeds the maximum number of tokens",
    // xAI
    "maximum prompt length",
    // llama.cpp
    "exceeds the available context size",
    "exceed the available context size",
    "context size has been exceeded",
    // Mistral
    "too large for model with",
    // Groq
    "reduce the length of the messages",
    // Amazon Bedrock, GitHub, Kimi, MiniMax
    "input is too long for requested model",
    "prompt token count of",
    "exceeded model token limit",
    "context window exceeds limit",
    // Ollama, LM Studio
    "exceeds context length",
    "greater than the context length",
];

/// True if the provider refused the request because it is longer than the context window of the model.
pub(super) fn is_context_full(error: &ProviderErrorText) -> bool {
    let code = error.code.as_deref().unwrap_or_default();
    let message = error.message.as_deref().unwrap_or_default().to_lowercase();
    CONTEXT_CODES.contains(&code) || CONTEXT_TEXTS.iter().any(|text| message.contains(text))
}

/// Names of an answer format in the requests of the protocols, in lower case.
const ANSWER_FORMAT_TEXTS: [&str; 5] = [
    // Chat completions
    "response_format",
    "json_schema",
    // OpenAI's responses API
    "text.format",
    // Anthropic
    "output_config.format",
    // Gemini
    "response_schema",
];

/// True if the provider refused the request because the model has no answers in this format. False for an error in the
/// schema itself.
pub(super) fn is_answer_format_refused(error: &ProviderErrorText) -> bool {
    let message = error.message.as_deref().unwrap_or_default().to_lowercase();
    !message.contains("invalid schema")
        && ANSWER_FORMAT_TEXTS
            .iter()
            .any(|text| message.contains(text))
}

/// Reads the header `retry-after-ms`. If it is missing, reads `retry-after`, in seconds or as a date.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    if let Some(ms) = text("retry-after-ms").and_then(|text| text.trim().parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(ms / 1000.0).ok();
    }
    let text = text("retry-after")?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Error bodies in the forms of the providers.
    #[test]
    fn requests_longer_than_the_context_are_recognised() {
        for body in [
            r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
            r#"{"error":{"message":"Your input exceeds the context window of this model.","code":null}}"#,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 207791 tokens > 200000 maximum"}}"#,
            r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
            r#"[{"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]"#,
            r#"{"code":"invalid","error":"This model's maximum prompt length is 131072 but the request contains 136973 tokens."}"#,
            r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_ctx":4096}}"#,
            r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000.","type":"BadRequestError","code":400}"#,
        ] {
            assert!(is_context_full(&ProviderErrorText::of(body)), "{body}");
        }
        for body in [
            r#"{"error":{"message":"Request too large on tokens per min (TPM): Limit 30000","code":"rate_limit_exceeded"}}"#,
            r#"{"error":{"message":"max_tokens is too large: 99999","code":"invalid_value"}}"#,
            r#"{"error":{"message":"image exceeds the limit of 5 MB"}}"#,
        ] {
            assert!(!is_context_full(&ProviderErrorText::of(body)), "{body}");
        }
    }

    #[test]
    fn refused_answer_formats_are_recognised() {
        for (body, is_refused) in [
            (
                r#"{"error":{"message":"This response_format type is unavailable now","type":"invalid_request_error","code":"invalid_request_error"}}"#,
                true,
            ),
            (
                r#"{"error":{"message":"Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.","code":null}}"#,
                true,
            ),
            (
                r#"{"error":{"message":"Invalid schema for response_format 'count': 'additionalProperties' is required","code":"invalid_json_schema"}}"#,
                false,
            ),
            (r#"{"error":{"message":"unknown field `seed`"}}"#, false),
        ] {
            let text = ProviderErrorText::of(body);
            assert_eq!(is_answer_format_refused(&text), is_refused, "{body}");
        }
    }
}
