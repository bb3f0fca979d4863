//! Common part of the file tools: parses the arguments, runs the tool on a thread that is registered in the scope of
//! the call, and returns text.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{Effect, Images};
use allstop_scope::{WorkCx, WorkSpec};
use futures::future::BoxFuture;
use rustix::fs::Stat;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::error::FileError;
use super::workspace::Workspace;
use crate::effect::{EffectPreview, FileChange};
use crate::file_state::FileState;
use crate::schema::schema_of;
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};

/// Time limit of a preview, so that the permission question appears even if a disk hangs.
const PREVIEW_MAX: Duration = Duration::from_secs(3);

/// A file tool: its arguments, and the function that runs on a dedicated thread.
pub(super) trait FileTool: DeserializeOwned + JsonSchema + Send + 'static {
    const NAME: &'static str;
    const DESCRIPTION: &'static str;
    const EFFECT: Effect;

    /// Runs the call. `shown` is the state of the file that a person saw in the permission question. The person's
    /// answer is valid only for this state.
    fn run(
        self,
        workspace: &Workspace,
        stop: &StopCheck,
        shown: Option<FileState>,
    ) -> Result<FileAnswer, FileError>;

    /// Returns the change that `run` would make, without making it; `None` if `run` makes no change.
    fn preview(&self, _: &Workspace, _: &StopCheck) -> Option<Result<FilePreview, FileError>> {
        None
    }
}

/// A change that was not made, and the state of the file from which it was computed.
#[derive(Debug)]
pub(super) struct FilePreview {
    pub(super) change: FileChange,
    pub(super) state: FileState,
}

/// Checks that the file is still in the state that a person has seen in the permission question.
pub(super) fn check_shown(
    shown: Option<FileState>,
    now: Option<&Stat>,
    path: &str,
) -> Result<(), FileError> {
    match shown {
        Some(shown) if shown != FileState::of(now) => Err(FileError::ChangedSinceShown {
            path: path.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Answer of a file tool.
#[derive(Debug)]
pub(super) struct FileAnswer {
    /// Text for the model.
    pub(super) text: String,
    /// Change of a file that the call has made, for people.
    pub(super) change: Option<FileChange>,
    /// Images for the model.
    pub(super) images: Images,
}

impl From<String> for FileAnswer {
    fn from(text: String) -> Self {
        Self {
            text,
            change: None,
            images: Images::default(),
        }
    }
}

/// Check for a stop of the call. A thread performs this check between two pieces of its work.
#[derive(Debug, Clone)]
pub(crate) struct StopCheck(WorkCx);

impl StopCheck {
    pub(super) fn of(cx: WorkCx) -> Self {
        Self(cx)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.check().is_err()
    }

    pub(crate) fn check(&self) -> Result<(), FileError> {
        self.0
            .checkpoint("between_reads")
            .map_err(|_| FileError::Stopped)
    }
}

pub(super) fn file_tool<T: FileTool>(workspace: &Arc<Workspace>) -> Arc<dyn Tool> {
    // Only read-only calls run in parallel, because two changes of the same file in one step must keep their order.
    let spec = ToolSpec::new(T::NAME, T::DESCRIPTION, schema_of::<T>())
        .effect(T::EFFECT)
        .parallel(T::EFFECT == Effect::ReadOnly);
    Arc::new(FileToolAdapter::<T> {
        spec,
        workspace: Arc::clone(workspace),
        arguments: PhantomData,
    })
}

struct FileToolAdapter<T> {
    spec: ToolSpec,
    workspace: Arc<Workspace>,
    arguments: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for FileToolAdapter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileTool")
            .field("name", &self.spec.name)
            .finish_non_exhaustive()
    }
}

impl<T: FileTool> Tool for FileToolAdapter<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let arguments = T::deserialize(&*invocation.arguments).map_err(|error| {
                ToolError::new(format!("wrong arguments for `{}`: {error}", T::NAME))
            })?;
            let workspace = Arc::clone(&self.workspace);
            let spec = WorkSpec::new(ItemKind::Thread, T::NAME);
            let shown = invocation.link.shown();
            let thread = invocation
                .scope
                .spawn_blocking(spec, move |cx| {
                    arguments.run(&workspace, &StopCheck(cx), shown)
                })
                .map_err(|refused| ToolError::not_started(refused.to_string()))?;
            let answer = thread
                .await
                .map_err(|lost| ToolError::new(lost.to_string()))??;
            if let Some(change) = answer.change {
                invocation.link.changed(change);
            }
            Ok(ToolOutput::from(answer.text).images(answer.images))
        })
    }

    fn preview(&self, invocation: ToolInvocation) -> BoxFuture<'_, Option<EffectPreview>> {
        Box::pin(async move {
            // The preview ignores wrong arguments, because the call itself reports them.
            let arguments = T::deserialize(&*invocation.arguments).ok()?;
            let workspace = Arc::clone(&self.workspace);
            let spec = WorkSpec::new(ItemKind::Thread, "preview");
            let preview = move |cx| arguments.preview(&workspace, &StopCheck(cx));
            let thread = invocation.scope.spawn_blocking(spec, preview).ok()?;
            let reason = match tokio::time::timeout(PREVIEW_MAX, thread).await {
                Ok(Ok(Some(Ok(preview)))) => {
                    invocation.link.set_shown(preview.state);
                    return Some(EffectPreview::Change(preview.change));
                }
                Ok(Ok(Some(Err(error)))) => error.to_string(),
                Ok(Ok(None)) => return None,
                Ok(Err(lost)) => lost.to_string(),
                Err(_elapsed) => format!("the file was not read within {PREVIEW_MAX:?}"),
            };
            Some(EffectPreview::Unavailable { reason })
        })
    }
}
