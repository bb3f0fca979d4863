//! Forms of an answer's JSON schema for the providers. Each provider accepts a part of JSON Schema, and an answer is always
//! validated against the whole schema. So a form may describe more answers than the schema, or fewer.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::ModelRequest;

/// Keywords whose values are schemas by name.
const MAPS: [&str; 3] = ["properties", "$defs", "definitions"];

/// Keywords whose values are lists of schemas.
const LISTS: [&str; 3] = ["anyOf", "allOf", "prefixItems"];

/// Keywords that a schema for `OpenAI`'s strict mode may not contain.
const NOT_STRICT: [&str; 13] = [
    "allOf",
    "oneOf",
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "minLength",
    "maxLength",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "default",
];

/// Keywords that Anthropic refuses.
const NOT_IN_MESSAGES: [&str; 11] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "default",
];

/// The system prompt, with the schema if the provider cannot constrain the answer to it.
pub(super) fn system_with_schema<'a>(
    request: &'a ModelRequest,
    in_prompt: Option<&Value>,
) -> Option<Cow<'a, str>> {
    let Some(schema) = in_prompt else {
        return request.system.as_deref().map(Cow::Borrowed);
    };
    let instruction = format!(
        "The final answer is a JSON value that matches this JSON schema, without other text and without a code \
         fence:\n{schema}"
    );
    Some(Cow::Owned(match &request.system {
        Some(system) => format!("{system}\n\n{instruction}"),
        None => instruction,
    }))
}

/// True if the schema describes an object. Providers constrain no other answers.
pub(super) fn is_object(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object")
}

/// The schema for `OpenAI`'s strict mode. `None` if the schema has optional fields, or keywords that the mode lacks.
pub(super) fn strict(schema: &Value) -> Option<Value> {
    let mut schema = schema.clone();
    let is_strict = visit(&mut schema, &mut |schema| {
        let has_all = close(schema) && {
            let fields = schema.get("properties").and_then(Value::as_object);
            let required = schema.get("required").and_then(Value::as_array);
            let is_required = |name: &String| {
                required.is_some_and(|list| list.iter().any(|one| one.as_str() == Some(name)))
            };
            fields.is_none_or(|fields| fields.keys().all(is_required))
        };
        has_all
            && !NOT_STRICT
                .iter()
                .any(|keyword| schema.contains_key(*keyword))
    });
    is_strict.then_some(schema)
}

/// The schema for Anthropic. `None` if the schema has objects with any fields.
pub(super) fn for_messages(schema: &Value) -> Option<Value> {
    let mut schema = schema.clone();
    let is_closed = visit(&mut schema, &mut |schema| {
        for keyword in NOT_IN_MESSAGES {
            schema.shift_remove(keyword);
        }
        if let Some(one_of) = schema.shift_remove("oneOf") {
            schema.entry("anyOf").or_insert(one_of);
        }
        close(schema)
    });
    is_closed.then_some(schema)
}

/// Adds `additionalProperties: false` to the schema of an object. Returns false if the object may have any fields.
fn close(schema: &mut Map<String, Value>) -> bool {
    let is_object = schema.contains_key("properties")
        || match schema.get("type") {
            Some(Value::String(name)) => name == "object",
            Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
            _ => false,
        };
    if !is_object {
        return true;
    }
    let others = schema.entry("additionalProperties").or_insert(false.into());
    *others == Value::Bool(false)
}

/// Visits the schema and its parts, the schema before its parts. Returns false as soon as a visit returns false.
fn visit(schema: &mut Value, each: &mut impl FnMut(&mut Map<String, Value>) -> bool) -> bool {
    let Value::Object(schema) = schema else {
        return true;
    };
    if !each(schema) {
        return false;
    }
    for (keyword, value) in schema {
        let is_whole = match value {
            Value::Object(parts) if MAPS.contains(&&**keyword) => {
                parts.values_mut().all(|part| visit(part, each))
            }
            Value::Array(parts) if LISTS.contains(&&**keyword) => {
                parts.iter_mut().all(|part| visit(part, each))
            }
            items @ Value::Object(_) if keyword == "items" => visit(items, each),
            _ => true,
        };
        if !is_whole {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strict_schemas_close_all_objects() {
        let schema = json!({
            "type": "object",
            "properties": {"minLength": {"type": "array", "items": {"type": "object", "properties": {}}}},
            "required": ["minLength"],
        });
        let strict_schema = strict(&schema).unwrap();
        assert_eq!(strict_schema["additionalProperties"], false);
        let inner = &strict_schema["properties"]["minLength"]["items"];
        assert_eq!(inner["additionalProperties"], false);
        for open in [
            json!({"type": "object", "properties": {"a": {"type": "string"}}}),
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"type": "object", "properties": {"a": {"minLength": 1}}, "required": ["a"]}),
        ] {
            assert_eq!(strict(&open), None, "{open}");
        }
    }

    #[test]
    fn anthropic_gets_no_limits_and_no_open_objects() {
        let schema = json!({
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 1}, "one": {"oneOf": [{"const": 1}]}},
        });
        let expected = json!({
            "type": "object",
            "properties": {"n": {"type": "integer"}, "one": {"anyOf": [{"const": 1}]}},
            "additionalProperties": false,
        });
        assert_eq!(for_messages(&schema), Some(expected));
        let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
        assert_eq!(for_messages(&map), None);
    }
}
