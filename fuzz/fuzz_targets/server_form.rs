//! Any form of an MCP server, and any text that a person types. A field accepts exactly the values that its check allows,
//! and a complete form has a valid value for each required field. The schema for clients describes the same fields.
//!
//! The input is the JSON schema of the form. Each line after it is typed into the next field.
#![no_main]

use allstop_tools::server_question::{FormField, WantedInput};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

fuzz_target!(|input: &str| {
    let mut lines = input.lines();
    let Ok(schema) = serde_json::from_str::<Value>(lines.next().unwrap_or_default()) else {
        return;
    };
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    let required = schema.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
    let fields = properties.iter();
    let fields = fields.filter_map(|(name, schema)| FormField::of(name, schema, is_required(name)));
    let fields: Vec<FormField> = fields.collect();
    for field in &fields {
        let again = FormField::of(&field.name, &field.schema(), field.required);
        assert_eq!(again.as_ref(), Some(field), "a client gets the same field");
    }
    let mut values = Map::new();
    for (field, typed) in fields.iter().zip(lines) {
        assert!(
            field
                .default
                .iter()
                .all(|default| field.check(default).is_ok())
        );
        if let Ok(Some(value)) = field.parse(typed) {
            assert_eq!(field.check(&value), Ok(()), "{field:?} {typed:?}");
            values.insert(field.name.clone(), value);
        }
    }
    let wanted = WantedInput::Form(fields.clone());
    if let Ok(complete) = wanted.completed(values) {
        for field in fields {
            match complete.get(&field.name) {
                Some(value) => assert_eq!(field.check(value), Ok(()), "{field:?}"),
                None => assert!(!field.required, "{field:?}"),
            }
        }
    }
});
