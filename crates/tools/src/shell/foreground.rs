//! Shell commands in the foreground: the model waits for the end of such a command.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::Receipt;
use allstop_process::{ExitInfo, TreeMember};
use allstop_scope::{Process, ScopeOptions};

use super::{ShellTool, hidden, runs_in_background};
use crate::background::{Handover, hand_over};
use crate::call_link::CallLink;
use crate::command::{CommandLimit, RunningCommand, command_name, exit_code, exit_text};
use crate::output::BoundedOutput;
use crate::tool::{ToolError, ToolInvocation};

/// Maximum number of leftover processes that an answer names.
const NAMED_MAX: usize = 5;

impl ShellTool {
    pub(super) async fn foreground(
        &self,
        invocation: &ToolInvocation,
        command: &str,
        timeout: Option<Duration>,
    ) -> Result<String, ToolError> {
        // The command runs in a child scope, so that the command's timeout stops the command but not the call.
        let scope = invocation.scope.child("command", ScopeOptions::default());
        let scope = scope.map_err(|refused| ToolError::new(refused.to_string()))?;
        let limit = timeout.and_then(CommandLimit::starting_now);
        let mut running = self.start(&scope, command).await?;
        let folder = Arc::clone(&self.config.output_folder);
        let mut output = BoundedOutput::new(self.config.output, folder);
        let link = &invocation.link;
        let handover = |running: RunningCommand, output: BoundedOutput| Handover {
            call_id: invocation.call_id.clone(),
            name: command_name(command),
            attachment: self.config.attachment,
            running,
            output,
        };
        let process = running.process.clone();
        let asked = tokio::select! {
            // The promotion to background work is polled first, because endless output must not delay the promotion.
            biased;
            () = promoted(invocation, &process) => true,
            read = running.read_to_exit(limit, &scope, |piece| take(piece, &mut output, link)) => {
                ended(read, limit, &process, &output)?;
                false
            }
        };
        if asked {
            match hand_over(&*self.host, handover(running, output)) {
                Ok(work) => {
                    scope.close();
                    return Ok(runs_in_background(&work));
                }
                // A stop came first, or the host accepts no more work: the call continues as before.
                Err(refused) => {
                    running = refused.running;
                    output = refused.output;
                    let take = |piece: &[u8]| take(piece, &mut output, link);
                    let read = running.read_to_exit(limit, &scope, take);
                    let read = read.await;
                    ended(read, limit, &process, &output)?;
                }
            }
        }
        let exit = running.exit().await.map_err(ToolError::new)?;
        let left = running.left_over().await;
        if let Some(cause) = scope.cause()
            && !running.ended_by_itself()
        {
            // A stop covers the leftover processes, so they do not become background work.
            return Err(stopped(&output, &cause));
        }
        let mut answer = output.text();
        if answer.is_empty() {
            answer.push_str("[no output]");
        }
        let keeper_lost = running.keeper_lost();
        if let Some(note) = keeper_lost
            && exit == ExitInfo::Unknown
        {
            // The note comes first, because people see the first line.
            scope.close();
            let why = format!("[{}; {note}]\n{answer}", exit_text(exit));
            return Err(ToolError::outcome_unknown(why));
        }
        if let Some(note) = keeper_lost {
            // Writing to a string cannot fail.
            let _ = write!(answer, "\n[{note}]");
        }
        if let Some(code) = exit_code(exit) {
            link.exited(code);
        }
        if !exit.is_success() {
            // Writing to a string cannot fail.
            let _ = write!(answer, "\n[{}]", exit_text(exit));
            if let Some(hint) = hidden::hint(&self.config.env_hidden, command, &answer) {
                let _ = write!(answer, "\n[{hint}]");
            }
        }
        if !left.is_empty() {
            let work = hand_over(&*self.host, handover(running, output));
            let work =
                work.map_err(|refused| ToolError::new(format!("stopped: {}", refused.why)))?;
            answer += &left_over_text(&left, work.id.as_str());
        }
        scope.close();
        Ok(answer)
    }
}

/// Appends output of the command to the answer, and sends the output to the observer of the call.
fn take(piece: &[u8], output: &mut BoundedOutput, link: &CallLink) {
    output.push(piece);
    link.output(piece);
}

/// Resolves when the call is asked to continue in the background while its command runs.
async fn promoted(invocation: &ToolInvocation, process: &Process) {
    invocation.link.promotion().await;
    if process.handle().status().borrow().exited.is_some() {
        // The command has exited, so the answer is ready and no promotion is needed.
        std::future::pending::<()>().await;
    }
}

/// Returns the errors that end a call without an answer: unreadable output, and a stop at the command's time limit.
fn ended(
    read: io::Result<Option<Arc<Receipt>>>,
    limit: Option<CommandLimit>,
    process: &Process,
    output: &BoundedOutput,
) -> Result<(), ToolError> {
    let receipt = read.map_err(|error| {
        ToolError::new(format!("the command's output could not be read: {error}"))
    })?;
    match (receipt, limit) {
        (Some(receipt), Some(limit)) => Err(timed_out(limit, &receipt, process, output)),
        _ => Ok(()),
    }
}

fn left_over_text(left: &[TreeMember], id: &str) -> String {
    let (count, run) = match left.len() {
        1 => ("1 process".to_owned(), "runs"),
        n => (format!("{n} processes"), "run"),
    };
    let mut names: Vec<String> = left
        .iter()
        .take(NAMED_MAX)
        .map(|member| format!("`{}`", command_name(&member.command_line)))
        .collect();
    if left.len() > NAMED_MAX {
        names.push("…".to_owned());
    }
    format!(
        "\n[{count} still {run} in the background as {id}: {}]",
        names.join(", ")
    )
}

fn timed_out(
    limit: CommandLimit,
    receipt: &Receipt,
    process: &Process,
    output: &BoundedOutput,
) -> ToolError {
    let became = if receipt.quiet() {
        "it and everything it started were stopped".to_owned()
    } else {
        format!(
            "{} of its processes could not be stopped and still run",
            process.handle().known_members().len()
        )
    };
    let limit = limit.time.as_secs_f64();
    ToolError::timed_out(format!(
        "{}\n[the command exceeded its limit of {limit} s: {became}]",
        output.text()
    ))
}

fn stopped(output: &BoundedOutput, why: &dyn std::fmt::Display) -> ToolError {
    let message = format!("{}\n[stopped: {why}]", output.text());
    ToolError::new(message)
}
