//! `allstop doctor`: checks this machine and the configuration, and prints one line per check.
//!
//! A signal ends the command at once. Processes that the command has started then end, too: each has a keeper process,
//! which kills them when its owner is gone.

mod checks;
mod row;

use std::sync::Arc;

use allstop_runtime::Definitions;
use allstop_runtime::{Config, SystemOptions};
use allstop_terminal::OutputPriority;
use allstop_tools::PermissionAnswer;
use allstop_tools::permission::FixedAnswer;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::display::count_definitions;
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::json_document::DocumentSchema;
use crate::start::options::{HostOptions, choose_default, config_of, system};
use crate::start::project::TrustedProject;
use crate::start::{StartReporter, definitions, project};
use row::{CheckState, DoctorRow};

/// Results of all checks, as `--json` prints them.
#[derive(Debug, Serialize)]
struct DoctorReport<'a> {
    /// True if no check found a problem that prevents a run.
    ok: bool,
    checks: &'a [DoctorRow],
}

/// Runs the command.
///
/// # Cancel safety
/// Dropping the future kills the MCP servers under test.
pub(crate) async fn doctor(args: &DoctorArgs, host: &ProcessHost) -> Result<u8, CliError> {
    let (config, mut rows) = configuration(args, host);
    rows.extend(model(args, &config, host).await);
    rows.extend(checks::store(&args.store, config.store.path.clone(), host).await);
    rows.push(checks::containment(host).await);
    rows.extend(checks::mcp(config, args.model.config.as_deref(), host).await);
    rows.push(checks::sockets(host));
    rows.push(checks::terminal(host));
    let ok = rows.iter().all(|row| row.state != CheckState::Bad);
    let stdout = host.output.stdout();
    if args.json {
        let report = DoctorReport { ok, checks: &rows };
        DocumentSchema::Doctor.print(&report, stdout);
    } else {
        let style = host.terminal.style(stdout.is_terminal());
        // The last column stays free, because some terminals wrap the line as soon as the last column is written.
        let columns = stdout.columns().map_or(usize::MAX, |columns| columns - 1);
        stdout.lines(row::render(&rows, style, columns), OutputPriority::Required);
    }
    Ok(u8::from(!ok))
}

/// Loads the configuration, and returns it with rows about its files. If the resulting configuration is invalid,
/// returns the default configuration. If the project's file cannot be read, ignores that file.
fn configuration(args: &DoctorArgs, host: &ProcessHost) -> (Config, Vec<DoctorRow>) {
    let mut rows = Vec::new();
    let reporter = StartReporter::new(host);
    let project = match project::trusted(&args.model, &host.folder, &reporter) {
        Ok(project) => project,
        Err(problem) => {
            rows.push(DoctorRow::of_problem("project", &problem));
            TrustedProject::default()
        }
    };
    if let Some(file) = &project.file {
        let path = file.path.display();
        rows.push(DoctorRow::good("project", format!("{path} is trusted")));
    }
    if let Some(file) = &project.servers {
        let path = file.path.display();
        rows.push(DoctorRow::good("project", format!("{path} is trusted")));
    }
    rows.extend(definition_rows(&definitions::read(&project.definitions)));
    let config = match config_of(&args.model, &project) {
        Ok(config) => config,
        Err(problem) => {
            rows.push(DoctorRow::of_problem("configuration", &problem));
            return (Config::default(), rows);
        }
    };
    let user = args.model.config.clone().or_else(ProcessHost::config_file);
    let said = user.map_or("no file: defaults".to_owned(), |file| {
        file.display().to_string()
    });
    rows.push(DoctorRow::good("configuration", said));
    (config, rows)
}

/// Checks the model and its key.
async fn model(args: &DoctorArgs, config: &Config, host: &ProcessHost) -> Vec<DoctorRow> {
    let mut config = config.clone();
    if config.model.name.is_none() {
        let reporter = StartReporter::new(host);
        if let Err(problem) = choose_default(&mut config.model, "run", &reporter) {
            return vec![DoctorRow::of_problem("model", &problem)];
        }
    }
    let options = options(config, host);
    checks::model(&options, args.online).await
}

/// Rows about commands, skills and agents from files, if there are any.
fn definition_rows(definitions: &Definitions) -> Vec<DoctorRow> {
    let counts = count_definitions(definitions);
    let good = (!counts.is_empty()).then(|| DoctorRow::good("files", counts));
    let problems = definitions.problems.iter();
    let problems = problems
        .map(|problem| DoctorRow::warning("files", problem, "correct the file, or remove it"));
    good.into_iter().chain(problems).collect()
}

/// Options for the checks. The checks open neither a session nor the store of these options.
fn options(config: Config, host: &ProcessHost) -> SystemOptions {
    let prompter = Arc::new(FixedAnswer(PermissionAnswer::Unanswered));
    let store = allstop_runtime::StoreChoice::Memory;
    system(store, None, HostOptions::of(host), config, prompter)
}
