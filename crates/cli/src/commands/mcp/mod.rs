//! `allstop mcp`: the MCP servers of the configuration.

mod login;
mod try_out;

use std::path::PathBuf;

use allstop_model::provider::without_secrets;
use allstop_runtime::Config;
use allstop_runtime::config::McpServerSection;
use allstop_terminal::{OutputPriority, Styled, TextRole, TextTable};
use allstop_tools::mcp::{McpServerConfig, McpTransport};
use toml_edit::{Array, DocumentMut, Item, Table, value};

use crate::args::{McpAction, McpAddArgs, McpArgs};
use crate::config_edit::edit;
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::ProcessHost;
#[cfg(feature = "mcp-server")]
use crate::mcp_server;
use crate::shell_quote::quoted;
use crate::start::project::{self, TrustedProject};
pub(crate) use try_out::{McpTrial, McpTrials};

/// Runs the command.
///
/// # Cancel safety
/// If the future is dropped during the test of a server, the server is killed, and no receipt reports its end.
pub(crate) async fn mcp(args: McpArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    let args = &args;
    match &args.action {
        McpAction::List => list(args, host),
        McpAction::Add(added) => add(args, added, host),
        McpAction::Remove { name } => remove(args, name, host).await,
        #[cfg(feature = "mcp-server")]
        McpAction::Serve(serve) => {
            // Notes about servers do not concern this command, which starts none.
            let project = project::trusted_silently(&host.folder);
            let config = config_of(args, &project)?;
            mcp_server::serve(serve.clone(), &config, host).await
        }
        McpAction::Login { name, scope } => {
            let config = config(args, host)?;
            login::log_in(config, name, scope, host).await
        }
        McpAction::Logout { name } => login::log_out(name, host).await,
        McpAction::Test { name } => {
            let config = config(args, host)?;
            try_out::try_out(config, name, host).await
        }
    }
}

/// The effective configuration in this folder. Prints a note about each file of the project that is ignored.
fn config(args: &McpArgs, host: &ProcessHost) -> Result<Config, CliError> {
    let project = project::trusted_with_notes(&host.folder, |line| host.note(line));
    config_of(args, &project)
}

fn config_of(args: &McpArgs, project: &TrustedProject) -> Result<Config, CliError> {
    let user = args.config.clone().or_else(ProcessHost::config_file);
    Ok(project.config(user.as_deref())?)
}

/// Path of the user's configuration file. [`edit`] creates the file if it does not exist.
fn user_file(args: &McpArgs) -> Result<PathBuf, CliError> {
    let path = args.config.clone().or_else(ProcessHost::config_path);
    path.ok_or_else(|| CliError::usage("HOME is not set").hint("name a file: --config FILE"))
}

fn list(args: &McpArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    let servers = config(args, host)?.mcp.servers;
    if servers.is_empty() {
        host.note("no MCP server is configured; `allstop mcp add --help` has examples");
        return Ok(Exit::from(0));
    }
    let stdout = host.output.stdout();
    let style = host.terminal.style(stdout.is_terminal());
    let mut table = TextTable::default();
    table.row(["NAME", "COMMAND OR URL"].map(|title| style.paint(TextRole::Dim, title)));
    for (name, server) in &servers {
        table.row([name.as_str().into(), address(server).as_str().into()]);
    }
    stdout.lines(table.render(), OutputPriority::Last);
    Ok(Exit::from(0))
}

/// Command or URL of a server, without values that may be secret.
fn address(server: &McpServerSection) -> String {
    match (&server.command, &server.url) {
        (Some(command), _) => {
            let words = std::iter::once(command).chain(&server.args);
            let words: Vec<_> = words.map(|word| quoted(word)).collect();
            words.join(" ")
        }
        (None, url) => without_secrets(url.as_deref().unwrap_or_default()),
    }
}

fn add(args: &McpArgs, added: &McpAddArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    let transport = McpTransport::Http {
        url: "".into(),
        headers: Vec::new(),
    };
    McpServerConfig::new(&added.name, transport)
        .map_err(|error| CliError::usage(error.to_string()))?;
    let path = user_file(args)?;
    edit(&path, |document| {
        let servers = servers(document)?;
        if servers.contains_key(&added.name) {
            let message = format!("MCP server `{}` already exists", added.name);
            let remove = command(args, "remove", &added.name);
            let hint = format!("remove it first: {remove}");
            return Err(CliError::usage(message).hint(hint));
        }
        servers.insert(&added.name, Item::Table(section(added)));
        Ok(())
    })?;
    let test = command(args, "test", &added.name);
    let said = format!("added to {}; to try it: {test}", path.display());
    print_note(host, &said);
    Ok(Exit::from(0))
}

/// Command line of an action on a server in the same configuration file.
fn command(args: &McpArgs, action: &str, name: &str) -> String {
    let flag = args.config.as_ref().map_or(String::new(), |file| {
        format!(" --config {}", quoted(&file.to_string_lossy()))
    });
    format!("allstop mcp {action} {}{flag}", quoted(name))
}

async fn remove(args: &McpArgs, name: &str, host: &ProcessHost) -> Result<Exit, CliError> {
    let path = user_file(args)?;
    let mut url = None;
    edit(&path, |document| {
        let removed = servers(document)?.remove(name);
        let removed = removed.ok_or_else(|| unknown(name))?;
        url = removed
            .get("url")
            .and_then(|url| Some(url.as_str()?.to_owned()));
        Ok(())
    })?;
    if let Some(url) = url {
        login::forget(name, Some(&url), host).await?;
    }
    print_note(host, &format!("removed from {}", path.display()));
    Ok(Exit::from(0))
}

fn print_note(host: &ProcessHost, said: &str) {
    let stdout = host.output.stdout();
    stdout.sentences(Styled::text(said), OutputPriority::Last);
}

fn unknown(name: &str) -> CliError {
    CliError::not_found(format!("MCP server `{name}` not found"))
        .hint("`allstop mcp list` lists all servers; those of a project are in its .allstop.toml or .mcp.json")
}

/// Returns the table of the servers, and creates it if it does not exist.
fn servers(document: &mut DocumentMut) -> Result<&mut dyn toml_edit::TableLike, CliError> {
    let implicit = || {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    };
    let mcp = document.entry("mcp").or_insert_with(implicit);
    let mcp = mcp.as_table_like_mut();
    let servers = mcp.and_then(|mcp| {
        let servers = mcp.entry("servers").or_insert_with(implicit);
        servers.as_table_like_mut()
    });
    servers.ok_or_else(|| {
        CliError::usage("`mcp.servers` of the configuration is not a table")
            .hint("write a section `[mcp.servers.NAME]` for each server")
    })
}

fn section(added: &McpAddArgs) -> Table {
    let mut section = Table::new();
    let list = |words: &[String]| value(words.iter().collect::<Array>());
    if let Some((program, words)) = added.command.split_first() {
        section["command"] = value(program);
        if !words.is_empty() {
            section["args"] = list(words);
        }
    }
    if !added.env.is_empty() {
        let pairs = added.env.iter();
        let pairs: toml_edit::InlineTable = pairs.cloned().collect();
        section["env"] = value(pairs);
    }
    if !added.inherit_env.is_empty() {
        section["inherit_env"] = list(&added.inherit_env);
    }
    if let Some(url) = &added.url {
        section["url"] = value(url);
    }
    if let Some(variable) = &added.bearer_token_env {
        section["bearer_token_env"] = value(variable);
    }
    section
}
