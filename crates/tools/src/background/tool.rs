//! `background`: what the model can do with background work.

use std::fmt::Write as _;
use std::sync::Arc;

use allstop_core::{Cause, CauseKind, Effect};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::host::BackgroundHost;
use super::work::BackgroundWork;
use crate::schema::schema_of;
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};

/// Its name. The default policy lets it run unasked: it reaches only what the session itself has started.
pub(crate) const NAME: &str = "background";

/// Arguments of `background`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// `list` names all background work, `output` shows what one has printed, `stop` ends one.
    action: Action,
    /// Which one: `bg_1`.
    id: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    List,
    Output,
    Stop,
}

/// Looks at and stops the background work of its session.
#[derive(Debug)]
pub struct BackgroundTool {
    spec: ToolSpec,
    host: Arc<dyn BackgroundHost>,
}

impl BackgroundTool {
    /// Over the work of this host.
    pub fn new(host: Arc<dyn BackgroundHost>) -> Self {
        let spec = ToolSpec {
            name: NAME.into(),
            description: "Lists background processes, shows what one has printed, or stops one."
                .into(),
            input_schema: schema_of::<Arguments>(),
            // It touches only what this session itself has started, and stopping twice is stopping once.
            effect: Effect::Idempotent,
            timeout: None,
            parallel: true,
        };
        Self { spec, host }
    }

    async fn run(&self, arguments: Arguments) -> Result<String, ToolError> {
        let works = self.host.works();
        let find = || {
            let id = arguments.id.as_deref().unwrap_or_default();
            works
                .iter()
                .find(|work| work.id.as_str() == id)
                .ok_or_else(|| ToolError {
                    message: format!(
                        "there is no background work {id:?}; there is:\n{}",
                        list(&works)
                    ),
                })
        };
        match arguments.action {
            Action::List => Ok(list(&works)),
            Action::Output => {
                let work = find()?;
                Ok(format!("{}\n[{}]", work.output(), state(work)))
            }
            Action::Stop => stop(find()?).await,
        }
    }
}

async fn stop(work: &BackgroundWork) -> Result<String, ToolError> {
    if !work.is_running() {
        return Ok(format!("{} had ended before: {}", work.id, state(work)));
    }
    let receipt = work
        .stop(
            Cause::new(CauseKind::User)
                .detail("background stop")
                .by("model"),
        )
        .await;
    if receipt.quiet() {
        Ok(format!(
            "{} was stopped; nothing of it runs any more",
            work.id
        ))
    } else {
        let left = work.process.members().len();
        Err(ToolError {
            message: format!(
                "{} could not be stopped: {left} processes still run",
                work.id
            ),
        })
    }
}

fn list(works: &[Arc<BackgroundWork>]) -> String {
    let mut text = String::new();
    for work in works {
        let file = work
            .output_file
            .as_ref()
            .map(|file| format!(", output in {}", file.display()));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}: `{}`, {}{}",
            work.id,
            work.name,
            state(work),
            file.unwrap_or_default()
        );
    }
    if text.is_empty() {
        "[no background work]".to_owned()
    } else {
        text
    }
}

fn state(work: &BackgroundWork) -> String {
    let status = work.process.handle().status();
    let status = status.borrow();
    match status.exited {
        _ if status.detached => "let go".to_owned(),
        Some(exit) if work_is_over(&status) => format!("ended, {}", crate::shell::exit_text(exit)),
        _ if work_is_over(&status) => "ended".to_owned(),
        Some(exit) => format!(
            "runs on; the command itself has ended, {}",
            crate::shell::exit_text(exit)
        ),
        None => "runs".to_owned(),
    }
}

fn work_is_over(status: &allstop_scope::process::ProcessStatus) -> bool {
    status.empty.is_some() || status.failed.is_some()
}

impl Tool for BackgroundTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let arguments =
                Arguments::deserialize(&*invocation.arguments).map_err(|error| ToolError {
                    message: format!("wrong arguments for `background`: {error}"),
                })?;
            Ok(ToolOutput {
                content: self.run(arguments).await?.into(),
            })
        })
    }
}
