//! `allstop tasks`: a client for the tasks of a server.

mod artifact_chunks;
pub(crate) mod client;
pub(crate) mod find;
mod view;
mod watch;
pub(crate) mod wire;

use std::time::SystemTime;

use allstop_core::Receipt;
use allstop_scope::GRACE_DEFAULT;
use allstop_terminal::{OutputPriority, Style};
use serde_json::json;

use crate::args::{SERVER_DEFAULT, TasksArgs, TasksCommand};
use crate::control::{Control, ControlEffect, UNREAD};
use crate::display::{RECEIPT_WIDTH_DEFAULT, render_receipt};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::{ProcessHost, variable};
use crate::json_document::{DocumentSchema, print_receipt};
use crate::shell_quote::quoted;
use crate::short_id::short;
use crate::stream_reader::StreamReader;
use crate::supervise::Supervisor;
use client::{RequestError, TaskServer};
use find::{FoundTask, find, newest};
use wire::{ServerTask, TaskEndInfo};

/// Exit code of `watch` if the task was stopped.
const CANCELLED: u8 = 130;

/// Runs the command. A signal ends the command, but not the task.
///
/// # Cancel safety
/// Dropping the future does not revoke a stop that the server has accepted.
pub(crate) async fn tasks(args: TasksArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    let token = variable("ALLSTOP_TOKEN").and_then(|token| token.into_string().ok());
    let token = token.as_deref().filter(|token| !token.is_empty());
    let server = TaskServer::new(&args.server, token)?;
    let mut supervisor = Supervisor::new(host.signals()?, Control::new(GRACE_DEFAULT));
    let watched = match &args.command {
        TasksCommand::Watch(task) => Some(task.id.clone()),
        _ => None,
    };
    let streams = matches!(&args.command, TasksCommand::Watch(task) if task.json);
    let mut reader = StreamReader::new(streams);
    let printer = TaskPrinter::new(host);
    let command = run(&args.command, &server, &printer);
    tokio::select! {
        biased;
        effect = supervisor.next() => {
            if let Some(id) = watched && matches!(effect, ControlEffect::Stop(_)) {
                let stop = command_on(&args.server, &format!("tasks stop {}", quoted(&id)));
                printer.note(&format!(
                    "stopped watching; the task continues · to stop it: {stop}"
                ));
            }
            let control = &supervisor.control;
            Ok(Exit::from(control.exit_code(control.stop_reason())))
        }
        () = reader.gone() => Ok(Exit::from(UNREAD)),
        done = command => done.map(Exit::from),
    }
}

/// A shell command on the tasks of this server.
fn command_on(server: &str, words: &str) -> String {
    if server == SERVER_DEFAULT {
        return format!("allstop {words}");
    }
    format!("allstop {words} --server {}", quoted(server))
}

/// Prints results to standard output, and prints notes to standard error.
struct TaskPrinter<'a> {
    host: &'a ProcessHost,
    style: Style,
    width: usize,
}

impl<'a> TaskPrinter<'a> {
    fn new(host: &'a ProcessHost) -> Self {
        let stdout = host.output.stdout();
        Self {
            host,
            style: host.terminal.style(stdout.is_terminal()),
            width: stdout.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT),
        }
    }

    fn lines(&self, lines: impl Into<allstop_terminal::Styled>) {
        let stdout = self.host.output.stdout();
        stdout.lines(lines, OutputPriority::Last);
    }

    fn json(&self, schema: DocumentSchema, keys: &impl serde::Serialize) {
        schema.print(keys, self.host.output.stdout());
    }

    fn note(&self, line: &str) {
        let stderr = self.host.output.stderr();
        stderr.lines(line.to_owned(), OutputPriority::Required);
    }

    fn receipt(&self, receipt: &Receipt) {
        self.lines(render_receipt(receipt, self.style, self.width));
    }
}

async fn run(
    command: &TasksCommand,
    server: &TaskServer,
    printer: &TaskPrinter<'_>,
) -> Result<u8, CliError> {
    match command {
        TasksCommand::List {
            context,
            state,
            limit,
            json,
        } => {
            let mut filter = Vec::new();
            filter.extend(context.as_deref().map(|id| ("contextId", id)));
            filter.extend(state.as_deref().map(|state| ("status", state)));
            let (tasks, has_more) = newest(server, &filter, limit.get()).await?;
            if *json {
                let tasks: Vec<_> = tasks.iter().map(|found| &found.json).collect();
                printer.json(DocumentSchema::Tasks, &json!({"tasks": tasks}));
                return Ok(0);
            }
            let now = SystemTime::now().into();
            printer.lines(view::list(&tasks, printer.style, now));
            if has_more {
                let more = limit.get() * 2;
                printer.note(&format!(
                    "the server has more tasks: --limit {more} lists more"
                ));
            }
            Ok(0)
        }
        TasksCommand::Show(args) => {
            let found = find(server, &args.id).await?;
            if args.json {
                printer.json(DocumentSchema::Task, &found.json);
            } else {
                printer.lines(view::show(&found.task, printer.style, printer.width));
            }
            Ok(0)
        }
        TasksCommand::Watch(args) => watch::watch(server, &args.id, args.json, printer).await,
        TasksCommand::Stop { task, reason } => {
            let found = find(server, &task.id).await?;
            stop(server, &found, reason.as_deref(), task.json, printer).await
        }
        TasksCommand::Preview(args) => {
            let found = find(server, &args.id).await?;
            let preview = server.preview(&found.task.id).await;
            let receipt = preview.map_err(|error| match error {
                RequestError::Refused { error, .. } => {
                    error.hint("only servers of `allstop serve` support previews")
                }
                RequestError::Connection(error) => error,
            })?;
            if args.json {
                print_receipt(&receipt, printer.host.output.stdout());
            } else if let Some(end) = end_without_work(&found.task, &receipt) {
                printer.lines(end);
            } else {
                printer.receipt(&receipt);
            }
            Ok(0)
        }
    }
}

/// Describes a stop that would end a task of which nothing runs now. `None` for any other preview.
fn end_without_work(task: &ServerTask, preview: &Receipt) -> Option<String> {
    let has_work = !preview.items().is_empty() || preview.outcome().is_some();
    if has_work || task.status.state.is_terminal() {
        return None;
    }
    let id = &task.id;
    Some(if task.status.state.is("submitted") {
        format!("Would cancel task {id} before its start. Nothing of it runs.")
    } else {
        format!("Would end task {id}. Nothing of it runs now.")
    })
}

async fn stop(
    server: &TaskServer,
    found: &FoundTask,
    reason: Option<&str>,
    as_json: bool,
    printer: &TaskPrinter<'_>,
) -> Result<u8, CliError> {
    let stopped = match server.stop(&found.task.id, reason).await {
        Ok(json) => FoundTask::of(json)?,
        Err(error) => {
            // The task may have ended since it was found. The server then refuses the stop, but this is no failure of
            // the command.
            let Ok(now) = server.task(&found.task.id).await else {
                // Return the error of the stop, which is more specific.
                return Err(error.into());
            };
            let now = FoundTask::of(now)?;
            if !now.task.status.state.is_terminal() {
                return Err(error.into());
            }
            let state = now.task.status.state.word();
            printer.note(&format!("nothing to stop: the task has ended ({state})"));
            now
        }
    };
    if stopped.task.id != found.task.id {
        return Err(CliError::failure(format!(
            "the server answered with task {}: it is unknown whether {} has stopped",
            stopped.task.id, found.task.id
        )));
    }
    let TaskEndInfo {
        receipt,
        left_work,
        cause,
        ..
    } = stopped.task.end();
    let receipt = left_work.or(receipt);
    let is_crash = cause.is_some_and(|cause| cause.detail.as_deref() == Some("crash"));
    let has_ended = stopped.task.status.state.is_terminal();
    let pending = stopped.task.pending_stop();
    if as_json {
        let keys = json!({"task": stopped.json, "receipt": receipt});
        printer.json(DocumentSchema::TaskStop, &keys);
    }
    match (receipt, pending) {
        (Some(receipt), _) => {
            if !as_json {
                printer.receipt(&receipt);
            }
            if !has_ended {
                printer.note("the task has not ended: it is unknown whether its work has stopped");
            }
            Ok(u8::from(!(receipt.quiet() && has_ended)))
        }
        (None, Some(pending)) => {
            let id = short(&stopped.task.id);
            let watch = command_on(server.address(), &format!("tasks watch {id}"));
            printer.note(&format!(
                "{pending}. A worker carries out the stop as soon as possible.\nto follow the task: {watch}"
            ));
            Ok(1)
        }
        (None, None) if !has_ended || stopped.task.status.state.is("canceled") => {
            printer.note("the server sent no receipt: it is unknown whether the work has stopped");
            Ok(1)
        }
        (None, None) if is_crash => {
            printer.note(
                "the process of the task was lost: it is unknown whether its work has stopped",
            );
            Ok(1)
        }
        (None, None) => Ok(0),
    }
}
