//! A command that the model waits for.

use std::fmt::Write as _;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_scope::process::{Member, OutputReader};
use allstop_scope::{Process, Scope, ScopeOptions, StopOrder};

use super::{ShellTool, exit_text, text};
use crate::background::{Handover, PIPE_BYTES, hand_over};
use crate::output::BoundedOutput;
use crate::tool::{ToolError, ToolInvocation};

/// How long descendants may take to end after the shell has: the rest of a pipeline is a few milliseconds behind, and
/// is no background work.
const SETTLE: Duration = Duration::from_millis(50);

/// How many left-over processes are named.
const NAMED_MAX: usize = 5;

impl ShellTool {
    pub(super) async fn foreground(
        &self,
        invocation: &ToolInvocation,
        command: &str,
        timeout: Option<Duration>,
    ) -> Result<String, ToolError> {
        // A scope of its own, so that the command's timeout stops the command and not its call.
        let scope = invocation.scope.child("command", ScopeOptions::default());
        let scope = scope.map_err(|refused| ToolError {
            message: refused.to_string(),
        })?;
        let (process, mut reader) = self.start(&scope, command)?;
        let mut output =
            BoundedOutput::new(self.config.output, Arc::clone(&self.config.output_folder));
        if let Some(limit) = timeout {
            let receipt = drain_within(limit, &scope, &mut reader, &mut output).await;
            if let Some(receipt) = receipt.map_err(|error| unreadable(&error))? {
                return Err(timed_out(limit, &receipt, &process, &output));
            }
        } else {
            drain(&mut reader, &mut output)
                .await
                .map_err(|error| unreadable(&error))?;
        }
        let exit = process.exited().await.map_err(|error| ToolError {
            message: text::chain(&error),
        })?;
        let left = left_over(&process).await;
        if let Some(cause) = scope.cause() {
            // What is left is the stop's, not the background's.
            return Err(stopped(&output, &cause));
        }
        let mut answer = output.text();
        if answer.is_empty() {
            answer.push_str("[no output]");
        }
        if !exit.is_success() {
            // Writing to a string cannot fail.
            let _ = write!(answer, "\n[{}]", exit_text(exit));
        }
        if !left.is_empty() {
            let work = Handover {
                call_id: invocation.call_id.clone(),
                name: text::name_of(command),
                attachment: self.config.attachment,
                process,
                reader,
                output,
            };
            let work = hand_over(&*self.host, work);
            let work = work.map_err(|refused| ToolError {
                message: format!("stopped: {}", refused.why),
            })?;
            answer += &left_over_text(&left, work.id.as_str());
        }
        scope.close();
        Ok(answer)
    }
}

/// Reads until the shell itself has ended.
async fn drain(reader: &mut OutputReader, output: &mut BoundedOutput) -> io::Result<()> {
    let mut buffer = vec![0; PIPE_BYTES];
    loop {
        match reader.read(&mut buffer).await? {
            0 => return Ok(()),
            len => output.push(buffer.get(..len).unwrap_or_default()),
        }
    }
}

/// The same, and stops the command when it takes too long; then the receipt says what became of it. Reads on while the
/// command is being stopped, so that what it prints about that is seen and it never hangs on a full pipe.
async fn drain_within(
    limit: Duration,
    scope: &Scope,
    reader: &mut OutputReader,
    output: &mut BoundedOutput,
) -> io::Result<Option<Arc<Receipt>>> {
    let mut draining = pin!(drain(reader, output));
    // Not a `select!` with the output first: output without end would use up the task's budget, and a timer without
    // budget never fires.
    if let Ok(drained) = tokio::time::timeout(limit, &mut draining).await {
        return drained.map(|()| None);
    }
    let cause =
        Cause::new(CauseKind::Deadline).detail(format!("timeout_s of {}", limit.as_secs_f64()));
    let stop = scope.stop(StopOrder::new(Extent::Call, cause));
    let mut drained = false;
    loop {
        tokio::select! {
            // The receipt first: output without end must not keep it. What is left of the output is read below.
            biased;
            receipt = stop.receipt() => {
                if receipt.quiet() && !drained {
                    draining.await?;
                }
                return Ok(Some(receipt));
            }
            end = &mut draining, if !drained => {
                end?;
                drained = true;
            }
        }
    }
}

async fn left_over(process: &Process) -> Vec<Member> {
    match tokio::time::timeout(SETTLE, process.handle().wait_empty()).await {
        // Empty, or nobody can tell any more: then it was stopped.
        Ok(_) => Vec::new(),
        Err(_elapsed) => process.members(),
    }
}

fn left_over_text(left: &[Member], id: &str) -> String {
    let (count, run) = match left.len() {
        1 => ("1 process".to_owned(), "runs"),
        n => (format!("{n} processes"), "run"),
    };
    let mut names: Vec<String> = left
        .iter()
        .take(NAMED_MAX)
        .map(|member| format!("`{}`", text::name_of(&member.command_line)))
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
    limit: Duration,
    receipt: &Receipt,
    process: &Process,
    output: &BoundedOutput,
) -> ToolError {
    let became = if receipt.quiet() {
        "it and all that it had started were stopped".to_owned()
    } else {
        format!(
            "{} of its processes could not be stopped and still run",
            process.members().len()
        )
    };
    let limit = limit.as_secs_f64();
    ToolError {
        message: format!(
            "{}\n[the command ran longer than {limit} s: {became}]",
            output.text()
        ),
    }
}

fn stopped(output: &BoundedOutput, why: &dyn std::fmt::Display) -> ToolError {
    let message = format!("{}\n[stopped: {why}]", output.text());
    ToolError { message }
}

fn unreadable(error: &io::Error) -> ToolError {
    ToolError {
        message: format!("the command's output could not be read: {error}"),
    }
}
