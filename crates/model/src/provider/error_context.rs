//! Errors of a model call. Each error has a kind and a one-line message without secrets, and may have a hint.

use std::error::Error as StdError;

use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::bounded_json::{JsonError, parse};
use super::carrier::CarrierError;
use super::event_reader::EventReadError;
use super::options::AnswerLimits;
use super::protocol::EventDecodeError;
use super::provider_error::{
    ProviderErrorText, is_answer_format_refused, is_context_full, is_out_of_quota, retry_after,
};
use super::target::{KeySource, ModelTarget, RequestAccess};
use crate::{CALLS_MAX, ModelError, ModelErrorKind, SecretRedactor};

/// Maximum length of a message. A message quotes the provider, and the error texts of some providers are pages long.
const MESSAGE_CHARS_MAX: usize = 300;

/// Hint for the user if an answer ended too early.
const TRY_AGAIN: &str = "try again; if it happens again, check the server's log";

/// Hint for the user if the conversation is too long for the model.
const CONTEXT_FULL: &str = "send a shorter message, summarise older turns with `/compact` in a chat, or use a model with \
    a larger context window";

/// Hint for the user if the provider refused the format of the answer.
const ANSWER_FORMAT_REFUSED: &str = "leave out `--output-schema`, and `response_format` in `provider_options`, or use a \
    model that supports answers by a JSON schema";

/// Facts about the call that its error messages need.
pub(super) struct ErrorContext {
    model: String,
    url: String,
    key_source: KeySource,
    is_server: bool,
    is_guessed: bool,
    secrets: Vec<String>,
    answer_limits: AnswerLimits,
}

impl ErrorContext {
    pub(super) fn new(target: &ModelTarget, access: &RequestAccess) -> Self {
        Self {
            model: target.name().to_owned(),
            url: target.shown_url(),
            key_source: access.key_source,
            is_server: target.is_server(),
            is_guessed: target.is_guessed(),
            secrets: access.secrets.clone(),
            answer_limits: target.answer_limits(),
        }
    }

    /// Error of a call in which the next event could not be read.
    pub(super) fn of_read(&self, error: EventReadError) -> ModelError {
        let limits = self.answer_limits;
        match error {
            EventReadError::Transport(error) => self.of_transport(&error),
            EventReadError::TooLong => {
                self.too_long("one event", limits.event_bytes_max, "event_bytes_max")
            }
            EventReadError::NotText => self.invalid_response("it is not UTF-8 text"),
        }
    }

    /// Error of a call in which an event has invalid content.
    pub(super) fn of_decode(&self, error: EventDecodeError) -> ModelError {
        let limits = self.answer_limits;
        match error {
            EventDecodeError::Json(JsonError::TooLarge) => {
                self.invalid_response("an event has too many JSON values")
            }
            EventDecodeError::Json(JsonError::Syntax(error)) if error.is_eof() => self.cut(),
            EventDecodeError::Json(JsonError::Syntax(error)) => {
                self.invalid_response(&format!("an event is not JSON ({error})"))
            }
            EventDecodeError::Provider(body) => self.of_error_object(&body, "aborted the answer"),
            EventDecodeError::AnswerTooLong => {
                self.too_long("the answer", limits.answer_bytes_max, "answer_bytes_max")
            }
            EventDecodeError::ArgumentsTooLarge => self.make(
                ModelErrorKind::Protocol,
                "the arguments of the tool calls have too many JSON values",
            ),
            EventDecodeError::TooManyCalls => self.make(
                ModelErrorKind::Protocol,
                &format!("the model requested more than {CALLS_MAX} tool calls in one answer"),
            ),
            EventDecodeError::EmptyAnswer => self
                .make(
                    ModelErrorKind::Disconnected,
                    &format!("{} sent an empty answer", self.url),
                )
                .with_hint(TRY_AGAIN),
            EventDecodeError::NoCall => self.make(
                ModelErrorKind::Protocol,
                "the finish reason announces tool calls, but the answer has no readable call",
            ),
        }
    }

    /// Error of a call whose response ended before the answer was complete. If the response contains no events, `other`
    /// is the beginning of its content.
    pub(super) fn ended_early(&self, other: Option<String>) -> ModelError {
        let Some(body) = other else {
            return self.cut();
        };
        // Some gateways refuse a request with status 200 and an error object in the body.
        if let Ok(body) = parse(&body)
            && let Some(error) = body.get("error").or(body.get("detail"))
            && !error.is_null()
        {
            return self.of_error_object(error, "answered with an error");
        }
        let text = ProviderErrorText::of(&body);
        self.invalid_response(&match (text.message, text.is_html) {
            (Some(message), _) => format!("it is not an event stream: {message}"),
            (None, true) => "it is a web page, not an event stream".into(),
            (None, false) => "it is not an event stream".into(),
        })
    }

    /// Error of a call that exceeded a limit. `key` is the key of the limit in the section `[model]` of the
    /// configuration.
    fn too_long(&self, part: &str, bytes_max: usize, key: &str) -> ModelError {
        let max = size(bytes_max);
        self.make(
            ModelErrorKind::Protocol,
            &format!(
                "{} sent more than {max} in {part}; the call was aborted",
                self.url
            ),
        )
        .with_hint(format!(
            "the model may repeat itself, or the server is broken: check its log; `{key}` in `[model]` is the limit"
        ))
    }

    fn cut(&self) -> ModelError {
        self.make(
            ModelErrorKind::Disconnected,
            &format!(
                "{} closed the stream before the answer was complete",
                self.url
            ),
        )
        .with_hint(TRY_AGAIN)
    }

    fn invalid_response(&self, what: &str) -> ModelError {
        self.make(
            ModelErrorKind::Protocol,
            &format!("{} sent an invalid response: {what}", self.url),
        )
        .with_hint(if self.is_server {
            "the base URL must lead to an OpenAI-compatible server, usually with /v1 at its end"
        } else {
            "a proxy or a gateway may have answered instead of the provider"
        })
    }

    /// Error of a request that the provider refused with this status. `body` is the beginning of the response's body.
    pub(super) fn of_status(
        &self,
        status: StatusCode,
        body: &str,
        headers: &HeaderMap,
    ) -> ModelError {
        let text = ProviderErrorText::of(body);
        let code = text.code.as_deref().unwrap_or_default();
        let kind = match status.as_u16() {
            429 if is_out_of_quota(code) => ModelErrorKind::Unauthorized,
            404 | 405 if text.message.is_none() => ModelErrorKind::Protocol,
            400 if code == "model_not_found" => ModelErrorKind::NotFound,
            400 | 413 | 422 | 500 if is_context_full(&text) => ModelErrorKind::ContextLength,
            status => ModelErrorKind::of_status(status).unwrap_or(ModelErrorKind::Protocol),
        };
        let what = match (&text.message, text.is_html) {
            (Some(message), _) => format!("{status}: {message}"),
            (None, true) => format!("{status}, with a web page"),
            (None, false) => status.to_string(),
        };
        let message = match kind {
            ModelErrorKind::NotFound => {
                format!("{} has no model {:?}: {what}", self.url, self.model)
            }
            _ => format!("{} answered {what}", self.url),
        };
        let mut error = self
            .make(kind, &message)
            .with_retry_after(retry_after(headers))
            .with_code(self.short_code(&text));
        error.hint = match kind {
            ModelErrorKind::Invalid if is_answer_format_refused(&text) => {
                Some(ANSWER_FORMAT_REFUSED.into())
            }
            _ => self.hint(kind, status, &error),
        };
        error
    }

    fn hint(&self, kind: ModelErrorKind, status: StatusCode, error: &ModelError) -> Option<String> {
        Some(match kind {
            ModelErrorKind::Unauthorized if matches!(status.as_u16(), 402 | 429) => {
                "the account has no quota left: check its billing page".into()
            }
            ModelErrorKind::Unauthorized => self.key_source.hint(),
            ModelErrorKind::NotFound => "check the model's name with the provider's list".into(),
            ModelErrorKind::RateLimited => match error.retry_after {
                Some(wait) => format!("wait {} s, or use another model", wait.as_secs_f64().ceil()),
                None => "wait a little, or use another model".into(),
            },
            ModelErrorKind::ContextLength => CONTEXT_FULL.into(),
            ModelErrorKind::Unavailable => "the provider has a problem: try again later".into(),
            ModelErrorKind::Protocol => {
                "the URL must lead to a model's API, usually with /v1 at its end".into()
            }
            _ => return None,
        })
    }

    /// Error of a call whose answer is an error object, or contains one. `did` describes the provider's action.
    fn of_error_object(&self, body: &Value, did: &str) -> ModelError {
        let body = body
            .get("error")
            .filter(|inner| inner.is_object())
            .unwrap_or(body);
        let text = ProviderErrorText::of_value(body);
        let code = text.code.as_deref().unwrap_or_default();
        let kind = match code {
            _ if is_context_full(&text) => ModelErrorKind::ContextLength,
            "429" | "rate_limit_error" | "rate_limit_exceeded" => ModelErrorKind::RateLimited,
            code if is_out_of_quota(code) => ModelErrorKind::Unauthorized,
            "401" | "403" | "authentication_error" | "permission_error" => {
                ModelErrorKind::Unauthorized
            }
            "404" | "not_found_error" | "model_not_found" => ModelErrorKind::NotFound,
            "400" | "413" | "422" | "INVALID_ARGUMENT" | "invalid_request_error" => {
                ModelErrorKind::Invalid
            }
            // An error within an answer counts as a problem of the provider, unless the error code names another cause.
            _ => ModelErrorKind::Unavailable,
        };
        let hint = match kind {
            ModelErrorKind::ContextLength => Some(CONTEXT_FULL),
            ModelErrorKind::Invalid if is_answer_format_refused(&text) => {
                Some(ANSWER_FORMAT_REFUSED)
            }
            _ => None,
        };
        let code = self.short_code(&text);
        let message = text.message.unwrap_or_else(|| body.to_string());
        let mut error = self
            .make(kind, &format!("{} {did}: {message}", self.url))
            .with_code(code);
        error.hint = hint.map(Into::into);
        error
    }

    /// Error of a call whose request or answer failed during the transfer.
    pub(super) fn of_transport(&self, reqwest: &reqwest::Error) -> ModelError {
        let cause = innermost(reqwest);
        if reqwest.is_connect() && reqwest.is_timeout() {
            return self
                .make(
                    ModelErrorKind::ConnectTimeout,
                    &format!("no connection to {} within the limit", self.url),
                )
                .with_hint("check the host's name, and that the host is reachable");
        }
        if reqwest.is_connect() {
            let hint = if self.is_guessed {
                format!(
                    "{:?} is not a known provider's model, so a local Ollama was tried: write PROVIDER::MODEL, or use --base-url",
                    self.model.trim_start_matches("ollama::")
                )
            } else {
                "check that the server is running, and check the URL".into()
            };
            return self
                .make(
                    ModelErrorKind::Connect,
                    &format!("no connection to {}: {cause}", self.url),
                )
                .with_hint(hint);
        }
        if reqwest.is_builder() {
            return self.make(
                ModelErrorKind::Invalid,
                &format!("invalid request to {}: {cause}", self.url),
            );
        }
        if innermost_is_parse(reqwest) {
            return self.invalid_response("it is not HTTP");
        }
        let mut error = self.cut();
        error.message = self.one_line(&format!("{} ({cause})", error.message));
        error
    }

    /// Error of a request without a response, from its carrier.
    pub(super) fn of_carrier(&self, error: &CarrierError) -> ModelError {
        let message = format!("no response from {}: {error}", self.url);
        self.make(ModelErrorKind::Disconnected, &message)
    }

    fn make(&self, kind: ModelErrorKind, message: &str) -> ModelError {
        ModelError::new(kind, self.one_line(message))
    }

    /// Returns the code of an error, in one line without secrets.
    fn short_code(&self, text: &ProviderErrorText) -> Option<String> {
        text.code.as_deref().map(|code| self.one_line(code))
    }

    /// Shortens a text to one line of limited length, and removes secrets.
    fn one_line(&self, text: &str) -> String {
        let text = SecretRedactor::new(&self.secrets).redact(text);
        let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((at, _)) = line.char_indices().nth(MESSAGE_CHARS_MAX) {
            line.truncate(at);
            line.push('…');
        }
        line
    }
}

/// A size in the largest unit in which it is a whole number.
fn size(bytes: usize) -> String {
    const KIB: usize = 1024;
    const MIB: usize = 1024 * KIB;
    match bytes {
        _ if bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        _ if bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
        _ => format!("{bytes} bytes"),
    }
}

/// The root cause of an error, such as `Connection refused (os error 111)`.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

fn innermost_is_parse(error: &(dyn StdError + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(hyper) = error.downcast_ref::<hyper::Error>()
            && hyper.is_parse()
        {
            return true;
        }
        at = error.source();
    }
    false
}
