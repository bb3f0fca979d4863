//! One rule: which calls it is about.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::command::Command;

/// The name of the tool whose `command` argument prefix rules look at.
pub(super) const SHELL: &str = "shell";

/// Which calls a rule is about: `read` (every call of the tool), `server__*` (every call of the tools whose names begin
/// so) or `shell:git status` (commands that start with these words).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub(super) tool: Arc<str>,
    /// The words that a command starts with; empty: every call.
    pub(super) prefix: Vec<String>,
}

impl Rule {
    /// The tool that it is about.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Whether it is about the tool of this name. `server__*` is about every tool whose name begins so.
    pub(super) fn is_about(&self, tool: &str) -> bool {
        match self.tool.strip_suffix('*') {
            Some(beginning) => tool.starts_with(beginning),
            None => *self.tool == *tool,
        }
    }
}

/// Why a rule could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Nothing names a tool.
    #[error("the permission rule {rule:?} names no tool")]
    NoTool {
        /// The rule.
        rule: String,
    },
    /// Only the shell has commands.
    #[error(
        "the permission rule {rule:?} has a command prefix, which only `shell:` rules may have"
    )]
    PrefixOfOtherTool {
        /// The rule.
        rule: String,
    },
    /// `shell:` with nothing behind it would read like a rule for nothing and act like one for everything.
    #[error(
        "the permission rule {rule:?} has an empty command prefix; write `shell` for every command"
    )]
    EmptyPrefix {
        /// The rule.
        rule: String,
    },
    /// A prefix with shell syntax never matches what its writer meant.
    #[error("the command prefix of the permission rule {rule:?} is not plain words")]
    NotPlainWords {
        /// The rule.
        rule: String,
    },
}

impl FromStr for Rule {
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
        if tool != SHELL {
            return Err(RuleError::PrefixOfOtherTool { rule: rule() });
        }
        if prefix.trim().is_empty() {
            return Err(RuleError::EmptyPrefix { rule: rule() });
        }
        let prefix = Command::parse(prefix)
            .into_plain_words()
            .ok_or_else(|| RuleError::NotPlainWords { rule: rule() })?;
        Ok(Self {
            tool: tool.into(),
            prefix,
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tool)?;
        for (at, word) in self.prefix.iter().enumerate() {
            f.write_str(if at == 0 { ":" } else { " " })?;
            // So that it reads as what it is: `'rm -rf'` is one word, a command of that name.
            if is_bare(word) {
                f.write_str(word)?;
            } else {
                write!(f, "'{}'", word.replace('\'', r"'\''"))?;
            }
        }
        Ok(())
    }
}

/// Whether a shell takes the word as it stands, without quotes.
fn is_bare(word: &str) -> bool {
    let is_bare = |c: char| c.is_alphanumeric() || "-_./=+,:@%".contains(c);
    !word.is_empty() && word.chars().all(is_bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_about_one_tool_or_those_that_begin_alike() {
        let rule = |written: &str| written.parse::<Rule>().unwrap();
        assert!(rule("files__*").is_about("files__read"));
        assert!(rule("files__re*").is_about("files__read"));
        assert!(!rule("files__*").is_about("file"));
        assert!(!rule("read").is_about("read_all"));
    }

    #[test]
    fn a_rule_is_written_as_it_is_read() {
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
            let rule: Rule = written.parse().unwrap();
            assert_eq!(rule.to_string(), written);
        }
        let quoted: Rule = r#"shell: "a b" c\ d"#.parse().unwrap();
        assert_eq!(quoted.to_string(), "shell:'a b' 'c d'");
        assert_eq!(quoted.to_string().parse(), Ok(quoted));
    }
}
