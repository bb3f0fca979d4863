//! Flags of `allstop serve`.

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use allstop_a2a::IpNet;
use allstop_core::HumanDuration;
use clap::{Args, ValueEnum};

use super::serve_access::ServeAccessArgs;
use super::{ModelArgs, PermissionArgs, StoreArgs, deadline};

pub(super) const SERVE_HELP: &str = "\
Stopping:
  SIGTERM or Ctrl-C: /readyz answers 503, no message is accepted, every running task is stopped
  and ends with its receipt in the store. A client that waits gets that end. With --drain the tasks
  have that time to end by themselves first; a second signal cuts it short. The process never
  outlives both times by more than a second.

Exit codes:
  1 error · 2 wrong usage · 130 Ctrl-C · 143 SIGTERM · 129 SIGHUP

Examples:
  allstop serve --model openai::gpt-5-mini
  allstop serve --agent echo
  curl -s http://127.0.0.1:8080/.well-known/agent-card.json
  curl -s http://127.0.0.1:8080/message:send \\
    -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' \\
    -d '{\"message\":{\"messageId\":\"1\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"hello\"}]}}' ";

#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// Agent to serve
    #[arg(long, value_name = "NAME", default_value = "model")]
    pub(crate) agent: ServedAgent,
    /// Address of JSON-RPC, REST and gRPC; one that other machines reach needs --token-file or --jwks
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// File with `NAME SHA256` lines: the hash of each user's bearer token. It is read again when it changes
    #[arg(long, value_name = "PATH", help_heading = "Access")]
    pub(crate) token_file: Option<PathBuf>,
    /// Collector of OpenTelemetry traces over HTTP (`http://127.0.0.1:4318`). A trace continues that of the caller
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub(crate) otlp: Option<String>,
    #[command(flatten)]
    pub(crate) access: ServeAccessArgs,
    /// Network that webhooks may have beside public addresses, such as 10.1.0.0/16; repeatable
    #[arg(long, value_name = "CIDR", value_parser = network, help_heading = "Push notifications")]
    pub(crate) push_allow: Vec<IpNet>,
    /// File with a secret of 32 bytes or more that signs push notifications [default: no signature]
    #[arg(long, value_name = "PATH", help_heading = "Push notifications")]
    pub(crate) push_secret_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) permissions: PermissionArgs,
    /// Steps of one turn
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_steps: Option<NonZeroU32>,
    /// Tasks that run at the same time [default: no limit]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_tasks: Option<NonZeroUsize>,
    /// Tasks of one user that run at the same time [default: no limit]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_tasks_per_user: Option<NonZeroUsize>,
    /// Tasks that wait beyond a limit; without it they are refused
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) queue: Option<usize>,
    /// Longest time of a task's execution [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = deadline, help_heading = "Limits")]
    pub(crate) task_timeout: Option<HumanDuration>,
    /// Longest time between two events of a task [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = deadline, help_heading = "Limits")]
    pub(crate) inactivity: Option<HumanDuration>,
    /// Time that running tasks have to end by themselves when the server is told to end [default: they are stopped]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub(crate) drain: Option<HumanDuration>,
    /// Time that a stop waits before it uses force [default: 2s]
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        help_heading = "Limits"
    )]
    pub(crate) grace: Option<HumanDuration>,
}

/// A network, or one address.
fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse()
        .or_else(|_| address())
        .map_err(|_| "not a network such as 10.1.0.0/16 or fd00::/8".to_owned())
}

/// Agent that `serve` serves.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ServedAgent {
    /// The agent of the configuration: its model and its tools. A task is a turn, and its context is a session
    Model,
    /// Answers with the text of the message; needs no model
    Echo,
}
