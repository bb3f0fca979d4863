//! The file `.mcp.json` of a project, in which several tools keep the MCP servers of a team.
//!
//! The file comes with the code, so it has no effect until the caller passes it to [`Config::add_servers`]; the binary asks
//! a person first. `${NAME}` in a value stands for an environment variable, and `${NAME:-TEXT}` for TEXT if the variable is
//! not set or empty. The values are replaced when a server is opened, so no other part of the program sees them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use allstop_core::json_text::has_reserved_key;
use allstop_tools::mcp::{McpServerConfig, McpTransport};
use serde::Deserialize;
use serde_json::Value;

use super::project::{HINT, ProjectFileSearch, ProjectText};
use super::{Config, ConfigError, McpServerSection, command_text};

/// Name of the file.
const NAME: &str = ".mcp.json";

/// Servers of a project. The file has no effect by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct McpJsonFile {
    /// Absolute path.
    pub path: PathBuf,
    /// Content. The program uses exactly the bytes that a person trusts.
    pub text: String,
    /// The servers that can be used.
    pub servers: BTreeMap<String, McpServerSection>,
    /// A line for each server that cannot be used, with the reason.
    pub left_out: Vec<String>,
}

/// A server of the file that cannot be used. `Display` writes a line for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableServer {
    /// Name of the server.
    pub name: String,
    /// Reason, such as an environment variable that is not set.
    pub why: String,
}

impl fmt::Display for UnusableServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, why } = self;
        write!(f, "the MCP server {name:?} of {NAME} is left out: {why}")
    }
}

#[derive(Deserialize)]
struct McpJsonDocument {
    #[serde(rename = "mcpServers", default)]
    servers: BTreeMap<String, Value>,
}

/// A server in the file. Keys of other tools have no effect.
#[derive(Deserialize)]
struct McpJsonServer {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

impl McpJsonFile {
    /// Path of the file in a working directory, whether the file exists or not.
    pub fn path_in(folder: &Path) -> PathBuf {
        folder.join(NAME)
    }

    /// Searches for the file in a working directory. May wait for a slow disk, but never for a file of a special type.
    ///
    /// # Errors
    /// Returns an error if the file cannot be used: not a regular file, a link out of the folder, too long, or invalid.
    pub fn find(folder: &Path) -> Result<ProjectFileSearch<Self>, ConfigError> {
        Ok(match ProjectText::find(folder, NAME)? {
            ProjectFileSearch::Absent => ProjectFileSearch::Absent,
            ProjectFileSearch::ForeignOwner(path, user) => {
                ProjectFileSearch::ForeignOwner(path, user)
            }
            ProjectFileSearch::Found(read) => {
                let file = Self::parse(&read.path, read.text)?;
                ProjectFileSearch::Found(Box::new(file))
            }
        })
    }

    /// Parses the content of the file at this path.
    ///
    /// # Errors
    /// Returns the first error, with its position.
    pub fn parse(path: &Path, text: String) -> Result<Self, ConfigError> {
        if has_reserved_key(text.as_bytes()) {
            return Err(ConfigError::of_file(path, "has a reserved key", HINT));
        }
        if text.trim_start().starts_with('[') {
            // Serde reads an array as the fields of an object in their order.
            return Err(ConfigError::of_file(path, "is not a JSON object", HINT));
        }
        let document: McpJsonDocument = serde_json::from_str(&text).map_err(|error| {
            let message = error.to_string();
            // The position is a separate part of the error.
            let message = message.split(" at line ").next().unwrap_or_default();
            ConfigError {
                at: Some((error.line(), error.column())),
                ..ConfigError::of_file(path, message, HINT)
            }
        })?;
        let mut file = Self {
            path: path.to_owned(),
            text,
            servers: BTreeMap::new(),
            left_out: Vec::new(),
        };
        for (name, server) in document.servers {
            match McpJsonServer::read(server).and_then(|server| server.section(&name)) {
                Ok(section) => drop(file.servers.insert(name, section)),
                Err(why) => file.left_out.push(UnusableServer { name, why }.to_string()),
            }
        }
        Ok(file)
    }
}

impl McpJsonServer {
    /// Reads one server. An error concerns only this server.
    fn read(server: Value) -> Result<Self, String> {
        if !server.is_object() {
            // Serde would read an array as the fields in their order.
            return Err("it is not a JSON object".to_owned());
        }
        serde_json::from_value(server).map_err(|error| error.to_string())
    }

    fn section(self, name: &str) -> Result<McpServerSection, String> {
        let transport = McpTransport::Http {
            url: "".into(),
            headers: Vec::new(),
        };
        McpServerConfig::new(name, transport).map_err(|error| error.to_string())?;
        let (has_command, has_url) = (self.command.is_some(), self.url.is_some());
        match (self.kind.as_deref(), has_command, has_url) {
            (None | Some("stdio"), true, false)
            | (None | Some("http" | "sse" | "streamable-http"), false, true) => {}
            (Some(kind), ..) if !["stdio", "http", "sse", "streamable-http"].contains(&kind) => {
                return Err(format!(
                    "unknown `type` {kind:?}, expected stdio, http or sse"
                ));
            }
            (None, ..) => return Err("it needs either `command` or `url`".to_owned()),
            (Some(kind), ..) => {
                let needed = if kind == "stdio" { "command" } else { "url" };
                return Err(format!("`type` {kind:?} needs `{needed}` alone"));
            }
        }
        if self.command.as_deref().is_some_and(command_text::is_empty) {
            return Err(command_text::EMPTY.to_owned());
        }
        Ok(McpServerSection {
            command: self.command,
            args: self.args,
            env: self.env,
            url: self.url,
            headers: self.headers,
            expands_variables: true,
            ..McpServerSection::default()
        })
    }
}

impl Config {
    /// Adds the servers of a project's `.mcp.json`. Servers with the names of configured servers are left out.
    pub fn add_servers(&mut self, file: &McpJsonFile) {
        for (name, section) in &file.servers {
            let servers = &mut self.mcp.servers;
            servers.entry(name.clone()).or_insert(section.clone());
        }
    }
}

impl McpServerSection {
    /// The section with the values of the variables that it names, if it belongs to a `.mcp.json`.
    ///
    /// # Errors
    /// Names the first variable that is not set and has no default value.
    pub(crate) fn expanded(
        &self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let mut section = self.clone();
        if self.expands_variables {
            let texts = section.command.iter_mut().chain(&mut section.url);
            let texts = texts.chain(&mut section.args);
            let texts = texts.chain(section.env.values_mut());
            for text in texts.chain(section.headers.values_mut()) {
                *text = expand(text, variable)?;
            }
        }
        Ok(section)
    }
}

/// Replaces `${NAME}` and `${NAME:-TEXT}`. Any other text with a dollar sign stays.
fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        expanded.push_str(before);
        let place = after.split_once('}').and_then(|(place, after)| {
            let (name, default) = match place.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (place, None),
            };
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            (!name.is_empty() && name.bytes().all(is_part)).then_some((name, default, after))
        });
        let Some((name, default, after)) = place else {
            expanded.push_str("${");
            rest = after;
            continue;
        };
        let value = variable(name).filter(|value| default.is_none() || !value.is_empty());
        let value = value
            .or_else(|| default.map(str::to_owned))
            .ok_or_else(|| {
                format!(
                    "the environment variable {name} is not set; set it, or write ${{{name}:-TEXT}}"
                )
            })?;
        expanded.push_str(&value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<McpJsonFile, ConfigError> {
        McpJsonFile::parse(Path::new("/p/.mcp.json"), text.to_owned())
    }

    #[test]
    fn servers_have_a_command_or_a_url() {
        let file = parse(
            r#"{"other": 1, "mcpServers": {
                "a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "${K}"}, "disabled": false},
                "b": {"type": "sse", "url": "https://b.example/sse", "headers": {"X": "1"}},
                "c": {"type": "ws", "url": "wss://c.example"},
                "d": {"type": "http", "command": "x"},
                "e": {},
                "f__g": {"command": "x"},
                "g": {"command": "x", "args": "y"},
                "h": ["stdio", "x"],
                "i": {"command": " "}}}"#,
        )
        .unwrap();
        assert_eq!(file.servers.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(file.servers["a"].args, ["-y", "x"]);
        assert_eq!(file.left_out.len(), 7, "{:?}", file.left_out);
        let left_out = file.left_out.join("\n");
        for why in [
            "unknown `type` \"ws\"",
            "needs `url` alone",
            "either `command` or `url`",
            "invalid server name",
            "\"g\" of .mcp.json is left out: invalid type: string \"y\", expected a sequence",
            "it is not a JSON object",
            "`command` is empty",
        ] {
            assert!(left_out.contains(why), "{left_out}");
        }
    }

    #[test]
    fn error_has_its_line() {
        let error = parse("{\n  \"mcpServers\": [1]\n}").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("/p/.mcp.json:2:"), "{text}");
        assert!(text.ends_with("expected a map"), "{text}");
        assert!(error.hint.contains("--project-config ignore"));
        assert!(parse("[]").is_err() && parse("").is_err());
    }

    #[test]
    fn server_of_the_user_wins() {
        let text = "[mcp.servers.a]\ncommand = 'mine'";
        let mut config = Config::parse(Path::new("u.toml"), text).unwrap();
        let file = r#"{"mcpServers": {"a": {"command": "theirs"}, "b": {"command": "b"}}}"#;
        config.add_servers(&parse(file).unwrap());
        let commands = config.mcp.servers.values();
        let commands: Vec<_> = commands.map(|one| one.command.as_deref()).collect();
        assert_eq!(commands, [Some("mine"), Some("b")]);
    }

    #[test]
    fn variables_are_replaced() {
        let variable = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (text, expanded) in [
            ("${A}-${A}", "1-1"),
            ("${B:-x y}${EMPTY:-z}[${EMPTY}]", "x yz[]"),
            ("$A ${} ${A ${a b} é", "$A ${} ${A ${a b} é"),
            ("${B:-}", ""),
        ] {
            assert_eq!(expand(text, &variable), Ok(expanded.to_owned()), "{text}");
        }
        let why = expand("${B}", &variable).unwrap_err();
        assert!(why.contains("B is not set"), "{why}");
    }
}
