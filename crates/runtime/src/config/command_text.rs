//! Commands in the configuration: hooks, guardrails and MCP servers. An empty command is an error of the file.

use serde::de::{Deserialize, Deserializer, Error};

/// Message about an empty command.
pub(super) const EMPTY: &str = "`command` is empty, expected a program";

/// Reads a command.
pub(super) fn required<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let command = String::deserialize(from)?;
    if is_empty(&command) {
        return Err(D::Error::custom(EMPTY));
    }
    Ok(command)
}

/// Reads a command that may be absent.
pub(super) fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    required(from).map(Some)
}

/// True if the text contains no command.
pub(super) fn is_empty(command: &str) -> bool {
    command.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Config;

    /// Regression: the file was accepted. The server failed later, and the guardrail allowed every answer.
    #[test]
    fn empty_command_is_an_error_with_its_line() {
        for command in ["", " \\t"] {
            for section in [
                "[mcp.servers.a]",
                "[[hooks]]\non = 'stop'",
                "[[guardrails]]\non = 'output'",
            ] {
                let text = format!("{section}\ncommand = \"{command}\"\n");
                let line = text.lines().count();
                let error = Config::parse(Path::new("a.toml"), &text);
                let error = error.expect_err(&text).to_string();
                let place = format!("a.toml:{line}:11: ");
                assert!(error.starts_with(&place), "{error}");
                assert!(error.contains("`command` is empty"), "{error}");
            }
        }
    }
}
