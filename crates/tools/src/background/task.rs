//! Background work that is a future: a sub-agent.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use allstop_core::receipt::{Evidence, How, ItemKind, ItemState, Verified};
use allstop_core::record::Attachment;
use allstop_core::{CallId, Cause, CauseKind, Extent};
use allstop_scope::{NotStarted, Scope, StopOrder, WorkCx, WorkHandle, WorkSpec};
use tokio::time::Instant;

use super::end::BackgroundEnd;
use super::host::BackgroundHost;
use super::work::{About, BackgroundWork, Body, Place};
use crate::call_link::CallLink;
use crate::output::{BoundedOutput, SharedOutput};

/// What a new task is.
#[derive(Debug)]
pub struct TaskSpec {
    /// The call that starts it.
    pub call_id: CallId,
    /// The scope of that call: behind a stop of it nothing starts, in whatever scope.
    pub call: Scope,
    /// For people: what it is for.
    pub name: Arc<str>,
    /// Whether idle waits for it.
    pub attachment: Attachment,
    /// Where what it shows is collected.
    pub output: TaskOutput,
    /// Where it counts the tokens that it uses.
    pub link: CallLink,
}

/// What a task has of its place.
#[derive(Debug)]
pub struct TaskCx {
    /// The scope of the work: all that the task starts is started here. Where the task hears a stop it says so with
    /// [`Scope::stopped_at`].
    pub scope: Scope,
    /// What it shows.
    pub output: TaskOutput,
}

/// What a task shows while it runs. Clones are the same output.
#[derive(Debug, Clone)]
pub struct TaskOutput(Arc<SharedOutput>);

impl From<BoundedOutput> for TaskOutput {
    fn from(output: BoundedOutput) -> Self {
        Self(Arc::new(output.into()))
    }
}

impl TaskOutput {
    /// Makes its file now, if there is none: background work can be looked at any time.
    pub fn open_file(&self) {
        self.0.open_file();
    }

    /// Adds a piece.
    pub fn push(&self, text: &str) {
        self.0.push(text.as_bytes());
    }
}

/// Runs a task as background work of the host: in a scope of its own, one item of a receipt under its id. What it
/// returns is its answer, or why it failed; a panic is a failure. What it has left in its scope by then is stopped, and
/// until that is gone the work has not ended.
///
/// # Errors
/// If the host's scope takes nothing any more: then `make` is not called.
pub fn start_task<F>(
    host: &dyn BackgroundHost,
    spec: TaskSpec,
    make: impl FnOnce(TaskCx) -> F + Send + 'static,
) -> Result<Arc<BackgroundWork>, NotStarted>
where
    F: Future<Output = Result<String, String>> + Send + 'static,
{
    start(host, spec, None, make)
}

/// The same for a task that runs already, in `running`, a scope below its call that was made to move: with all that runs
/// in it, it goes on as background work from now on. `make` gives what waits for its end.
///
/// Promotion, the end of the task, a stop of the call and one of the background have one winner: behind a stop of the
/// call nothing moves, and what has moved is in the extent of the background alone.
///
/// # Errors
/// If a stop covers the call, or the host's scope takes nothing any more: then everything is still the call's, and `make`
/// is not called.
pub fn promote_task<F>(
    host: &dyn BackgroundHost,
    spec: TaskSpec,
    running: &Scope,
    make: impl FnOnce(TaskCx) -> F + Send + 'static,
) -> Result<Arc<BackgroundWork>, NotStarted>
where
    F: Future<Output = Result<String, String>> + Send + 'static,
{
    start(host, spec, Some(running), make)
}

fn start<F>(
    host: &dyn BackgroundHost,
    spec: TaskSpec,
    running: Option<&Scope>,
    make: impl FnOnce(TaskCx) -> F + Send + 'static,
) -> Result<Arc<BackgroundWork>, NotStarted>
where
    F: Future<Output = Result<String, String>> + Send + 'static,
{
    let place = Place::below(host, &spec.name)?;
    let output = spec.output;
    let state = Arc::new(TaskState {
        link: spec.link,
        end: OnceLock::new(),
        stopped_at: OnceLock::new(),
    });
    let mut guard = EndGuard {
        state: Arc::clone(&state),
        begun: running.is_some(),
    };
    let task = TaskCx {
        scope: place.scope.clone(),
        output: output.clone(),
    };
    let of_scope = WorkSpec::new(ItemKind::Future, Arc::clone(&spec.name));
    let body = |cx: WorkCx| async move {
        guard.begun = true;
        let answer = make(task).await;
        guard.returned(answer, cx.acknowledged());
    };
    // In this order: a stop of the call and of all background work stops the call first, and then the scope that was
    // the host's. So if the call is not stopped now, the place is in what that covers.
    let started = match running {
        None => spec
            .call
            .check()
            .and_then(|()| place.scope.spawn(of_scope, body).map(Some)),
        // First the move, which decides. Where a stop of the background comes between the two, nothing waits for the task
        // here, and it is work that was stopped.
        Some(running) => running
            .move_below(&place.scope)
            .map(|()| place.scope.spawn_begun(of_scope, body).ok()),
    };
    let body = started.inspect_err(|_| place.scope.close())?;
    if running.is_some() {
        output.open_file();
    }
    let about = About {
        call_id: spec.call_id,
        name: spec.name,
        attachment: spec.attachment,
    };
    let work = BackgroundWork::new(place, about, Body::Task(Arc::clone(&state)), output.0);
    let watched = Arc::clone(&work);
    work.run(host, async move { watch(&watched, &state, body).await });
    Ok(work)
}

/// Waits until the task and all that it started have ended.
async fn watch(work: &BackgroundWork, state: &TaskState, body: Option<WorkHandle<()>>) {
    let ended = async {
        // The guard has said how.
        if let Some(body) = body {
            let _ended = body.await;
        }
    };
    let mut ended = std::pin::pin!(ended);
    tokio::select! {
        biased;
        () = &mut ended => {}
        () = work.scope.stopped() => {
            state.stopped_at.get_or_init(Instant::now);
            ended.await;
        }
    }
    if work.end().is_some() {
        return;
    }
    // Joins the stop that covers it, if there is one.
    let cause = Cause::new(CauseKind::Parent).detail("its task has ended");
    let order = StopOrder::new(Extent::Subtree, cause);
    let receipt = work.scope.stop(order).receipt().await;
    if work.end().is_none()
        && let (Some(end), Some(item)) = (state.end(), receipt.items().first())
    {
        let state = item.state.clone();
        work.decide(BackgroundEnd { state, ..end });
    }
}

/// How the future of a task ended, and what it has used.
#[derive(Debug)]
pub(super) struct TaskState {
    pub(super) link: CallLink,
    end: OnceLock<BackgroundEnd>,
    stopped_at: OnceLock<Instant>,
}

impl TaskState {
    pub(super) fn end(&self) -> Option<BackgroundEnd> {
        self.end.get().cloned()
    }

    fn stopped(&self, how: How, evidence: Evidence) -> ItemState {
        let after = self.stopped_at.get().map(Instant::elapsed);
        ItemState::Stopped {
            how,
            evidence,
            after_ms: after.unwrap_or_default().into(),
        }
    }
}

/// Goes with the future, and says how it ended before the scope's registry does: so the end is known when a receipt is.
struct EndGuard {
    state: Arc<TaskState>,
    begun: bool,
}

impl EndGuard {
    fn returned(&self, answer: Result<String, String>, heard: Option<Cow<'static, str>>) {
        let state = match heard {
            Some(checkpoint) => {
                let evidence = Evidence::verified(Verified::TaskEnded).and_observed_at(checkpoint);
                self.state.stopped(How::Acknowledged, evidence)
            }
            None => ItemState::Finished { after_ms: None },
        };
        let failed = answer.is_err();
        let (Ok(said) | Err(said)) = answer;
        self.say(state, Some(said.into()), failed);
    }

    fn say(&self, state: ItemState, said: Option<Arc<str>>, failed: bool) {
        // The first word stands: a drop after a return says nothing.
        drop(self.state.end.set(BackgroundEnd {
            state,
            exit_code: None,
            said,
            failed,
        }));
    }
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        if self.state.end.get().is_some() {
            return;
        }
        if std::thread::panicking() {
            let evidence = Evidence::verified(Verified::TaskEnded);
            let state = match self.state.stopped_at.get() {
                Some(_) => self.state.stopped(How::Failed, evidence),
                None => ItemState::Finished { after_ms: None },
            };
            return self.say(state, Some("the task panicked".into()), true);
        }
        let how = if self.begun {
            How::Dropped
        } else {
            How::NotBegun
        };
        let evidence = Evidence::verified(Verified::FutureDropped);
        self.say(self.state.stopped(how, evidence), None, false);
    }
}
