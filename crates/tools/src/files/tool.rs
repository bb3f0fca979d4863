//! Common part of the file tools: arguments in, a thread of the scope, text out.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use allstop_core::Effect;
use allstop_core::receipt::ItemKind;
use allstop_scope::{WorkCx, WorkSpec};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::error::FileError;
use super::workspace::Workspace;
use crate::schema::schema_of;
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};

/// A file tool: its arguments, and the function that runs on a dedicated thread.
pub(super) trait FileTool: DeserializeOwned + JsonSchema + Send + 'static {
    const NAME: &'static str;
    const DESCRIPTION: &'static str;
    const EFFECT: Effect;

    fn run(self, workspace: &Workspace, stop: &StopCheck) -> Result<String, FileError>;
}

/// Check for a stop of the call, which a thread makes between two pieces of its work.
#[derive(Debug, Clone)]
pub(crate) struct StopCheck(WorkCx);

impl StopCheck {
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
    let spec = ToolSpec {
        name: T::NAME.into(),
        description: T::DESCRIPTION.into(),
        input_schema: schema_of::<T>(),
        effect: T::EFFECT,
        timeout: None,
        // Two changes of the same file in one step must keep their order.
        parallel: T::EFFECT == Effect::ReadOnly,
        name_in_rules: None,
    };
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
            let thread = invocation
                .scope
                .spawn_blocking(spec, move |cx| arguments.run(&workspace, &StopCheck(cx)))
                .map_err(|refused| ToolError::new(refused.to_string()))?;
            let content = thread
                .await
                .map_err(|lost| ToolError::new(lost.to_string()))??;
            Ok(ToolOutput {
                content: content.into(),
            })
        })
    }
}
