//! A permission rule in the configuration, parsed with the file, so that the error of an invalid rule has its line.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use allstop_tools::permission::{Rule, RuleError};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

/// Pattern of tool calls: `read`, `shell:git status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct PermissionRule(pub Rule);

impl FromStr for PermissionRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        text.parse().map(Self)
    }
}

impl<'de> Deserialize<'de> for PermissionRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::text::deserialize(deserializer)
    }
}

impl From<PermissionRule> for String {
    fn from(rule: PermissionRule) -> Self {
        rule.to_string()
    }
}

impl fmt::Display for PermissionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl JsonSchema for PermissionRule {
    fn schema_name() -> Cow<'static, str> {
        "PermissionRule".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A tool, `read`, or the beginning of a command, `shell:git status`.",
            "type": "string",
            "pattern": "^[^:]+$|^\\s*shell\\s*:.*\\S",
        })
    }
}
