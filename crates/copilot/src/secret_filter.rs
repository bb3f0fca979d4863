//! Secret values of the programs. From their registration on, the server removes them from the prompts, from the results of
//! calls, from events and from answers, so neither the log of a session nor the model nor another client gets them.

use std::sync::Arc;

use allstop_agent::{Hook, HookCx, HookEvent, HookVerdict};
use allstop_model::SecretRedactor;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;

/// Minimum length of a value in bytes. Shorter values also occur in ordinary words, so their removal would damage texts.
const VALUE_LEN_MIN: usize = 4;

/// Maximum length of a value in bytes, more than a private key has.
const VALUE_LEN_MAX: usize = 8 * 1_024;

/// Maximum number of values, because each text is searched for each value.
const VALUES_MAX: usize = 256;

/// Reason why a value is not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SecretValueError {
    #[error("a secret value has {VALUE_LEN_MIN} to {VALUE_LEN_MAX} bytes")]
    Length,
    #[error("the server removes at most {VALUES_MAX} secret values")]
    TooMany,
}

/// Registered values of all programs of a server.
#[derive(Debug)]
pub(crate) struct SecretFilter {
    /// Name of the hook in receipts.
    name: Arc<str>,
    known: Mutex<KnownSecrets>,
}

#[derive(Default)]
struct KnownSecrets {
    values: Vec<String>,
    /// `None` without values, so that the filter costs nothing.
    redactor: Option<Arc<SecretRedactor>>,
}

/// The output contains no secret.
impl std::fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KnownSecrets").finish_non_exhaustive()
    }
}

impl Default for SecretFilter {
    fn default() -> Self {
        Self {
            name: "secret-filter".into(),
            known: Mutex::default(),
        }
    }
}

impl SecretFilter {
    /// Registers values: all of them, or none.
    ///
    /// # Errors
    /// Returns an error if the length of a value is out of range, or if there are too many values.
    pub(crate) fn add(&self, values: Vec<String>) -> Result<(), SecretValueError> {
        let is_short = |value: &String| !(VALUE_LEN_MIN..=VALUE_LEN_MAX).contains(&value.len());
        if values.iter().any(is_short) {
            return Err(SecretValueError::Length);
        }
        let mut known = self.known.lock();
        let mut all = known.values.clone();
        all.extend(values);
        all.sort_unstable();
        all.dedup();
        if all.len() > VALUES_MAX {
            return Err(SecretValueError::TooMany);
        }
        if !all.is_empty() {
            known.redactor = Some(Arc::new(SecretRedactor::new(&all)));
        }
        known.values = all;
        Ok(())
    }

    fn redactor(&self) -> Option<Arc<SecretRedactor>> {
        self.known.lock().redactor.clone()
    }

    /// Returns the text with all values replaced.
    pub(crate) fn redact_text(&self, text: Arc<str>) -> Arc<str> {
        match self.redactor() {
            Some(redactor) => redactor.redact(&text).into(),
            None => text,
        }
    }

    /// Returns the JSON with all values replaced in its texts.
    pub(crate) fn redact(&self, json: Value) -> Value {
        match self.redactor() {
            Some(redactor) => redacted(json, &redactor),
            None => json,
        }
    }
}

fn redacted(json: Value, redactor: &SecretRedactor) -> Value {
    match json {
        Value::String(text) => redactor.redact(&text).into(),
        Value::Array(items) => {
            let items = items.into_iter();
            items.map(|item| redacted(item, redactor)).collect()
        }
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let clean =
                fields.map(|(name, value)| (redactor.redact(&name), redacted(value, redactor)));
            Value::Object(clean.collect())
        }
        other => other,
    }
}

/// Removes the values from the result of a call, and from the note about background work, before they are part of the
/// conversation.
impl Hook for SecretFilter {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn wants(&self, event: &HookEvent) -> bool {
        matches!(event, HookEvent::ToolEnd { .. }) && self.redactor().is_some()
    }

    fn on(&self, _cx: &HookCx, event: HookEvent) -> BoxFuture<'static, HookVerdict> {
        let verdict = match event {
            HookEvent::ToolEnd { content, .. } => HookVerdict::Replace {
                text: self.redact_text(content),
            },
            _ => HookVerdict::Continue,
        };
        std::future::ready(verdict).boxed()
    }

    fn revise_note(&self, note: Arc<str>) -> Arc<str> {
        self.redact_text(note)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_removed_from_all_texts() {
        let filter = SecretFilter::default();
        let text = json!({ "a": ["x hunter22 y", 1], "hunter22": null });
        assert_eq!(filter.redact(text.clone()), text);
        filter.add(vec!["hunter22".to_owned()]).expect("a value");
        assert_eq!(
            filter.redact(text),
            json!({ "a": ["x [key] y", 1], "[key]": null })
        );
        assert!(!format!("{filter:?}").contains("hunter22"));
    }

    #[test]
    fn unusable_values_are_refused() {
        let filter = SecretFilter::default();
        for value in [
            String::new(),
            "abc".to_owned(),
            "x".repeat(VALUE_LEN_MAX + 1),
        ] {
            assert_eq!(filter.add(vec![value]), Err(SecretValueError::Length));
        }
        let many = (0..=VALUES_MAX).map(|number| format!("value {number}"));
        assert_eq!(filter.add(many.collect()), Err(SecretValueError::TooMany));
        assert_eq!(filter.redact(json!("value 1")), json!("value 1"));
    }
}
