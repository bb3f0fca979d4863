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
