//! Flags of `allstop serve`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use allstop_a2a::IpNet;
use clap::Args;

use super::execution::ExecutionArgs;
use super::serve_access::ServeAccessArgs;

pub(super) const SERVE_HELP: &str = "\
Stopping:
  On SIGTERM or Ctrl-C, /readyz answers 503, the server accepts no messages, and every running task is stopped. Each \
receipt is stored, and waiting clients receive the end of their task. With --drain the tasks first have that time to end by \
themselves; a second signal stops them with the usual grace. The next signal uses force at once. The process exits at most \
one second after both times. Tasks that wait in the queue stay in the store, and the next start runs them.

Exit codes:
  1 error · 2 usage error · 130 Ctrl-C · 143 SIGTERM · 129 SIGHUP

Examples:
  allstop serve --model openai::gpt-5-mini
  allstop serve --agent echo
  curl -s http://127.0.0.1:8080/.well-known/agent-card.json
  curl -s http://127.0.0.1:8080/message:send \\
    -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' \\
    -d '{\"message\":{\"messageId\":\"1\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"hello\"}]}}' ";

/// Help of `--deny` for commands whose sessions have a client in place of a terminal.
pub(super) const CLIENT_DENY_HELP: &str = "Deny each tool call that needs a permission; calls that need none run \
[default: ask the client of the task]";

#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
    #[command(flatten)]
    pub(crate) execution: ExecutionArgs,
}

/// Flags of the addresses, the access and the webhooks.
#[derive(Debug, Clone, Args)]
pub(crate) struct EndpointArgs {
    /// Address for JSON-RPC, REST and gRPC; an address that other machines can reach needs --token-file or --jwks
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) access: ServeAccessArgs,
    /// Separate address for gRPC; --listen then serves only JSON-RPC and REST
    #[arg(long, value_name = "ADDRESS", help_heading = "Access", hide = !cfg!(feature = "grpc"))]
    pub(crate) grpc_listen: Option<SocketAddr>,
    /// Network that webhooks may use in addition to public addresses, such as 10.1.0.0/16; repeatable
    #[arg(long, value_name = "CIDR", value_parser = network, help_heading = "Push notifications")]
    pub(crate) push_allow: Vec<IpNet>,
    /// File with a secret of at least 32 bytes that signs push notifications [default: no signature]
    #[arg(long, value_name = "PATH", help_heading = "Push notifications")]
    pub(crate) push_secret_file: Option<PathBuf>,
}

/// Parses a network, or a single address.
fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse()
        .or_else(|_| address())
        .map_err(|_| "not a network such as 10.1.0.0/16 or fd00::/8".to_owned())
}
