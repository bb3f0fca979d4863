//! The published schema of script files matches the code.

use std::path::Path;

use allstop_model::scripted::file::ScriptFile;

/// `UPDATE_SCHEMAS=1` rewrites the file.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a switch for people who run the tests"
)]
fn published_script_schema_is_current() {
    let schema = schemars::schema_for!(ScriptFile);
    let mut current = serde_json::to_value(&schema).unwrap();
    // A field that moves in the code does not change the file.
    current.sort_all_objects();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/script.schema.json");
    if std::env::var("UPDATE_SCHEMAS").is_ok() {
        std::fs::write(&path, format!("{current:#}\n")).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    let published: serde_json::Value = serde_json::from_str(&published).unwrap_or_default();
    assert!(
        published == current,
        "schemas/script.schema.json is not what the code reads; run with UPDATE_SCHEMAS=1"
    );
}
