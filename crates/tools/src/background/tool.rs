//! The tool `background`, with which the model reads, awaits and stops background work.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, CauseKind, Effect};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::host::BackgroundHost;
use super::work::BackgroundWork;
use crate::names;
use crate::schema::schema_of;
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};

/// Default time limit of `wait`. Most builds and tests end within this time. If the work takes longer, the model should
/// look at the output.
const WAIT_DEFAULT: Duration = Duration::from_mins(2);

/// Maximum size, in bytes, of the output in one answer, if the model asks for output from an offset. The start and the
/// end, which an answer without an offset shows, are together about as long.
const OUTPUT_BYTES_MAX: usize = 32 * 1024;

/// Arguments of `background`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BackgroundArguments {
    /// `list` names all background work, `output` shows the output of one work, `wait` waits for its end, `stop` ends
    /// it.
    action: BackgroundAction,
    /// Id of the work: `bg_1`.
    id: Option<String>,
    /// For `output`: the first byte to show. Without it, the start and the end are shown.
    offset: Option<u64>,
    /// For `wait`: the maximum time in seconds; 120 by default.
    #[schemars(range(min = 0))]
    timeout_s: Option<f64>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum BackgroundAction {
    List,
    Output,
    Wait,
    Stop,
}

/// Shows and stops the background work of its session.
#[derive(Debug)]
pub struct BackgroundTool {
    spec: ToolSpec,
    host: Arc<dyn BackgroundHost>,
}

impl BackgroundTool {
    /// Creates the tool for the background work of a host.
    pub fn new(host: Arc<dyn BackgroundHost>) -> Self {
        let spec = ToolSpec {
            name: names::BACKGROUND.into(),
            description: "Lists background work (commands and agents), shows its output, waits for its end, or stops it."
                .into(),
            input_schema: schema_of::<BackgroundArguments>(),
            // The tool affects only work that this session started, and a second stop of the same work changes nothing.
            effect: Effect::Idempotent,
            timeout: None,
            parallel: true,
            name_in_rules: None,
            mcp: None,
        };
        Self { spec, host }
    }

    async fn run(
        &self,
        arguments: BackgroundArguments,
        invocation: &ToolInvocation,
    ) -> Result<String, ToolError> {
        let works = self.host.works();
        if let BackgroundAction::List = arguments.action {
            return Ok(list(&works));
        }
        let id = arguments.id.as_deref().unwrap_or_default();
        let work = works.iter().find(|work| work.id.as_str() == id);
        let work = work.ok_or_else(|| {
            ToolError::new(format!(
                "unknown background work {id:?}; known work:\n{}",
                list(&works)
            ))
        })?;
        match (arguments.action, arguments.offset) {
            (BackgroundAction::Output, Some(offset)) => Ok(output_from(work, offset)),
            (BackgroundAction::Wait, _) => wait(work, arguments.timeout_s, invocation).await,
            (BackgroundAction::Stop, _) => stop(work).await,
            _ => Ok(output_and_end(work)),
        }
    }
}

fn output_and_end(work: &BackgroundWork) -> String {
    let mut text = format!("{}\n[{}]", work.output(), state(work));
    if let Some(answer) = work.end().and_then(|end| end.answer) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{answer}");
    }
    text
}

fn output_from(work: &BackgroundWork, offset: u64) -> String {
    let slice = work.output_from(offset, OUTPUT_BYTES_MAX);
    let lost = match slice.missing_bytes {
        0 => String::new(),
        lost => format!("[… {lost} bytes from offset {offset} on are lost …]\n"),
    };
    format!(
        "{lost}{}\n[{}; the next offset is {} of {} bytes so far]",
        slice.text,
        state(work),
        slice.next_offset,
        slice.total_bytes
    )
}

async fn wait(
    work: &BackgroundWork,
    timeout_s: Option<f64>,
    invocation: &ToolInvocation,
) -> Result<String, ToolError> {
    let limit = timeout_s.map_or(Ok(WAIT_DEFAULT), Duration::try_from_secs_f64);
    let limit = limit.map_err(|error| {
        ToolError::new(format!(
            "wrong arguments for `background`: `timeout_s`: {error}"
        ))
    })?;
    tokio::select! {
        biased;
        cause = invocation.scope.stopped_at("background wait") => Err(ToolError::new(format!("{}: {}; the wait was stopped: {cause}", work.id, state(work)))),
        _ended = work.ended() => Ok(output_and_end(work)),
        () = tokio::time::sleep(limit) => Ok(format!(
            "{}\n[after {} s: {}]",
            work.output(),
            limit.as_secs_f64(),
            state(work)
        )),
    }
}

async fn stop(work: &BackgroundWork) -> Result<String, ToolError> {
    if !work.is_running() {
        return Ok(format!("{} is not running: {}", work.id, state(work)));
    }
    let receipt = work
        .stop(
            Cause::new(CauseKind::User)
                .detail("background stop")
                .by("model"),
        )
        .await;
    if receipt.quiet() {
        return Ok(format!(
            "{} was stopped; nothing of it runs any more",
            work.id
        ));
    }
    let left = work
        .process()
        .map(|process| process.handle().known_members().len());
    let left = left.map_or_else(String::new, |left| match left {
        1 => ": 1 process still runs".to_owned(),
        left => format!(": {left} processes still run"),
    });
    Err(ToolError::new(format!(
        "{} could not be stopped{left}",
        work.id
    )))
}

fn list(works: &[Arc<BackgroundWork>]) -> String {
    let mut text = String::new();
    for work in works {
        let place = work.output_place().map(|place| format!(", {place}"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}: `{}`, {}{}",
            work.id,
            work.name,
            state(work),
            place.unwrap_or_default()
        );
    }
    if text.is_empty() {
        "[no background work]".to_owned()
    } else {
        text
    }
}

fn state(work: &BackgroundWork) -> String {
    if work.is_detached() {
        return "detached".to_owned();
    }
    let exited = work
        .process()
        .and_then(|process| process.handle().status().borrow().exited);
    match (work.end(), exited) {
        (Some(_), Some(exit)) => format!("ended, {}", crate::command::exit_text(exit)),
        (Some(end), None) if end.failed => "failed".to_owned(),
        (Some(_), None) => "ended".to_owned(),
        (None, Some(exit)) => format!(
            "still running; the command itself has ended, {}",
            crate::command::exit_text(exit)
        ),
        (None, None) => "running".to_owned(),
    }
}

impl Tool for BackgroundTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let arguments =
                BackgroundArguments::deserialize(&*invocation.arguments).map_err(|error| {
                    ToolError::new(format!("wrong arguments for `background`: {error}"))
                })?;
            Ok(self.run(arguments, &invocation).await?.into())
        })
    }
}
