//! Flags of `allstop serve`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use allstop_a2a::IpNet;
use clap::Args;

use super::execution::ExecutionArgs;
use super::serve_access::ServeAccessArgs;

pub(super) const SERVE_HELP: &str = "\
Stopping:
  SIGTERM or Ctrl-C: /readyz answers 503, no message is accepted, every running task is stopped and ends with its \
receipt in the store. A client that waits gets that end. With --drain the tasks have that time to end by themselves \
first; a second signal cuts it short. The process never outlives both times by more than a second.

Exit codes:
  1 error · 2 usage error · 130 Ctrl-C · 143 SIGTERM · 129 SIGHUP

Examples:
  allstop serve --model openai::gpt-5-mini
  allstop serve --agent echo
  curl -s http://127.0.0.1:8080/.well-known/agent-card.json
  curl -s http://127.0.0.1:8080/message:send \\
    -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' \\
    -d '{\"message\":{\"messageId\":\"1\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"hello\"}]}}' ";

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
    /// Address of JSON-RPC, REST and gRPC; one that other machines reach needs --token-file or --jwks
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// File with `NAME SHA256` lines: the hash of each user's bearer token. It is read again when it changes
    #[arg(long, value_name = "PATH", help_heading = "Access")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) access: ServeAccessArgs,
    /// Network that webhooks may have beside public addresses, such as 10.1.0.0/16; repeatable
    #[arg(long, value_name = "CIDR", value_parser = network, help_heading = "Push notifications")]
    pub(crate) push_allow: Vec<IpNet>,
    /// File with a secret of 32 bytes or more that signs push notifications [default: no signature]
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
