//! Check of a value against a JSON schema.

use std::fmt;

use serde_json::Value;

use super::ArgumentCheck;

/// A compiled JSON schema. Its checks take a limited time and read no other documents.
pub struct SchemaCheck(ArgumentCheck);

impl SchemaCheck {
    /// Compiles a schema.
    ///
    /// # Errors
    /// Returns the reason, for people, if the value is not a valid schema, if its checks would take too long, if a
    /// regular expression cannot be checked, or if this build lacks the feature `validation`.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        if !cfg!(feature = "validation") {
            return Err("this build lacks the feature `validation`".to_owned());
        }
        ArgumentCheck::compile_whole(schema).map(Self)
    }

    /// Checks a value. `whole` names the value in an error: "the answer".
    ///
    /// # Errors
    /// Returns a description of the wrong fields, with their paths and the reasons.
    pub fn check(&self, value: &Value, whole: &str) -> Result<(), String> {
        self.0.check_value(value, whole)
    }
}

impl fmt::Debug for SchemaCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchemaCheck").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "validation"))]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_have_the_path_and_the_reason() {
        let schema = json!({"type": "object", "required": ["n"], "properties": {
            "n": {"type": "integer"}, "list": {"type": "array", "items": {"type": "string"}},
        }});
        let check = SchemaCheck::compile(&schema).unwrap();
        assert_eq!(check.check(&json!({"n": 1}), "the answer"), Ok(()));
        for (value, expected) in [
            (json!([]), "the answer must be of type object"),
            (json!({}), "missing field `n`"),
            (
                json!({"n": 1, "list": ["a", 2]}),
                "`list.1` must be of type string",
            ),
        ] {
            assert_eq!(check.check(&value, "the answer"), Err(expected.to_owned()));
        }
        assert!(SchemaCheck::compile(&json!({"type": "nonsense"})).is_err());
    }

    /// Regression: the check ignored such patterns, so wrong answers passed.
    #[test]
    fn pattern_that_cannot_be_checked_is_refused() {
        for pattern in ["^(?=a)a+$", "(["] {
            let schema = json!({"properties": {"modules": {"type": "string", "pattern": pattern}}});
            let error = SchemaCheck::compile(&schema).expect_err(pattern);
            let expected =
                format!("the regular expression `{pattern}` at `/properties/modules/pattern`");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    /// Regression: the check of a deeply nested schema overflowed the stack of its thread.
    #[test]
    fn deeply_nested_schema_is_refused() {
        let nested = |levels: usize| {
            (0..levels).fold(json!(true), |inner, _| json!({"properties": {"a": inner}}))
        };
        assert!(SchemaCheck::compile(&nested(16)).is_ok());
        for levels in [17, 60] {
            let error = SchemaCheck::compile(&nested(levels)).expect_err("too deep");
            assert_eq!(error, "it is nested deeper than 32 levels");
        }
    }
}
