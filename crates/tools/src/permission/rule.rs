//! A permission rule: a pattern of calls.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use super::command::ParsedCommand;
use crate::names;

/// Pattern of calls: `read` (all calls of the tool), `server__*` (all calls of the tools with that prefix) or
/// `shell:git status` (commands that start with these words).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRule {
    pub(super) tool: Arc<str>,
    /// First words of the command; empty if the rule covers every call.
    pub(super) prefix: Vec<String>,
}

impl PermissionRule {
    /// Name of the tool, which may end with `*`.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// True if the rule covers the tool of this name. `server__*` covers every tool with that prefix.
    pub(super) fn covers_tool(&self, tool: &str) -> bool {
        match self.tool.strip_suffix('*') {
            Some(beginning) => tool.starts_with(beginning),
            None => *self.tool == *tool,
        }
    }
}

/// Error of an invalid rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The rule names no tool.
    #[error(
        "the permission rule {rule:?} names no tool; write a tool, such as `read`, or `shell:git status`"
    )]
    NoTool {
        /// The rule.
        rule: String,
    },
    /// The rule has a prefix for a tool other than the shell.
    #[error(
        "the permission rule {rule:?} has a command prefix, which only `shell:` rules may have"
    )]
    PrefixOfOtherTool {
        /// The rule.
        rule: String,
    },
    /// The prefix of the rule is empty. Such a rule would look like a rule for no command, but would have the effect of
    /// a rule for every command.
    #[error(
        "the permission rule {rule:?} has an empty command prefix; write `shell` for every command"
    )]
    EmptyPrefix {
        /// The rule.
        rule: String,
    },
    /// The prefix has shell syntax, which would never match as intended.
    #[error(
        "the permission rule {rule:?} has shell syntax in its command prefix; write plain words: `shell:git status`"
    )]
    NotPlainWords {
        /// The rule.
        rule: String,
    },
}

impl FromStr for PermissionRule {
    type Err = RuleError;

    fn from_str(rule: &str) -> Result<Self, RuleError> {
        let (tool, prefix) = match rule.split_once(':') {
            Some((tool, prefix)) => (tool.trim(), Some(prefix)),
            None => (rule.trim(), None),
        };
        let rule = || rule.to_owned();
        if tool.is_empty() {
            return Err(RuleError::NoTool { rule: rule() });
        }
        let Some(prefix) = prefix else {
            return Ok(Self {
                tool: tool.into(),
                prefix: Vec::new(),
            });
        };
        if tool != names::SHELL {
            return Err(RuleError::PrefixOfOtherTool { rule: rule() });
        }
        if prefix.trim().is_empty() {
            return Err(RuleError::EmptyPrefix { rule: rule() });
        }
        let prefix = ParsedCommand::parse(prefix)
            .into_plain_words()
            .ok_or_else(|| RuleError::NotPlainWords { rule: rule() })?;
        Ok(Self {
            tool: tool.into(),
            prefix,
        })
    }
}

impl fmt::Display for PermissionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tool)?;
        for (at, word) in self.prefix.iter().enumerate() {
            f.write_str(if at == 0 { ":" } else { " " })?;
            // The word is quoted, so that the rule stays unambiguous: `'rm -rf'` is one word, the name of a program.
            if is_bare(word) {
                f.write_str(word)?;
            } else {
                write!(f, "'{}'", word.replace('\'', r"'\''"))?;
            }
        }
        Ok(())
    }
}

impl Serialize for PermissionRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PermissionRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(RuleVisitor)
    }
}

/// Visitor that parses a rule. The error of an invalid rule is returned inside the visitor, so that the error contains
/// the position of the rule in its file.
struct RuleVisitor;

impl Visitor<'_> for RuleVisitor {
    type Value = PermissionRule;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PermissionRule, E> {
        text.parse().map_err(E::custom)
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

/// True if a shell takes the word literally without quotes.
fn is_bare(word: &str) -> bool {
    let is_bare = |c: char| c.is_alphanumeric() || "-_./=+,:@%".contains(c);
    !word.is_empty() && word.chars().all(is_bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_covers_one_tool_or_all_with_a_prefix() {
        let rule = |written: &str| written.parse::<PermissionRule>().unwrap();
        assert!(rule("files__*").covers_tool("files__read"));
        assert!(rule("files__re*").covers_tool("files__read"));
        assert!(!rule("files__*").covers_tool("file"));
        assert!(!rule("read").covers_tool("read_all"));
    }

    #[test]
    fn displayed_rule_parses_to_the_same_rule() {
        for written in [
            "read",
            "shell",
            "shell:git status",
            "shell:cargo test --all",
            "shell:'git status'",
            "shell:''",
            r"shell:'it'\''s' x",
            "shell:'#' '*'",
        ] {
            let rule: PermissionRule = written.parse().unwrap();
            assert_eq!(rule.to_string(), written);
        }
        let quoted: PermissionRule = r#"shell: "a b" c\ d"#.parse().unwrap();
        assert_eq!(quoted.to_string(), "shell:'a b' 'c d'");
        assert_eq!(quoted.to_string().parse(), Ok(quoted));
    }
}
