//! The checks of `allstop doctor`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::counted::counted;
use allstop_core::{Cause, CauseKind, Extent, Message, error_chain};
use allstop_log::StoreMaintenance;
use allstop_model::ModelRequest;
use allstop_process::ProcessSpec;
use allstop_runtime::{Config, StoreChoice, SystemOptions, check_requests, open_model, open_store};
use allstop_scope::{Scope, StopRequest};
use allstop_terminal::duration;
use allstop_tools::RunningCommand;
use futures::StreamExt as _;
use rustix::fs::statvfs;
use tokio::time::timeout;

use super::row::DoctorRow;
use crate::args::StoreArgs;
use crate::commands::mcp::McpTrials;
use crate::commands::store::{check_progress, store_problem};
use crate::error::CliError;
use crate::host::{ProcessHost, variable};
use crate::resources;
use crate::shell_command::SameFlags;
use crate::shell_quote::quoted;
use allstop_core::elapsed::milliseconds;

/// Minimum free space for a long session, in bytes.
const SPACE_MIN: u64 = 100 * 1024 * 1024;
/// Maximum wait for the first event of the answer to the test request. A server that loads its model at the first
/// request can need this time.
const ONLINE_MAX: Duration = Duration::from_mins(1);
/// Maximum tokens of the answer to the test request. Some servers reject a lower limit.
const ONLINE_TOKENS_MAX: u64 = 16;
/// Command that leaves a process in a separate Unix session, like a server in the background.
const LEAVES_PROCESS: &str = "setsid sleep 60 >/dev/null 2>&1 </dev/null &";

/// Checks the model, its API key and the settings of its requests. If `online` is set and the settings are valid, also
/// sends a test request to the model's server.
pub(super) async fn model(options: &SystemOptions, online: bool) -> Vec<DoctorRow> {
    let model = match open_model(options) {
        Ok(model) => model,
        Err(error) => return vec![DoctorRow::of_problem("model", &error.into())],
    };
    let mut rows = vec![DoctorRow::good("model", model.name())];
    if let Err(error) = check_requests(&options.config, &*model) {
        rows.push(DoctorRow::of_problem("requests", &error.into()));
        return rows;
    }
    if !online {
        return rows;
    }
    let message = Message::user("Answer with the word: ok");
    let request = ModelRequest::new(vec![Arc::new(message)]).max_output_tokens(ONLINE_TOKENS_MAX);
    let started = Instant::now();
    let first = async {
        let mut stream = model.stream(request).await?;
        stream.events.next().await.transpose()
    };
    rows.push(match timeout(ONLINE_MAX, first).await {
        Ok(Ok(_event)) => {
            let after = duration(started.elapsed());
            DoctorRow::good("model server", format!("answers after {after}"))
        }
        Ok(Err(error)) => {
            let hint = error
                .hint
                .as_deref()
                .unwrap_or("check the URL, the key and the network");
            DoctorRow::bad("model server", error.to_string(), hint)
        }
        Err(_elapsed) => DoctorRow::bad(
            "model server",
            format!("no answer within {}", duration(ONLINE_MAX)),
            "check the URL and the network",
        ),
    });
    rows
}

/// Checks that the store opens, is writable, is not damaged and has enough free space.
pub(super) async fn store(
    args: &StoreArgs,
    configured: Option<PathBuf>,
    host: &ProcessHost,
) -> Vec<DoctorRow> {
    const NAME: &str = "store";
    let choice = match ProcessHost::store(args, configured) {
        Ok(choice) => choice,
        Err(problem) => return vec![DoctorRow::of_problem(NAME, &problem)],
    };
    let StoreChoice::Sqlite(path) = &choice else {
        return Vec::new();
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let shown = path.display();
    let mut rows = Vec::new();
    if let Err(error) = write_probe(folder) {
        let message = format!(
            "the folder `{}` cannot be written: {error}",
            folder.display()
        );
        let hint = "choose another file: --store FILE";
        rows.push(DoctorRow::bad(NAME, message, hint));
    } else if path.exists() {
        let scope = Scope::root(NAME, host.scopes());
        rows.push(match open_store(&choice, &scope).await {
            Ok(store) => {
                store.log().close().await;
                damage(path, args, host).await
            }
            Err(error) => DoctorRow::of_problem(NAME, &CliError::from(error)),
        });
    } else {
        rows.push(DoctorRow::good(
            NAME,
            format!("the first run creates {shown}"),
        ));
    }
    let free = statvfs(folder).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    if let Ok(free) = free
        && free < SPACE_MIN
    {
        let message = format!("only {} MiB of disk space left for the store", free >> 20);
        rows.push(DoctorRow::warning(
            "disk",
            message,
            "free disk space, or choose another file: --store FILE",
        ));
    }
    rows
}

/// Reads the whole store.
async fn damage(path: &Path, args: &StoreArgs, host: &ProcessHost) -> DoctorRow {
    const NAME: &str = "store";
    let checked = match StoreMaintenance::of(path) {
        Ok(store) => store.check(check_progress(host)).await,
        Err(error) => Err(error),
    };
    let report = match checked {
        Ok(report) => report,
        Err(error) => return DoctorRow::of_problem(NAME, &store_problem(&error)),
    };
    let shown = path.display();
    let Some(first) = report.problems.first() else {
        let read = report.to_string();
        return DoctorRow::good(NAME, format!("{shown} has {read}, no damage"));
    };
    let more = match report.problems.len() - 1 {
        0 => String::new(),
        more => format!(
            " (and {})",
            counted(more as u64, "more problem", "more problems")
        ),
    };
    let flags = SameFlags::of_store(args);
    DoctorRow::bad(
        NAME,
        format!("{shown} is damaged: {first}{more}"),
        &format!(
            "see all problems: {}; {} keeps the damaged files and continues with the readable records",
            flags.command("store check"),
            flags.command("store repair")
        ),
    )
}

/// Creates and removes a file, because only this test shows reliably if a folder is writable.
fn write_probe(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!(".allstop-doctor-{}", std::process::id()));
    std::fs::File::create_new(&path)?;
    std::fs::remove_file(path)
}

/// Stops a command that has left a process in a separate Unix session. The receipt of the stop must prove that this
/// process has ended.
pub(super) async fn containment(host: &ProcessHost) -> DoctorRow {
    const NAME: &str = "stopping";
    let bad = |message: String, hint: &str| DoctorRow::bad(NAME, message, hint);
    if let Err(problem) = resources::check_proc() {
        return DoctorRow::of_problem(NAME, &problem);
    }
    let scopes = host.scopes();
    let spec = ProcessSpec::new("/bin/sh", format!("doctor-{}", std::process::id()))
        .args(["-c", LEAVES_PROCESS])
        .cwd("/")
        .env_hidden(ProcessHost::secret_variables(&[]))
        .containment(scopes.containment.clone());
    let scope = Scope::root("doctor", scopes);
    let mut command = match RunningCommand::start(&scope, "sh", spec).await {
        Ok(command) => command,
        Err(error) => {
            return bad(
                format!("cannot start a command: {}", error_chain(&error)),
                "check that /bin/sh exists, and the limit of processes: ulimit -u",
            );
        }
    };
    if let Err(error) = command.read_to_exit(None, &scope, |_| {}).await {
        return bad(
            format!("a command's output cannot be read: {error}"),
            "check the limit of open files: ulimit -n",
        );
    }
    let began = Instant::now();
    let cause = Cause::new(CauseKind::User).detail("doctor");
    let stop = scope.stop(StopRequest::new(Extent::Process, cause));
    let receipt = stop.receipt().await;
    let after = milliseconds(began.elapsed().as_secs_f64() * 1000.0);
    let json = serde_json::to_value(&*receipt).unwrap_or_default();
    let proof = json["items"][0]["verified"].as_str().unwrap_or("nothing");
    match (receipt.quiet(), proof) {
        (true, "process_tree_empty") => DoctorRow::good(
            NAME,
            format!("stopped a process tree in {after}, verified by its keeper"),
        ),
        (true, proof) => DoctorRow::warning(
            NAME,
            format!("stopped a process tree, verified only by {proof}"),
            "use Linux for full proof: on this system a stop misses commands that leave their process group and clear their environment",
        ),
        (false, _) => bad(
            "cannot stop a process tree".to_owned(),
            "find `sleep 60` with `ps -ef`, and please report this",
        ),
    }
}

/// Starts the configured MCP servers, lists their tools, and ends the servers.
pub(super) async fn mcp(config: Config, file: Option<&Path>, host: &ProcessHost) -> Vec<DoctorRow> {
    const NAME: &str = "MCP server";
    if config.mcp.servers.is_empty() {
        return Vec::new();
    }
    let trials = match McpTrials::new(config, host) {
        Ok(trials) => trials,
        Err(problem) => return vec![DoctorRow::of_problem(NAME, &problem)],
    };
    let flag = file.map_or(String::new(), |file| {
        format!(" --config {}", quoted(&file.to_string_lossy()))
    });
    let tried = trials.run().await;
    let receipt = trials.end("doctor").await;
    let row = |trial: crate::commands::mcp::McpTrial| match trial.tools {
        Ok(tools) => {
            let tools = counted(tools.len() as u64, "tool", "tools");
            DoctorRow::good(NAME, format!("{}: {tools}", trial.name))
        }
        // This is only a warning, because a run continues without the MCP server.
        Err(why) => DoctorRow::warning(
            NAME,
            format!("{} is not available: {why}", trial.name),
            &format!("see why: allstop mcp test {}{flag}", trial.name),
        ),
    };
    let mut rows: Vec<_> = tried.into_iter().map(row).collect();
    if !receipt.quiet() {
        rows.push(DoctorRow::bad(
            NAME,
            "cannot stop all servers",
            "find them with `ps -ef`, and end them with `kill`",
        ));
    }
    rows
}

/// Checks the folder of the sockets through which other terminals stop sessions. Creates the folder if it does not
/// exist.
pub(super) fn sockets(host: &ProcessHost) -> DoctorRow {
    match host.sockets.make() {
        Ok(folder) => DoctorRow::good("sockets", format!("{} is private", folder.display())),
        // This is only a warning, because a run continues without a socket.
        Err(error) => DoctorRow::warning(
            "sockets",
            error.to_string(),
            "set XDG_RUNTIME_DIR to a folder that only you can use: without it `allstop ps` and `allstop stop` find no sessions",
        ),
    }
}

/// Checks the terminal.
pub(super) fn terminal(host: &ProcessHost) -> DoctorRow {
    const NAME: &str = "terminal";
    let streams = [
        std::io::stdin().is_terminal(),
        std::io::stderr().is_terminal(),
    ];
    if !streams.contains(&true) {
        let message = "none: tool calls that need a question are denied";
        return DoctorRow::warning(
            NAME,
            message,
            "run it in a terminal, pass --yes, or allow calls by rules in the configuration",
        );
    }
    let term = variable("TERM").unwrap_or_default();
    let term = term.to_string_lossy();
    if !host.terminal.has_cursor() {
        let message = format!("TERM is \"{term}\": live output is off");
        return DoctorRow::warning(
            NAME,
            message,
            "set TERM to the name of the terminal, such as xterm-256color",
        );
    }
    if !host.terminal.style(true).is_unicode() {
        let message = "the locale is not UTF-8: symbols are ASCII";
        return DoctorRow::warning(NAME, message, "set LANG=C.UTF-8, or another UTF-8 locale");
    }
    DoctorRow::good(NAME, &*term)
}
