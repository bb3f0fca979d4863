//! Flags of `mcp serve`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use allstop_core::HumanDuration;
use clap::Args;

use super::serve_access::ServeAccessArgs;
use super::values::at_least_one;

/// Description of `allstop mcp` with this feature.
pub(super) const MCP_ABOUT: &str =
    "List, add, remove and test MCP servers; serve commands to other agents";

pub(super) const MCP_SERVE_HELP: &str = "\
An agent that has this server runs its commands with the tools `exec`, `background`, `stop`, `preview` and `receipt`. \
Nothing of a command survives a stop, and each stop returns a receipt with the evidence.

Configuration of a client, such as `.mcp.json`:
  {\"mcpServers\": {\"allstop\": {\"command\": \"allstop\", \"args\": [\"mcp\", \"serve\"]}}}

Commands run in the folder of the server. They inherit its environment without secrets; `env` in the section `[shell]` of \
the configuration names exceptions.

Stopping:
  The end of the input, SIGTERM or Ctrl-C stops all commands. A second signal uses force at once. After `kill -9` of the \
server, the keepers of its commands end them.

Exit codes:
  0 the client disconnected · 1 error · 2 usage error · 130 Ctrl-C · 143 SIGTERM · 129 SIGHUP

Examples:
  allstop mcp serve
  allstop mcp serve --http 127.0.0.1:8700
  allstop mcp serve --http 0.0.0.0:8700 --token-file tokens --tls-cert cert.pem --tls-key key.pem ";

#[derive(Debug, Clone, Args)]
pub(crate) struct McpServeArgs {
    /// Serve streamable HTTP at the path /mcp of this address; one that other machines can reach needs --token-file or
    /// --jwks [default: serve the parent process, on standard input and output]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) access: ServeAccessArgs,
    /// Maximum number of commands that run at the same time; further ones are refused
    #[arg(long, value_name = "N", default_value = "64", value_parser = at_least_one::<NonZeroUsize>, help_heading = "Limits")]
    pub(crate) max_commands: NonZeroUsize,
    /// Time that a stop waits before it uses force [default: 1s, which is less than the time that a client waits]
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        help_heading = "Limits"
    )]
    pub(crate) grace: Option<HumanDuration>,
}

impl McpServeArgs {
    /// True if a flag is set that only an HTTP server can respect.
    pub(crate) fn has_access_flags(&self) -> bool {
        let access = &self.access;
        access.authenticates() || access.tls_cert.is_some() || access.rate_limit.is_some()
    }
}
