//! A field of a form, and the check of its value.

use serde_json::{Number, Value};

use super::shortened;

/// Maximum number of options of a field.
const OPTIONS_MAX: usize = 64;

/// Formats of a text in MCP.
const TEXT_FORMATS: [&str; 4] = ["email", "uri", "date", "date-time"];

/// Field of a form.
#[derive(Debug, Clone, PartialEq)]
pub struct FormField {
    /// Name of the field in the answer.
    pub name: String,
    /// Title for people.
    pub title: Option<String>,
    /// Description for people.
    pub description: Option<String>,
    /// Kind of the value.
    pub kind: FieldKind,
    /// Value of an omitted field.
    pub default: Option<Value>,
    /// True if the form needs a value.
    pub required: bool,
}

/// Kind of a field's value.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldKind {
    /// A text with a length in characters.
    Text {
        /// Minimum length.
        min: usize,
        /// Maximum length.
        max: usize,
        /// Format for people: `email`, `uri`, `date` or `date-time`. The server checks the value.
        format: Option<&'static str>,
    },
    /// A number.
    Number {
        /// True if only whole numbers are valid.
        whole: bool,
        /// Minimum.
        min: f64,
        /// Maximum.
        max: f64,
    },
    /// Yes or no.
    Boolean,
    /// One of these options.
    One(Vec<FieldOption>),
    /// Some of these options.
    Many {
        /// The options.
        options: Vec<FieldOption>,
        /// Minimum number.
        min: usize,
        /// Maximum number.
        max: usize,
    },
}

/// Option of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldOption {
    /// Value in the answer.
    pub value: String,
    /// Title for people.
    pub title: String,
}

impl FormField {
    /// Reads a field from its JSON schema. `None` if the schema describes no value that a person can type.
    pub fn of(name: &str, schema: &Value, required: bool) -> Option<Self> {
        let text = |key: &str| Some(shortened(schema.get(key)?.as_str()?).to_owned());
        let count = |schema: &Value, key: &str| usize::try_from(schema.get(key)?.as_u64()?).ok();
        let kind = match (schema.get("type")?.as_str()?, options(schema)) {
            ("string", Some(options)) => FieldKind::One(options),
            ("string", None) => FieldKind::Text {
                min: count(schema, "minLength").unwrap_or(0),
                max: count(schema, "maxLength").unwrap_or(usize::MAX),
                format: format_of(schema),
            },
            ("array", _) => FieldKind::Many {
                options: options(schema.get("items")?)?,
                min: count(schema, "minItems").unwrap_or(0),
                max: count(schema, "maxItems").unwrap_or(usize::MAX),
            },
            ("boolean", _) => FieldKind::Boolean,
            (number @ ("number" | "integer"), _) => {
                let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
                FieldKind::Number {
                    whole: number == "integer",
                    min: limit("minimum").unwrap_or(f64::NEG_INFINITY),
                    max: limit("maximum").unwrap_or(f64::INFINITY),
                }
            }
            _ => return None,
        };
        let mut field = Self {
            name: name.to_owned(),
            title: text("title"),
            description: text("description"),
            kind,
            default: None,
            required,
        };
        let default = schema.get("default");
        field.default = default.filter(|value| field.check(value).is_ok()).cloned();
        Some(field)
    }

    /// Name of the field for people.
    pub fn label(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }

    /// Parses the text that a person has typed. A list of options is separated by commas. `None` means no value.
    ///
    /// # Errors
    /// Describes the valid values, for people.
    pub fn parse(&self, typed: &str) -> Result<Option<Value>, String> {
        let typed = typed.trim();
        if typed.is_empty() {
            return match (self.default.is_some(), self.required) {
                (false, true) => Err(self.expected()),
                _ => Ok(None),
            };
        }
        let value = match &self.kind {
            FieldKind::Text { .. } => Some(Value::from(typed)),
            FieldKind::Boolean => yes_or_no(typed).map(Value::from),
            FieldKind::Number { .. } => typed.parse::<Number>().ok().map(Value::Number),
            FieldKind::One(options) => option(options, typed).map(Value::from),
            FieldKind::Many { options, .. } => {
                let typed = typed.split(',').map(|typed| option(options, typed.trim()));
                typed.collect::<Option<Vec<_>>>().map(Value::from)
            }
        };
        let value = value.ok_or_else(|| self.expected())?;
        self.check(&value)?;
        Ok(Some(value))
    }

    /// Checks a value.
    ///
    /// # Errors
    /// Describes the valid values, for people.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let has = |options: &[FieldOption], value: &Value| {
            options
                .iter()
                .any(|option| value.as_str() == Some(&option.value))
        };
        let is_valid = match &self.kind {
            FieldKind::Text { min, max, .. } => value
                .as_str()
                .is_some_and(|text| (*min..=*max).contains(&text.chars().count())),
            FieldKind::Boolean => value.is_boolean(),
            FieldKind::Number { whole, min, max } => value.as_f64().is_some_and(|number| {
                (*min..=*max).contains(&number) && (!whole || value.is_i64() || value.is_u64())
            }),
            FieldKind::One(options) => has(options, value),
            FieldKind::Many { options, min, max } => value.as_array().is_some_and(|values| {
                (*min..=*max).contains(&values.len())
                    && values.iter().all(|value| has(options, value))
            }),
        };
        is_valid.then_some(()).ok_or_else(|| self.expected())
    }

    /// Description of the valid values.
    pub fn expected(&self) -> String {
        let titles = |options: &[FieldOption]| {
            let titles: Vec<_> = options.iter().map(|option| option.title.as_str()).collect();
            titles.join(", ")
        };
        let label = self.label();
        match &self.kind {
            FieldKind::Text {
                min,
                max: usize::MAX,
                ..
            } if *min <= 1 => format!("`{label}`: a text"),
            FieldKind::Text {
                min,
                max: usize::MAX,
                ..
            } => {
                format!("`{label}`: a text with at least {min} characters")
            }
            FieldKind::Text { min, max, .. } => {
                format!("`{label}`: a text with {min} to {max} characters")
            }
            FieldKind::Boolean => format!("`{label}`: yes or no"),
            FieldKind::Number { whole, min, max } => {
                let kind = if *whole { "a whole number" } else { "a number" };
                match (min.is_finite(), max.is_finite()) {
                    (true, true) => format!("`{label}`: {kind} from {min} to {max}"),
                    (true, false) => format!("`{label}`: {kind} from {min}"),
                    (false, true) => format!("`{label}`: {kind} up to {max}"),
                    (false, false) => format!("`{label}`: {kind}"),
                }
            }
            FieldKind::One(options) => format!("`{label}`: one of {}", titles(options)),
            FieldKind::Many { options, .. } => {
                format!("`{label}`: a list, with commas, of {}", titles(options))
            }
        }
    }
}

/// Format of a text in the schema, if it is one of the formats of MCP.
fn format_of(schema: &Value) -> Option<&'static str> {
    let format = schema.get("format")?.as_str()?;
    TEXT_FORMATS.into_iter().find(|known| *known == format)
}

/// Options of a schema, in each form that MCP has: `enum`, with `enumNames` or without, `oneOf` and `anyOf`.
fn options(schema: &Value) -> Option<Vec<FieldOption>> {
    let list = |key: &str| schema.get(key).and_then(Value::as_array);
    let options: Vec<_> = if let Some(values) = list("enum") {
        let titles = list("enumNames");
        let title = |at: usize| titles?.get(at)?.as_str();
        let option = |(at, value): (usize, &Value)| {
            let value = value.as_str()?;
            Some(FieldOption {
                value: value.to_owned(),
                title: shortened(title(at).unwrap_or(value)).to_owned(),
            })
        };
        values
            .iter()
            .enumerate()
            .filter_map(option)
            .take(OPTIONS_MAX)
            .collect()
    } else {
        let options = list("oneOf").or_else(|| list("anyOf"))?.iter();
        let option = |option: &Value| {
            let value = option.get("const")?.as_str()?;
            let title = option.get("title").and_then(Value::as_str);
            Some(FieldOption {
                value: value.to_owned(),
                title: shortened(title.unwrap_or(value)).to_owned(),
            })
        };
        options.filter_map(option).take(OPTIONS_MAX).collect()
    };
    (!options.is_empty()).then_some(options)
}

/// Value of the option with this title, value or number. The first option has the number 1.
fn option(options: &[FieldOption], typed: &str) -> Option<String> {
    let is_named = |option: &&FieldOption| {
        option.title.eq_ignore_ascii_case(typed) || option.value.eq_ignore_ascii_case(typed)
    };
    let by_number = || options.get(typed.parse::<usize>().ok()?.checked_sub(1)?);
    let option = options.iter().find(is_named).or_else(by_number)?;
    Some(option.value.clone())
}

fn yes_or_no(typed: &str) -> Option<bool> {
    match typed.to_ascii_lowercase().as_str() {
        "y" | "yes" | "true" => Some(true),
        "n" | "no" | "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(schema: &Value) -> FormField {
        FormField::of("f", schema, true).unwrap()
    }

    #[test]
    fn typed_text_becomes_a_value_of_the_kind() {
        let colors = json!({"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]});
        let many = json!({"type": "array", "items": {"anyOf": [{"const": "r", "title": "Red"}, {"const": "g"}]}});
        for (schema, typed, value) in [
            (&json!({"type": "string"}), " Ada ", json!("Ada")),
            (&json!({"type": "integer", "minimum": 1}), "3", json!(3)),
            (&json!({"type": "number"}), "-2.5", json!(-2.5)),
            (&json!({"type": "boolean"}), "Yes", json!(true)),
            (&colors, "green", json!("g")),
            (&colors, "1", json!("r")),
            (&many, "Red, g", json!(["r", "g"])),
        ] {
            assert_eq!(field(schema).parse(typed), Ok(Some(value)), "{schema}");
        }
    }

    #[test]
    fn invalid_value_is_refused_with_the_valid_ones() {
        for (schema, typed, why) in [
            (
                json!({"type": "string", "maxLength": 2}),
                "abc",
                "`f`: a text with 0 to 2 characters",
            ),
            (json!({"type": "integer"}), "1.5", "`f`: a whole number"),
            (
                json!({"type": "number", "maximum": 5}),
                "6",
                "`f`: a number up to 5",
            ),
            (json!({"type": "boolean"}), "maybe", "`f`: yes or no"),
            (
                json!({"type": "string", "oneOf": [{"const": "a"}]}),
                "b",
                "`f`: one of a",
            ),
            (json!({"type": "string"}), " ", "`f`: a text"),
        ] {
            assert_eq!(field(&schema).parse(typed), Err(why.to_owned()));
        }
    }

    #[test]
    fn schema_without_a_value_to_type_is_no_field() {
        for schema in [
            json!({"type": "object"}),
            json!({}),
            json!({"type": "array", "items": {"type": "string"}}),
        ] {
            assert_eq!(FormField::of("f", &schema, false), None);
        }
        let wrong = json!({"type": "integer", "default": "x"});
        assert_eq!(field(&wrong).default, None, "a default of another kind");
    }
}
