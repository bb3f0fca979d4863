//! The published schemas.

use serde_json::Value;

use super::place::repository;

/// The value is valid under the published schema of this name.
#[track_caller]
pub(crate) fn assert_valid(name: &str, value: &Value) {
    let path = repository().join(format!("schemas/{name}.schema.json"));
    let text = std::fs::read_to_string(path).expect("a published schema");
    let schema: Value = serde_json::from_str(&text).expect("a schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:?} in {value:#}");
}
