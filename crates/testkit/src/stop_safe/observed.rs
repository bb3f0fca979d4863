//! Outcome of the tool's own future: the future returned, failed, panicked, or had to be dropped.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use allstop_scope::GRACE_DEFAULT;
use allstop_tools::{EffectPreview, Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::stage::RunStage;
use crate::violation::{FailureClass, Invariant};

/// Name of the check that a call ends by itself.
pub(super) const ENDS: &str = "tool_ends";

/// Name of the check that a call observes a stop.
const OBSERVES_STOP: &str = "tool_observes_stop";

/// Maximum delay between the moment at which a stop is accepted and the moment at which the stop reaches the tool. The
/// test kit waits briefly between the start of a call and the first poll of the tool, so that a stop can come in
/// between. This wait causes the delay.
const ARRIVES_LATE_MAX: Duration = Duration::from_millis(10);

/// Outcome of the call of one run.
#[derive(Debug, Default)]
pub(super) struct ObservedOutcome(Mutex<FutureOutcome>);

#[derive(Debug, Default)]
enum FutureOutcome {
    #[default]
    NotCalled,
    Running,
    Returned,
    /// The call failed without a stop.
    Failed(String),
    Panicked(String),
    /// The call was dropped at this time after the stop; `None` if the call was not stopped.
    Dropped(Option<Duration>),
}

impl ObservedOutcome {
    /// Registers the checks of the outcome on a stage.
    pub(super) fn checked(stage: &RunStage, may_be_dropped: bool) -> Arc<Self> {
        let seen = Arc::new(Self::default());
        let here = Arc::clone(&seen);
        stage.own.add(
            ENDS,
            (Invariant::NoDetachedWork, FailureClass::Hang),
            move || here.ends(),
        );
        if !may_be_dropped {
            let here = Arc::clone(&seen);
            stage.own.add(
                OBSERVES_STOP,
                (Invariant::NoDetachedWork, FailureClass::SignalMissesLeaf),
                move || here.returns_after_stop(),
            );
        }
        seen
    }

    /// Checks that a call without a stop returns a result, and that no call panics.
    fn ends(&self) -> Result<(), String> {
        match &*self.0.lock() {
            FutureOutcome::Running => Err(
                "the call does not end, and no time that passes changes that. Without a stop a call must end by \
                 itself. If this one does elsewhere, it waits for something real: a thread, a socket, a process. Only \
                 tokio's timers pass here"
                    .to_owned(),
            ),
            FutureOutcome::Failed(error) => Err(format!(
                "the call fails, although nobody stopped it: {error}. Explore a call that succeeds"
            )),
            FutureOutcome::Panicked(said) => Err(format!("the tool panicked: {said}{}", why_no_io(said))),
            _ => Ok(()),
        }
    }

    /// Checks that a stopped call returns within the grace, which is the time to end by itself.
    fn returns_after_stop(&self) -> Result<(), String> {
        match &*self.0.lock() {
            FutureOutcome::Dropped(Some(after)) if *after + ARRIVES_LATE_MAX >= GRACE_DEFAULT => {
                Err(format!(
                    "the call was asked to stop, had not returned {GRACE_DEFAULT:?} later when the grace was over, and was \
                 dropped where it waited. Wait for call.scope.stopped_at(\"…\") beside whatever takes long, and then \
                 return; or say may_be_dropped"
                ))
            }
            _ => Ok(()),
        }
    }
}

/// Tokio panics if code uses I/O and the runtime has no I/O driver. Returns a text that explains this panic.
fn why_no_io(said: &str) -> &'static str {
    let io = ["IO is disabled", "enable_io", "no reactor", "signal driver"];
    if io.iter().any(|words| said.contains(words)) {
        ". There is no I/O in an exploration, because its time is not real: simulate processes with RunStage::system, put \
         what talks to sockets behind a trait that the test fills in, or test that part in real time"
    } else {
        ""
    }
}

/// The tool, with an observer of its calls.
#[derive(Debug)]
pub(super) struct Observed {
    tool: Arc<dyn Tool>,
    seen: Arc<ObservedOutcome>,
}

impl Observed {
    pub(super) fn new(tool: Arc<dyn Tool>, seen: Arc<ObservedOutcome>) -> Self {
        Self { tool, seen }
    }
}

/// Guard that is dropped together with the future of the call.
struct RunningToolCall<'a> {
    seen: &'a ObservedOutcome,
    asked: Option<Instant>,
}

impl Drop for RunningToolCall<'_> {
    fn drop(&mut self) {
        let mut outcome = self.seen.0.lock();
        if matches!(*outcome, FutureOutcome::Running) {
            *outcome = FutureOutcome::Dropped(self.asked.map(|asked| asked.elapsed()));
        }
    }
}

impl Tool for Observed {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn preview(&self, invocation: ToolInvocation) -> BoxFuture<'_, Option<EffectPreview>> {
        self.tool.preview(invocation)
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let scope = invocation.scope.clone();
            *self.seen.0.lock() = FutureOutcome::Running;
            let mut running = RunningToolCall {
                seen: &self.seen,
                asked: None,
            };
            let call = async { self.tool.call(invocation).await };
            let mut call = std::pin::pin!(AssertUnwindSafe(call).catch_unwind());
            let ended = tokio::select! {
                biased;
                ended = &mut call => ended,
                () = scope.stopped() => {
                    running.asked = Some(Instant::now());
                    call.await
                }
            };
            let outcome = match &ended {
                // The call may observe the stop in the poll in which it ends.
                Ok(Err(error)) if running.asked.is_none() && !scope.is_stopped() => {
                    FutureOutcome::Failed(error.message.clone())
                }
                Ok(_) => FutureOutcome::Returned,
                Err(panicked) => FutureOutcome::Panicked(
                    panic_text(&**panicked).trim_end_matches('.').to_owned(),
                ),
            };
            *self.seen.0.lock() = outcome;
            ended.unwrap_or_else(|panicked| resume_unwind(panicked))
        })
    }
}

/// Text of a panic.
fn panic_text(panicked: &(dyn Any + Send)) -> String {
    let text = panicked.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panicked.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without words").to_owned()
}
