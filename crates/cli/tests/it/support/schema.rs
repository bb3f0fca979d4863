//! Validation against the published JSON Schemas.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use allstop_testkit::PublishedSchema;
use serde_json::Value;

static SCHEMAS: LazyLock<Mutex<HashMap<String, PublishedSchema>>> = LazyLock::new(Mutex::default);

/// Asserts that the value is valid under the published schema of this name.
#[track_caller]
pub(crate) fn assert_valid(name: &str, value: &Value) {
    let checked = check(name, value);
    assert!(checked.is_ok(), "{checked:?}");
}

/// Checks the value against the published schema of this name.
///
/// # Errors
/// Lists all validation errors.
pub(crate) fn check(name: &str, value: &Value) -> Result<(), String> {
    let mut schemas = SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner);
    let schema = schemas.entry(name.to_owned());
    schema
        .or_insert_with(|| PublishedSchema::of(name))
        .check(value)
}
