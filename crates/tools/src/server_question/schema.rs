//! JSON schemas of forms, for clients that show a form in their own way.

use serde_json::{Map, Value, json};

use super::{FieldKind, FieldOption, FormField, WantedInput};

impl WantedInput {
    /// JSON schema of the form's values. It contains only fields that a person can fill in, with texts of limited length.
    /// `None` for a page to visit.
    pub fn schema(&self) -> Option<Value> {
        let Self::Form(fields) = self else {
            return None;
        };
        let properties = fields
            .iter()
            .map(|field| (field.name.clone(), field.schema()));
        let required = fields.iter().filter(|field| field.required);
        let required: Vec<_> = required.map(|field| field.name.as_str()).collect();
        Some(json!({
            "type": "object",
            "properties": properties.collect::<Map<_, _>>(),
            "required": required,
        }))
    }
}

impl FormField {
    /// JSON schema of the value, which [`FormField::of`] reads as this field.
    pub fn schema(&self) -> Value {
        let mut schema = Map::new();
        let mut add = |key: &str, value: Option<Value>| {
            schema.extend(value.map(|value| (key.to_owned(), value)));
        };
        let count = |count: usize, none: usize| (count != none).then(|| count.into());
        let limit = |limit: f64| limit.is_finite().then(|| limit.into());
        add("title", self.title.as_deref().map(Value::from));
        add("description", self.description.as_deref().map(Value::from));
        add("default", self.default.clone());
        match &self.kind {
            FieldKind::Text { min, max, format } => {
                add("type", Some("string".into()));
                add("minLength", count(*min, 0));
                add("maxLength", count(*max, usize::MAX));
                add("format", format.map(Value::from));
            }
            FieldKind::Number { whole, min, max } => {
                let kind = if *whole { "integer" } else { "number" };
                add("type", Some(kind.into()));
                add("minimum", limit(*min));
                add("maximum", limit(*max));
            }
            FieldKind::Boolean => add("type", Some("boolean".into())),
            FieldKind::One(options) => {
                add("type", Some("string".into()));
                add("oneOf", Some(schemas(options)));
            }
            FieldKind::Many { options, min, max } => {
                add("type", Some("array".into()));
                add("items", Some(json!({ "anyOf": schemas(options) })));
                add("minItems", count(*min, 0));
                add("maxItems", count(*max, usize::MAX));
            }
        }
        Value::Object(schema)
    }
}

fn schemas(options: &[FieldOption]) -> Value {
    let option = |option: &FieldOption| json!({ "const": option.value, "title": option.title });
    options.iter().map(option).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_of_a_field_is_read_as_this_field() {
        for schema in [
            json!({"type": "string", "title": "Name", "minLength": 2, "maxLength": 9}),
            json!({"type": "string", "format": "email", "description": "Work address"}),
            json!({"type": "integer", "minimum": 1, "maximum": 9, "default": 3}),
            json!({"type": "number"}),
            json!({"type": "boolean", "default": true}),
            json!({"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"], "default": "g"}),
            json!({"type": "string", "oneOf": [{"const": "r", "title": "Red"}]}),
            json!({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1, "maxItems": 2}),
        ] {
            let field = FormField::of("f", &schema, true).expect("a person can type it");
            let again = FormField::of("f", &field.schema(), true);
            assert_eq!(again.as_ref(), Some(&field), "{schema}");
        }
    }

    #[test]
    fn schema_of_a_form_names_the_required_fields() {
        let text = json!({"type": "string"});
        let field = |name, required| FormField::of(name, &text, required).expect("a text");
        let wanted = WantedInput::Form(vec![field("b", true), field("a", false)]);
        let schema = wanted.schema().expect("a form");
        assert_eq!(
            schema,
            json!({"type": "object", "properties": {"a": text, "b": text}, "required": ["b"]})
        );
        assert_eq!(WantedInput::Url("https://a.example/".into()).schema(), None);
    }
}
