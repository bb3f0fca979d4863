//! Validation of a call's arguments against the tool's JSON schema, with errors that help a model to correct the call.

use std::error::Error;

use boon::{
    CompileError, Compiler, ErrorKind, SchemaIndex, Schemas, Type, UrlLoader, ValidationError,
};
use serde_json::Value;

use super::schema_cost::{SchemaCost, TooCostly};
use crate::tool::ToolError;

/// Maximum number of wrong fields that one error names. Five fields are enough to repair most calls in one step, and
/// the error does not fill the context.
const FIELDS_NAMED_MAX: usize = 5;

/// Maximum number of characters of a field's name in an error.
const NAME_CHARS_MAX: usize = 64;

/// Maximum nesting of a schema, in levels of JSON. The check of a schema is recursive: a level takes about 40 kB of a thread's
/// stack in a debug build, and a thread has 2 MB.
const NESTING_MAX: usize = 32;

/// URL of the schema. The schema needs a URL because it may refer to its own parts. Errors do not contain it.
const SCHEMA_URL: &str = "allstop:/schema";

/// A compiled schema. Each schema is compiled only once per tool, because every call is validated.
pub(crate) struct ArgumentCheck {
    schemas: Schemas,
    root: SchemaIndex,
    cost: SchemaCost,
}

impl ArgumentCheck {
    /// Compiles a schema; the error is for people. A `pattern` that the library cannot compile, such as a pattern with
    /// look-ahead, is removed from the check. Only the tool itself can then check the value.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        let mut schema = schema.clone();
        loop {
            let unread = match Self::compile_all(&schema) {
                Ok(check) => return Ok(check),
                Err(NotCompiled::Pattern(place, error)) => (place, error),
                Err(NotCompiled::Invalid(error)) => return Err(error),
            };
            if !remove_pattern(&mut schema, &unread.0) {
                return Err(unread.1);
            }
        }
    }

    /// Like [`ArgumentCheck::compile`], but refuses a `pattern` that the library cannot compile.
    pub(super) fn compile_whole(schema: &Value) -> Result<Self, String> {
        Self::compile_all(schema).map_err(|error| match error {
            NotCompiled::Pattern(place, _) => {
                let pattern = schema.pointer(&place).and_then(Value::as_str);
                let pattern = pattern.unwrap_or_default();
                format!(
                    "the regular expression `{pattern}` at `{place}` cannot be checked: it is invalid, or has look-around or \
                     back-references"
                )
            }
            NotCompiled::Invalid(error) => error,
        })
    }

    fn compile_all(schema: &Value) -> Result<Self, NotCompiled> {
        if is_nested_deeper(schema, NESTING_MAX) {
            let error = format!("it is nested deeper than {NESTING_MAX} levels");
            return Err(NotCompiled::Invalid(error));
        }
        let cost = SchemaCost::of(schema).map_err(NotCompiled::Invalid)?;
        let (schemas, root) = compiled(schema.clone()).map_err(|error| {
            let text = format!("{error:#}").replace(&format!("{SCHEMA_URL}#"), "the schema");
            let text = text.replace(SCHEMA_URL, "the schema");
            let pattern = match &*error {
                CompileError::ValidationError { src, .. } => unread_pattern(src),
                _ => None,
            };
            match pattern {
                Some(place) => NotCompiled::Pattern(place, text),
                None => NotCompiled::Invalid(text),
            }
        })?;
        Ok(Self {
            schemas,
            root,
            cost,
        })
    }

    /// True if the check of these arguments takes less than a millisecond.
    pub(super) fn is_quick(&self, arguments: &Value) -> bool {
        self.cost.is_quick(arguments)
    }

    /// Checks the arguments. [`SchemaCost`] bounds the time of the check.
    pub(super) fn check(&self, tool: &str, arguments: &Value) -> Result<(), ToolError> {
        self.cost.check(arguments).map_err(|too| {
            let problem = match too {
                TooCostly::Steps => "are too large to be checked against its schema",
                TooCostly::Depth => "are nested too deeply to be checked against its schema",
            };
            ToolError::new(format!(
                "the arguments for `{tool}` {problem}; it was not run: send less at once"
            ))
        })?;
        self.check_fields(arguments, "the arguments")
            .map_err(|wrong| {
                ToolError::new(format!(
                    "wrong arguments for `{tool}`: {wrong}; it was not run"
                ))
            })
    }

    /// Checks a value that is not the arguments of a call. `whole` names the value in the error.
    pub(super) fn check_value(&self, value: &Value, whole: &str) -> Result<(), String> {
        self.cost.check(value).map_err(|too| match too {
            TooCostly::Steps => format!("{whole} is too large to be checked against its schema"),
            TooCostly::Depth => {
                format!("{whole} is nested too deeply to be checked against its schema")
            }
        })?;
        self.check_fields(value, whole)
    }

    fn check_fields(&self, value: &Value, whole: &str) -> Result<(), String> {
        let Err(error) = self.schemas.validate(value, self.root) else {
            return Ok(());
        };
        let mut wrong = Vec::new();
        describe(&error, whole, &mut wrong);
        let more = wrong.len().saturating_sub(FIELDS_NAMED_MAX);
        wrong.truncate(FIELDS_NAMED_MAX);
        if more > 0 {
            wrong.push(format!("{more} more"));
        }
        Err(wrong.join("; "))
    }
}

/// Reason why a schema was not compiled, for people.
enum NotCompiled {
    /// A regular expression that the library cannot compile, at this JSON pointer.
    Pattern(String, String),
    /// Any other reason.
    Invalid(String),
}

fn compiled(schema: Value) -> Result<(Schemas, SchemaIndex), Box<CompileError>> {
    let mut compiler = Compiler::new();
    compiler.use_loader(Box::new(NothingElse));
    compiler.add_resource(SCHEMA_URL, schema)?;
    let mut schemas = Schemas::new();
    let root = compiler.compile(SCHEMA_URL, &mut schemas)?;
    Ok((schemas, root))
}

/// True if a value has more levels of lists and objects than `levels`.
fn is_nested_deeper(value: &Value, levels: usize) -> bool {
    let Some(levels) = levels.checked_sub(1) else {
        return value.is_array() || value.is_object();
    };
    let is_deeper = |inside| is_nested_deeper(inside, levels);
    match value {
        Value::Array(items) => items.iter().any(is_deeper),
        Value::Object(fields) => fields.values().any(is_deeper),
        _ => false,
    }
}

/// Loader that refuses all documents except the schema itself. A schema may refer only to its own parts, so no file and
/// no server is read.
struct NothingElse;

impl UrlLoader for NothingElse {
    fn load(&self, _: &str) -> Result<Value, Box<dyn Error>> {
        Err("it is not in the schema".into())
    }
}

/// Returns the location of a regular expression in the schema that the library cannot compile, as a JSON pointer.
fn unread_pattern(error: &ValidationError<'_, '_>) -> Option<String> {
    match error.kind {
        ErrorKind::Format { want: "regex", .. } => Some(error.instance_location.to_string()),
        _ => error.causes.iter().find_map(unread_pattern),
    }
}

/// Removes the `pattern` at this location. Returns false if no pattern exists there.
fn remove_pattern(schema: &mut Value, place: &str) -> bool {
    let keywords = place.strip_suffix("/pattern");
    let keywords = keywords.and_then(|place| schema.pointer_mut(place)?.as_object_mut());
    keywords.is_some_and(|keywords| keywords.shift_remove("pattern").is_some())
}

/// Describes each wrong field. Omits values, because they may be megabytes long. `whole` names the value.
fn describe(error: &ValidationError<'_, '_>, whole: &str, wrong: &mut Vec<String>) {
    let path = error.instance_location.to_string();
    let path = path.trim_start_matches('/').replace('/', ".");
    let (subject, inside) = if path.is_empty() {
        (whole.to_owned(), String::new())
    } else {
        (format!("`{path}`"), format!(" in `{path}`"))
    };
    wrong.push(match &error.kind {
        ErrorKind::Group
        | ErrorKind::Schema { .. }
        | ErrorKind::Reference { .. }
        | ErrorKind::AllOf => {
            for cause in &error.causes {
                describe(cause, whole, wrong);
            }
            return;
        }
        ErrorKind::Required { want } => {
            let missing = want
                .iter()
                .map(|name| format!("missing field `{name}`{inside}"));
            return wrong.extend(missing);
        }
        ErrorKind::AdditionalProperties { got } => {
            let names: Vec<_> = got.iter().take(FIELDS_NAMED_MAX).map(named).collect();
            format!("unknown field {}{inside}", names.join(", "))
        }
        ErrorKind::Type { want, .. } => {
            let wanted: Vec<_> = want.iter().map(|one: Type| one.to_string()).collect();
            format!("{subject} must be of type {}", wanted.join(" or "))
        }
        ErrorKind::Pattern { want, .. } => format!("{subject}: it does not match `{want}`"),
        ErrorKind::Format { want, .. } => format!("{subject}: it is no {want}"),
        ErrorKind::PropertyName { prop } => {
            format!("{} is no name of a field{inside}", named(prop))
        }
        ErrorKind::FalseSchema => format!("{subject} may not be given"),
        other => format!("{subject}: {other}"),
    });
}

fn named(name: impl AsRef<str>) -> String {
    let shown: String = name.as_ref().chars().take(NAME_CHARS_MAX).collect();
    format!("`{shown}`")
}
