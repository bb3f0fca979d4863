//! The published schemas.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::Value;

use super::place::repository;

static VALIDATORS: LazyLock<Mutex<HashMap<String, Validator>>> = LazyLock::new(Mutex::default);

/// The value is valid under the published schema of this name.
#[track_caller]
pub(crate) fn assert_valid(name: &str, value: &Value) {
    let checked = check(name, value);
    assert!(checked.is_ok(), "{checked:?}");
}

/// Checks the value against the published schema of this name.
///
/// # Errors
/// The first part that is invalid.
pub(crate) fn check(name: &str, value: &Value) -> Result<(), String> {
    let mut validators = VALIDATORS.lock().unwrap_or_else(PoisonError::into_inner);
    let validator = validators
        .entry(name.to_owned())
        .or_insert_with(|| validator(name));
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| error.to_string())
        .collect();
    super::agreement::ensure(errors.is_empty(), || format!("{errors:?} in {value:#}"))
}

fn validator(name: &str) -> Validator {
    let path = repository().join(format!("schemas/{name}.schema.json"));
    let text = std::fs::read_to_string(path).expect("a published schema");
    let schema: Value = serde_json::from_str(&text).expect("a schema is JSON");
    jsonschema::validator_for(&schema).expect("a schema")
}
