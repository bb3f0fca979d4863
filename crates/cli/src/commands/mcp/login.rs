//! `allstop mcp login NAME` and `allstop mcp logout NAME`: the login of a person at a server.

use std::sync::Arc;
use std::time::Instant;

use allstop_runtime::{Config, StoreChoice, mcp_login_options, mcp_servers};
use allstop_scope::GRACE_DEFAULT;
use allstop_terminal::{OutputPriority, Styled, Symbol, TextRole, styled};
use allstop_tools::PermissionAnswer;
use allstop_tools::mcp::{LoginOptions, McpLogin, McpLoginError, McpServer, forget_login};
use allstop_tools::permission::FixedAnswer;

use super::{print_note, unknown};
use crate::control::{Control, ControlEffect};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::ProcessHost;
use crate::start::options::{HostOptions, system};
use crate::supervise::Supervisor;

/// Runs `mcp login`.
///
/// # Cancel safety
/// Dropping the future ends the login.
pub(super) async fn log_in(
    mut config: Config,
    name: &str,
    scopes: &[String],
    host: &ProcessHost,
) -> Result<Exit, CliError> {
    let signals = host.signals()?;
    config.mcp.servers.retain(|server, _| server == name);
    let section = config.mcp.servers.get(name).ok_or_else(|| unknown(name))?;
    let login = mcp_login_options(&section.login, scopes, &ProcessHost::keys())?;
    let prompter = Arc::new(FixedAnswer(PermissionAnswer::Unanswered));
    let options = system(
        StoreChoice::Memory,
        None,
        HostOptions::of(host),
        config,
        prompter,
    );
    let servers = mcp_servers(&options)?;
    let [server] = servers.all() else {
        return Err(unknown(name));
    };
    let mut supervisor = Supervisor::new(signals, Control::new(GRACE_DEFAULT));
    let code = tokio::select! {
        biased;
        effect = supervisor.next() => {
            debug_assert!(effect != ControlEffect::Nothing, "the supervisor waits for an effect");
            supervisor.control.exit_code(supervisor.control.stop_reason())
        }
        finished = finish(server, login, host) => {
            finished.map_err(|error| failed(&error, name))?;
            0
        }
    };
    Ok(Exit {
        code,
        output_wait: supervisor.control.output_wait(Instant::now()),
    })
}

async fn finish(
    server: &McpServer,
    options: LoginOptions,
    host: &ProcessHost,
) -> Result<(), McpLoginError> {
    let login = McpLogin::begin(server, options).await?;
    let stdout = host.output.stdout();
    let mut lines = Styled::default();
    lines.push_line(&Styled::text(
        "Open this address in a browser on this machine:",
    ));
    lines.push_line(&Styled::text(login.address()));
    stdout.lines(lines, OutputPriority::Required);
    login.finish().await?;
    let style = host.terminal.style(stdout.is_terminal());
    let sign = style.paint(TextRole::Good, style.symbol(Symbol::Good));
    let name: &str = server.name();
    let line = styled![sign, " ", name, ": logged in"];
    stdout.lines(line, OutputPriority::Required);
    Ok(())
}

/// Runs `mcp logout`.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn log_out(name: &str, host: &ProcessHost) -> Result<Exit, CliError> {
    let said = if forget(name, None, host).await? {
        format!("{name}: the tokens are removed from this machine")
    } else {
        format!("{name}: there is no login")
    };
    print_note(host, &said);
    Ok(Exit::from(0))
}

/// Ends the login at the server with this name and URL, or at all servers with this name. Warns if the tokens are not
/// revoked. False if there was no login.
pub(super) async fn forget(
    name: &str,
    url: Option<&str>,
    host: &ProcessHost,
) -> Result<bool, CliError> {
    let Some(folder) = ProcessHost::login_folder() else {
        return Ok(false);
    };
    let forgotten = forget_login(&folder, name, url).await;
    let forgotten = forgotten.map_err(|error| failed(&error, name))?;
    if let Some(why) = forgotten
        .as_ref()
        .and_then(|login| login.not_revoked.as_ref())
    {
        host.note(&format!(
            "{name}: the tokens are not revoked, and may be valid until they expire: {why}"
        ));
    }
    Ok(forgotten.is_some())
}

fn failed(error: &McpLoginError, name: &str) -> CliError {
    CliError::failure(format!("MCP server `{name}`: {error}"))
}
