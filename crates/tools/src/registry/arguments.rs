//! Validation of a call's arguments against the tool's JSON schema, with errors that a model can act on.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use crate::tool::ToolError;

/// Maximum number of wrong fields in one error: enough to repair a call at once, and few enough not to flood the
/// context.
const FIELDS_NAMED_MAX: usize = 5;

/// A compiled schema: compiled once per tool, because every call is validated.
pub(super) struct ArgumentCheck(Validator);

impl ArgumentCheck {
    /// Compiles a schema; the error is for people.
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        jsonschema::validator_for(schema)
            .map(Self)
            .map_err(|error| error.to_string())
    }

    pub(super) fn check(&self, tool: &str, arguments: &Value) -> Result<(), ToolError> {
        if self.0.is_valid(arguments) {
            return Ok(());
        }
        let mut errors = self.0.iter_errors(arguments);
        let mut wrong: Vec<String> = errors
            .by_ref()
            .take(FIELDS_NAMED_MAX)
            .map(|error| describe(&error))
            .collect();
        let more = errors.count();
        if more > 0 {
            wrong.push(format!("{more} more"));
        }
        Err(ToolError::new(format!(
            "wrong arguments for `{tool}`: {}; it was not run",
            wrong.join("; ")
        )))
    }
}

/// Describes one wrong field. Leaves out values, because they may have megabytes.
fn describe(error: &ValidationError<'_>) -> String {
    let path = error
        .instance_path()
        .as_str()
        .trim_start_matches('/')
        .replace('/', ".");
    let inside = if path.is_empty() {
        String::new()
    } else {
        format!(" in `{path}`")
    };
    let subject = if path.is_empty() {
        "the arguments".into()
    } else {
        format!("`{path}`")
    };
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            format!(
                "missing field `{}`{inside}",
                property.as_str().unwrap_or_default()
            )
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let names: Vec<String> = unexpected
                .iter()
                .take(FIELDS_NAMED_MAX)
                .map(|name| format!("`{}`", name.chars().take(64).collect::<String>()))
                .collect();
            format!("unknown field {}{inside}", names.join(", "))
        }
        ValidationErrorKind::Type { kind } => {
            let wanted = match kind {
                TypeKind::Single(one) => one.to_string(),
                TypeKind::Multiple(several) => several
                    .iter()
                    .map(|one| one.to_string())
                    .collect::<Vec<_>>()
                    .join(" or "),
            };
            format!("{subject} must be of type {wanted}")
        }
        _ => format!("{subject}: {}", error.masked_with("the value")),
    }
}
