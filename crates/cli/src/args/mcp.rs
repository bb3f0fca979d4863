//! Flags of `mcp`.

use std::path::PathBuf;

use allstop_runtime::config::is_http_url;
use clap::{Args, Subcommand};

#[cfg(feature = "mcp-server")]
use super::mcp_serve::McpServeArgs;

pub(crate) const MCP_ADD_HELP: &str = "\
Examples:
  allstop mcp add files -- mcp-server-filesystem .
  allstop mcp add github --inherit-env GITHUB_TOKEN -- github-mcp-server stdio
  allstop mcp add tickets --url https://tickets.example.com/mcp --bearer-token-env TICKETS_TOKEN ";

pub(crate) const MCP_LOGIN_HELP: &str = "\
The command prints an address for a browser on this machine, and waits at most ten minutes. Ctrl-C ends it. The tokens
are kept in a file that only you can read; sessions that already run use them, too.

For a browser on another machine, set `port` in the section `[mcp.servers.NAME.login]` and forward this port:
  ssh -L PORT:127.0.0.1:PORT HOST allstop mcp login NAME

Examples:
  allstop mcp login tickets
  allstop mcp login tickets --scope tickets:read ";

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// The configuration file [default: ~/.config/allstop/allstop.toml]
    #[arg(long, value_name = "FILE", env = "ALLSTOP_CONFIG", global = true)]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) action: McpAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpAction {
    /// List the servers that sessions in this folder start
    List,
    /// Add a server to your configuration
    #[command(after_help = MCP_ADD_HELP)]
    Add(McpAddArgs),
    /// Remove a server from your configuration
    #[command(visible_alias = "rm")]
    Remove {
        /// Name of the server
        name: String,
    },
    /// Log in at a server with a browser
    #[command(after_help = MCP_LOGIN_HELP)]
    Login {
        /// Name of the server
        name: String,
        /// Right to request, instead of those that the server names; repeatable
        #[arg(long, value_name = "SCOPE")]
        scope: Vec<String>,
    },
    /// Remove the tokens of the login at a server
    Logout {
        /// Name of the server
        name: String,
    },
    /// Run commands for another agent, as its MCP server
    #[cfg(feature = "mcp-server")]
    #[command(after_help = super::mcp_serve::MCP_SERVE_HELP)]
    Serve(McpServeArgs),
    /// Start a server, list its tools, and stop it
    Test {
        /// Name of the server
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct McpAddArgs {
    /// Name of the server; its tools get the names `NAME__TOOL`
    pub(crate) name: String,
    /// Command that starts the server, with its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "url")]
    pub(crate) command: Vec<String>,
    /// URL of a running server with streamable HTTP
    #[arg(long, conflicts_with_all = ["command", "env", "inherit_env"], value_parser = http_url)]
    pub(crate) url: Option<String>,
    /// Environment variable to set for the command; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub(crate) env: Vec<(String, String)>,
    /// Environment variable to pass to the command although its name looks like a secret; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) inherit_env: Vec<String>,
    /// Environment variable that holds the bearer token for the URL
    #[arg(long, value_name = "NAME", requires = "url")]
    pub(crate) bearer_token_env: Option<String>,
}

fn http_url(text: &str) -> Result<String, String> {
    if is_http_url(text) {
        Ok(text.to_owned())
    } else {
        Err("it does not begin with http:// or https://".to_owned())
    }
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}
