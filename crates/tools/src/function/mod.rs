//! Tools that are functions of the program. The JSON schema of the arguments comes from their type.

mod cx;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::Effect;
use allstop_core::receipt::ItemKind;
use allstop_scope::{WorkLost, WorkSpec};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::schema::schema_of;
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};

pub use cx::ToolCx;

type Answer = Result<ToolOutput, ToolError>;

/// A tool that is a function; see [`tool`] and [`blocking_tool`].
pub struct FnTool {
    spec: ToolSpec,
    run: Box<dyn Fn(ToolInvocation) -> BoxFuture<'static, Answer> + Send + Sync>,
}

/// Creates a tool from an asynchronous function. `A` is the type of the arguments: its JSON schema describes them to the
/// model, and the function runs only with valid arguments. Any error becomes the tool's error result.
///
/// Without further calls the tool is `irreversible`: a stopped call that observed nothing is reported as `unknown`, and it
/// is never repeated without a question.
///
/// ```
/// use allstop_tools::{ToolCx, tool};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct City {
///     /// Name of the city.
///     name: String,
/// }
///
/// let weather = tool("weather", "Current weather of a city", async |city: City, cx: ToolCx| {
///     let degrees = cx.unless_stopped(async { 21 }).await?;
///     Ok(format!("{degrees} degrees in {}", city.name))
/// })
/// .read_only();
/// # let _ = weather;
/// ```
///
/// A function that captures values clones them for each call:
///
/// ```
/// # use allstop_tools::tool;
/// # use schemars::JsonSchema;
/// # use serde::Deserialize;
/// # #[derive(Deserialize, JsonSchema)]
/// # struct Key { key: String }
/// # let store = std::sync::Arc::new(std::collections::HashMap::<String, String>::new());
/// let lookup = tool("lookup", "Value of a key", move |args: Key, _cx| {
///     let store = store.clone();
///     async move { Ok(store.get(&args.key).ok_or("no such key")?.clone()) }
/// });
/// # let _ = lookup;
/// ```
///
/// # Cancel safety
/// A stop of the call cancels the scope of `cx`. If the function still runs after the grace, its future is dropped.
pub fn tool<A, F, R, T>(
    name: impl Into<Arc<str>>,
    description: impl Into<Arc<str>>,
    run: F,
) -> FnTool
where
    A: DeserializeOwned + JsonSchema,
    F: Fn(A, ToolCx) -> R + Send + Sync + 'static,
    R: Future<Output = Result<T, ToolError>> + Send + 'static,
    T: Into<ToolOutput>,
{
    FnTool::new::<A>(
        name.into(),
        description.into(),
        move |invocation| match arguments(&invocation) {
            Ok(arguments) => run(arguments, ToolCx::new(invocation, None))
                .map(|answer| answer.map(Into::into))
                .boxed(),
            Err(error) => std::future::ready(Err(error)).boxed(),
        },
    )
}

/// Creates a tool from a function that blocks its thread, such as a computation or a call of a C library. Each call runs on
/// a separate thread. A stop cannot end a thread: the function calls [`ToolCx::checkpoint`] in its loops. A thread that
/// never does so delays no stop, and the receipt lists it as `still_running`.
///
/// ```
/// use allstop_tools::{ToolCx, blocking_tool};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Range {
///     end: u64,
/// }
///
/// let sum = blocking_tool("sum", "Sum of the numbers below `end`", |range: Range, cx: ToolCx| {
///     let mut sum = 0;
///     for number in 0..range.end {
///         cx.checkpoint("number")?;
///         sum += number;
///     }
///     Ok(sum.to_string())
/// })
/// .read_only();
/// # let _ = sum;
/// ```
pub fn blocking_tool<A, F, T>(
    name: impl Into<Arc<str>>,
    description: impl Into<Arc<str>>,
    run: F,
) -> FnTool
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(A, ToolCx) -> Result<T, ToolError> + Send + Sync + 'static,
    T: Into<ToolOutput>,
{
    let run = Arc::new(run);
    FnTool::new::<A>(name.into(), description.into(), move |invocation| {
        let run = Arc::clone(&run);
        async move {
            let arguments = arguments(&invocation)?;
            let spec = WorkSpec::new(ItemKind::Thread, Arc::clone(&invocation.name));
            let scope = invocation.scope.clone();
            let thread = scope.spawn_blocking(spec, move |work| {
                run(arguments, ToolCx::new(invocation, Some(work))).map(Into::into)
            });
            let thread = thread.map_err(|refused| ToolError::not_started(refused.to_string()))?;
            thread.await.unwrap_or_else(|lost| match lost {
                WorkLost::Dropped => Err(ToolError::not_started(lost.to_string())),
                WorkLost::Panicked | WorkLost::NoThread => Err(ToolError::new(lost.to_string())),
            })
        }
        .boxed()
    })
}

fn arguments<A: DeserializeOwned>(invocation: &ToolInvocation) -> Result<A, ToolError> {
    A::deserialize(&*invocation.arguments).map_err(|error| {
        let name = &invocation.name;
        ToolError::new(format!(
            "wrong arguments for `{name}`: {error}; it was not run"
        ))
    })
}

impl FnTool {
    fn new<A: JsonSchema>(
        name: Arc<str>,
        description: Arc<str>,
        run: impl Fn(ToolInvocation) -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Self {
        Self {
            spec: ToolSpec {
                name,
                description,
                input_schema: schema_of::<A>(),
                effect: Effect::default(),
                timeout: None,
                parallel: true,
                name_in_rules: None,
                mcp: None,
            },
            run: Box::new(run),
        }
    }

    /// Declares that a call changes nothing.
    #[must_use]
    pub fn read_only(self) -> Self {
        self.effect(Effect::ReadOnly)
    }

    /// Declares that a repeated call has no further effect.
    #[must_use]
    pub fn idempotent(self) -> Self {
        self.effect(Effect::Idempotent)
    }

    /// Sets the consequence of a repeated call.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.spec.effect = effect;
        self
    }

    /// Sets the time limit of one call. If the limit is exceeded, the call is stopped and the turn continues.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.spec.timeout = Some(timeout);
        self
    }

    /// Sets whether a call may run concurrently with other calls of its step. By default it may.
    #[must_use]
    pub fn parallel(mut self, parallel: bool) -> Self {
        self.spec.parallel = parallel;
        self
    }
}

impl Tool for FnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Answer> {
        (self.run)(invocation)
    }
}

impl fmt::Debug for FnTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FnTool").field(&self.spec.name).finish()
    }
}
