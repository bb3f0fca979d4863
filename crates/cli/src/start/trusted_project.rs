//! The trusted parts of a project, and the configuration with them.

use std::path::Path;

use allstop_runtime::config::{ConfigError, McpJsonFile, ProjectFile};
use allstop_runtime::{Config, DefinitionFiles};

/// Parts of a project that the user trusts.
#[derive(Debug, Default)]
pub(crate) struct TrustedProject {
    pub(crate) file: Option<Box<ProjectFile>>,
    /// MCP servers of the project's `.mcp.json`.
    pub(crate) servers: Option<Box<McpJsonFile>>,
    pub(crate) definitions: DefinitionFiles,
}

impl TrustedProject {
    /// The configuration of the user in this file, with the settings and MCP servers of the project. A server of the user
    /// has precedence over one of `.mcp.json`.
    pub(crate) fn config(&self, user: Option<&Path>) -> Result<Config, ConfigError> {
        let mut config = Config::load_with_project(user, self.file.as_deref())?;
        if let Some(servers) = &self.servers {
            config.add_servers(servers);
        }
        Ok(config)
    }
}
