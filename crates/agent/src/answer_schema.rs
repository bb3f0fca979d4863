//! Format of the final answer of a turn: a JSON schema, with the check of each answer.

use std::fmt;
use std::sync::Arc;

use allstop_model::OutputSchema;
use allstop_tools::SchemaCheck;
use allstop_tools::schema::schema_of;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Name of the answer in errors.
const ANSWER: &str = "the answer";

/// Check of a parsed answer. The error names the wrong fields.
type AnswerCheck = dyn Fn(&Value) -> Result<(), String> + Send + Sync;

/// Format of the final answer. The provider gets the schema, and the answer is checked before the turn commits. After the
/// first wrong answer of a turn, the model gets one message with the problems, and answers again in the same turn. A second
/// wrong answer fails the turn with an error of kind [`AnswerMismatch`](crate::TurnErrorKind::AnswerMismatch).
#[derive(Clone)]
pub struct AnswerSchema {
    schema: OutputSchema,
    check: Arc<AnswerCheck>,
}

/// A JSON value is no valid JSON schema, or cannot be checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON schema of the answer: {reason}")]
pub struct InvalidSchema {
    /// The reason, for people.
    pub reason: String,
}

impl AnswerSchema {
    /// The answer is a JSON value of this type.
    pub fn of_type<T: DeserializeOwned + JsonSchema + 'static>() -> Self {
        let schema = schema_of::<T>();
        // Without the feature `validation`, only the type itself checks the answer.
        let by_schema = SchemaCheck::compile(&schema).ok();
        Self {
            schema: OutputSchema::new(schema),
            check: Arc::new(move |answer| {
                if let Some(schema) = &by_schema {
                    schema.check(answer, ANSWER)?;
                }
                match T::deserialize(answer) {
                    Ok(_) => Ok(()),
                    Err(error) => Err(format!("{ANSWER} is invalid: {error}")),
                }
            }),
        }
    }

    /// The answer is a JSON value that matches this schema.
    ///
    /// # Errors
    /// If the schema is invalid, or if this build lacks the feature `validation`.
    pub fn from_schema(schema: Value) -> Result<Self, InvalidSchema> {
        let check = SchemaCheck::compile(&schema).map_err(|reason| InvalidSchema { reason })?;
        Ok(Self {
            schema: OutputSchema::new(schema),
            check: Arc::new(move |answer| check.check(answer, ANSWER)),
        })
    }

    /// The schema in the requests.
    pub fn schema(&self) -> &OutputSchema {
        &self.schema
    }

    /// Returns the JSON of an answer without white space and without a code fence around it.
    ///
    /// # Errors
    /// Returns the problems of the answer: no JSON, or the paths of the wrong fields with the reasons.
    pub fn check(&self, answer: &str) -> Result<Arc<str>, String> {
        let text = without_fence(answer.trim());
        let value: Value = serde_json::from_str(text)
            .map_err(|error| format!("{ANSWER} is not a JSON value: {error}"))?;
        (self.check)(&value)?;
        Ok(text.into())
    }
}

/// The text inside the code fence of Markdown, if the whole text is in one.
fn without_fence(text: &str) -> &str {
    let inside = text
        .strip_prefix("```")
        .and_then(|text| text.strip_suffix("```"));
    let inside = inside.and_then(|text| text.split_once('\n'));
    match inside {
        Some((language, inside)) if matches!(language.trim(), "" | "json") => inside.trim(),
        _ => text,
    }
}

impl fmt::Debug for AnswerSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerSchema")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, JsonSchema)]
    struct Numbered {
        #[expect(dead_code, reason = "read by the check alone")]
        n: u8,
    }

    /// Regression: the error named an internal URL of the arguments of a tool.
    #[test]
    fn error_of_a_schema_names_the_answer() {
        let error = AnswerSchema::from_schema(serde_json::json!({"type": 7})).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("invalid JSON schema of the answer: "),
            "{text}"
        );
        assert!(!text.contains("allstop:"), "{text}");
    }

    #[test]
    fn answer_may_have_a_code_fence_but_no_other_text() {
        let format = AnswerSchema::of_type::<Numbered>();
        for answer in [
            "{\"n\": 1}",
            " {\"n\": 1}\n",
            "```json\n{\"n\": 1}\n```",
            "```\n{\"n\": 1}```",
        ] {
            assert_eq!(format.check(answer).as_deref(), Ok("{\"n\": 1}"));
        }
        for (answer, problem) in [
            ("", "the answer is not a JSON value"),
            ("Here: {\"n\": 1}", "the answer is not a JSON value"),
            ("{\"n\": 300}", "`n`"),
            ("{}", "`n`"),
        ] {
            let found = format.check(answer).unwrap_err();
            assert!(found.contains(problem), "{answer}: {found}");
        }
    }
}
