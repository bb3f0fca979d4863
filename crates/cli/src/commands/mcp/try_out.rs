//! `allstop mcp test NAME`: starts a server, lists its tools, ends the server, and verifies that no process of the
//! server still runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::counted::counted;
use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_runtime::{Config, StoreChoice, mcp_servers};
use allstop_scope::{GRACE_DEFAULT, Scope, StopRequest};
use allstop_terminal::{OutputPriority, Styled, Symbol, TextRole, duration, styled};
use allstop_tools::PermissionAnswer;
use allstop_tools::mcp::{McpServer, McpServers, McpState};
use allstop_tools::permission::FixedAnswer;

use super::unknown;
use crate::control::{Control, ControlEffect};
use crate::display::{RECEIPT_WIDTH_DEFAULT, render_receipt};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::ProcessHost;
use crate::start::options::{HostOptions, system};
use crate::supervise::Supervisor;

/// Result of the start of a server.
pub(crate) struct McpTrial {
    pub(crate) name: String,
    /// Names of the tools, or the reason why the server is not available.
    pub(crate) tools: Result<Vec<String>, String>,
    /// Time until the tools were listed.
    pub(crate) after: Duration,
}

/// Servers under test. Their processes belong to a separate scope, so one stop ends all of them.
pub(crate) struct McpTrials {
    servers: Arc<McpServers>,
    scope: Scope,
}

impl McpTrials {
    /// Checks the configuration of all servers, but does not start the servers.
    ///
    /// # Errors
    /// The problem of the first server with an unusable configuration.
    pub(crate) fn new(config: Config, host: &ProcessHost) -> Result<Self, CliError> {
        let given = HostOptions::of(host);
        let prompter = Arc::new(FixedAnswer(PermissionAnswer::Unanswered));
        let options = system(StoreChoice::Memory, None, given, config, prompter);
        let servers = Arc::new(mcp_servers(&options)?);
        let scope = options.root();
        Ok(Self { servers, scope })
    }

    /// Starts all servers. Each start takes at most the server's own time limit.
    ///
    /// # Cancel safety
    /// If the future is dropped, the servers keep starting until [`McpTrials::end`].
    pub(crate) async fn run(&self) -> Vec<McpTrial> {
        let started = Instant::now();
        // The start is refused only if the scope is already stopped. The caller then gets the receipt of that stop.
        let _refused = self.servers.start(&self.scope).await;
        let trial = |server: &Arc<McpServer>| McpTrial {
            name: server.name().to_string(),
            tools: match server.state() {
                McpState::Ready => Ok(server.tool_names()),
                McpState::Degraded { why, .. } => Err(why.to_string()),
                state => Err(state.to_string()),
            },
            after: started.elapsed(),
        };
        self.servers.all().iter().map(trial).collect()
    }

    /// Stops the servers, and returns the receipt of the stop. Takes at most the grace (the time for a gentle end) and
    /// one second.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel the stop.
    pub(crate) async fn end(&self, by: &'static str) -> Arc<Receipt> {
        let cause = Cause::new(CauseKind::User).detail(by);
        let stop = self.scope.stop(StopRequest::new(Extent::Process, cause));
        stop.receipt().await
    }
}

/// Runs the command.
pub(super) async fn try_out(
    mut config: Config,
    name: &str,
    host: &ProcessHost,
) -> Result<Exit, CliError> {
    let signals = host.signals()?;
    config.mcp.servers.retain(|server, _| server == name);
    if config.mcp.servers.is_empty() {
        return Err(unknown(name));
    }
    let mut supervisor = Supervisor::new(signals, Control::new(GRACE_DEFAULT));
    let trials = McpTrials::new(config, host)?;
    let stdout = host.output.stdout();
    let style = host.terminal.style(stdout.is_terminal());
    let mut code = 0;
    let tried = tokio::select! {
        biased;
        effect = supervisor.next() => {
            debug_assert!(effect != ControlEffect::Nothing, "the supervisor waits for an effect");
            code = supervisor.control.exit_code(supervisor.control.stop_reason());
            Vec::new()
        }
        tried = trials.run() => tried,
    };
    for McpTrial { tools, after, .. } in tried {
        let after = duration(after);
        let lines = match tools {
            Ok(tools) => {
                let sign = style.paint(TextRole::Good, style.symbol(Symbol::Good));
                let count = counted(tools.len() as u64, "tool", "tools");
                let mut lines = Styled::default();
                lines.push_line(&styled![
                    sign,
                    " ",
                    name,
                    " is ready after ",
                    after,
                    ": ",
                    count
                ]);
                for tool in &tools {
                    lines.push_line(&styled!["  ", name, "__", tool.as_str()]);
                }
                lines
            }
            Err(why) => {
                code = 1;
                let sign = style.paint(TextRole::Bad, style.symbol(Symbol::Bad));
                styled![
                    sign,
                    " ",
                    name,
                    " is not available after ",
                    after,
                    ": ",
                    why
                ]
            }
        };
        stdout.lines(lines, OutputPriority::Required);
    }
    let ending = Instant::now();
    let receipt = trials.end("mcp test").await;
    if receipt.quiet() {
        let after = duration(ending.elapsed());
        let said = format!("ended after {after}: no process and no connection is left; verified");
        stdout.sentences(Styled::text(&said), OutputPriority::Required);
    } else {
        code = code.max(1);
        let width = stdout.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT);
        stdout.lines(
            render_receipt(&receipt, style, width),
            OutputPriority::Required,
        );
    }
    Ok(Exit {
        code,
        output_wait: supervisor.control.output_wait(Instant::now()),
    })
}
