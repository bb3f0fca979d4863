//! Flags of `allstop copilot`.

use allstop_core::HumanDuration;
use clap::Args;

use super::grace::GraceArgs;
use super::{ModelArgs, PermissionArgs, StoreArgs, TraceArgs};

pub(super) const COPILOT_HELP: &str = "\
A program that uses a GitHub Copilot SDK runs on Allstop when the SDK starts this binary:

  COPILOT_CLI_PATH=$(command -v allstop) python my_program.py

The SDK passes --headless or --server, and the flags below it. Flags for GitHub accounts have no effect. The program's session sets \
the model and the provider; the defaults are the flags of this command and the configuration.

Exit codes:
  0 the client disconnected or requested a shutdown · 1 error · 2 usage error · 130 Ctrl-C · 143 SIGTERM · 129 SIGHUP

Examples:
  allstop copilot --stdio
  COPILOT_CONNECTION_TOKEN=secret allstop copilot --port 8765 ";

#[derive(Debug, Args)]
pub(crate) struct CopilotArgs {
    /// Serve the parent process, on standard input and output
    #[arg(long, conflicts_with = "port")]
    pub(crate) stdio: bool,
    /// Port on 127.0.0.1 if --stdio is absent; 0 picks a free port. The environment variable `COPILOT_CONNECTION_TOKEN`
    /// holds the token for clients
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Model of the configured provider that replaces the model of a session, if the provider limits the rate of its
    /// requests and the program agrees
    #[arg(
        long,
        value_name = "MODEL",
        env = "ALLSTOP_AUTO_MODEL",
        help_heading = "Model"
    )]
    pub(crate) auto_model: Option<String>,
    #[command(flatten)]
    pub(crate) permissions: PermissionArgs,
    #[command(flatten)]
    pub(crate) grace: GraceArgs,
    /// Time that a turn keeps running after its last client disconnects
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1m",
        help_heading = "Limits"
    )]
    pub(crate) unattended: HumanDuration,
    #[command(flatten)]
    pub(crate) traces: TraceArgs,
    #[command(flatten)]
    pub(crate) sdk: SdkArgs,
}

/// Flags that the SDKs pass. Only `--headless` has an effect on this server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Passed by the SDKs")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one for each flag of the SDKs"
)]
pub(crate) struct SdkArgs {
    /// No terminal; a server on a port ends with the program that has started it
    #[arg(long, visible_alias = "server")]
    pub(crate) headless: bool,
    /// No update
    #[arg(long)]
    pub(crate) no_auto_update: bool,
    /// Log level; the environment variable `ALLSTOP_LOG` sets it instead
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Environment variable with a GitHub token
    #[arg(long, value_name = "NAME")]
    pub(crate) auth_token_env: Option<String>,
    /// No login at GitHub
    #[arg(long)]
    pub(crate) no_auto_login: bool,
    /// Seconds after which an idle session is closed; Allstop closes no idle session
    #[arg(long, value_name = "SECONDS")]
    pub(crate) session_idle_timeout: Option<u64>,
    /// Remote control by GitHub; has no effect
    #[arg(long)]
    pub(crate) remote: bool,
}
