//! Background tasks: futures, such as a sub-agent.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use allstop_core::receipt::{EndMethod, EndProof, Evidence, ItemKind, ItemState};
use allstop_core::record::Attachment;
use allstop_core::{CallId, Cause, CauseKind, Extent};
use allstop_scope::{NotStarted, Scope, StopRequest, WorkCx, WorkHandle, WorkSpec};
use tokio::time::Instant;

use super::end::BackgroundEnd;
use super::future_work::FutureWorkState;
use super::host::BackgroundHost;
use super::work::{BackgroundWork, WorkBody, WorkInfo, WorkSlot};
use crate::call_link::CallLink;
use crate::output::{BoundedOutput, OutputWriter};

/// Description of a new task.
#[derive(Debug)]
#[non_exhaustive]
pub struct TaskSpec {
    /// Call that starts the task.
    pub call_id: CallId,
    /// Scope of that call: after a stop of the call's scope, the task does not start at all.
    pub call: Scope,
    /// Purpose of the task, for people.
    pub name: Arc<str>,
    /// Attachment, which determines whether an idle session waits for the task.
    pub attachment: Attachment,
    /// Buffer of the task's output.
    pub output: TaskOutput,
    /// Link on which the task counts its tokens.
    pub link: CallLink,
    /// Answer of a task that is dropped or panics.
    pub answer_if_lost: Option<AnswerIfLost>,
}

impl TaskSpec {
    /// Creates the specification of an attached task. `call` is the scope of the call that starts the task.
    pub fn new(
        call_id: impl Into<CallId>,
        call: Scope,
        name: impl Into<Arc<str>>,
        output: impl Into<TaskOutput>,
        link: CallLink,
    ) -> Self {
        Self {
            call_id: call_id.into(),
            call,
            name: name.into(),
            attachment: Attachment::Attached,
            output: output.into(),
            link,
            answer_if_lost: None,
        }
    }

    /// Sets the attachment.
    #[must_use]
    pub fn attachment(mut self, attachment: Attachment) -> Self {
        self.attachment = attachment;
        self
    }

    /// Sets the answer of a task that is dropped or panics.
    #[must_use]
    pub fn answer_if_lost(mut self, answer_if_lost: impl Into<Option<AnswerIfLost>>) -> Self {
        self.answer_if_lost = answer_if_lost.into();
        self
    }
}

/// Returns the answer of a task that cannot return it, because the task is dropped or panics.
pub struct AnswerIfLost(Box<dyn Fn() -> Option<String> + Send + Sync>);

impl AnswerIfLost {
    /// The function is called when the task ends.
    pub fn new(answer: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Box::new(answer))
    }
}

impl fmt::Debug for AnswerIfLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerIfLost").finish_non_exhaustive()
    }
}

/// Context of a running task.
#[derive(Debug)]
pub struct TaskCx {
    /// Scope of the work. The task starts all its work in this scope. A task acknowledges a stop with
    /// [`Scope::stopped_at`].
    pub scope: Scope,
    /// Output of the task.
    pub output: TaskOutput,
}

/// Output of a running task. Clones share one output. After the last clone is dropped, the output accepts no more text.
#[derive(Debug, Clone)]
pub struct TaskOutput(Arc<OutputWriter>);

impl From<BoundedOutput> for TaskOutput {
    fn from(output: BoundedOutput) -> Self {
        Self(Arc::new(output.into()))
    }
}

impl TaskOutput {
    /// Creates the output file now, if it does not exist, because the output of background work can be read at any
    /// time.
    pub fn open_file(&self) {
        self.0.open_file();
    }

    /// Appends text.
    pub fn push(&self, text: &str) {
        self.0.push(text.as_bytes());
    }
}

/// Runs a task as background work of the host, in a separate scope. In a receipt, the task is one item with the id of
/// the work. The task returns its answer or the reason of its failure; a panic is a failure. If other work still runs
/// in the scope when the task returns, that work is stopped, and the background work ends only after that.
///
/// # Errors
/// If the host's scope accepts no more work. In that case `make` is not called.
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

/// Turns a running task, and all work that runs in its scope, into background work. `running` is the task's scope, a
/// movable child of the call's scope. `make` returns a future that waits for the task's end.
///
/// Exactly one of four events comes first: the promotion, the end of the task, a stop of the call, or a stop of the
/// background work. After a stop of the call, the task does not move. After a move, only stops of the background work
/// cover the task.
///
/// # Errors
/// If a stop covers the call, or the host's scope accepts no more work. All work then still belongs to the call, and
/// `make` is not called.
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
    let slot = WorkSlot::create(host, &spec.name)?;
    let output = spec.output;
    let state = Arc::new(FutureWorkState {
        meter: Arc::new(spec.link),
        end: OnceLock::new(),
        stopped_at: OnceLock::new(),
    });
    let mut guard = EndGuard {
        state: Arc::clone(&state),
        begun: running.is_some(),
        answer_if_lost: spec.answer_if_lost,
    };
    let task = TaskCx {
        scope: slot.scope.clone(),
        output: output.clone(),
    };
    let of_scope = WorkSpec::new(ItemKind::Future, Arc::clone(&spec.name));
    let body = |cx: WorkCx| async move {
        guard.begun = true;
        let answer = make(task).await;
        guard.returned(answer, cx.acknowledged());
    };
    // The scope of `slot` was created first, and the call is checked now. This order matters: a stop of the call and of
    // all background work stops the call first, and then the host's scope. So if the call is not stopped yet, such a
    // stop also finds `slot`.
    let started = match running {
        None => spec
            .call
            .check()
            .and_then(|()| slot.scope.spawn(of_scope, body).map(Some)),
        // The move comes first, because it decides whether the promotion succeeds. If a stop of the background work
        // comes between the move and the spawn, no future waits for the task here, and the task counts as stopped work.
        Some(running) => running
            .move_below(&slot.scope)
            .map(|()| slot.scope.spawn_begun(of_scope, body).ok()),
    };
    let body = started.inspect_err(|_| slot.scope.close())?;
    if running.is_some() {
        output.open_file();
    }
    let info = WorkInfo {
        call_id: spec.call_id,
        name: spec.name,
        attachment: spec.attachment,
    };
    let output = output.0.reader();
    let work = BackgroundWork::new(slot, info, WorkBody::Task(Arc::clone(&state)), output);
    let watched = Arc::clone(&work);
    work.run(host, async move { watch(&watched, &state, body).await });
    Ok(work)
}

/// Waits until the task and everything that it started have ended.
async fn watch(work: &BackgroundWork, state: &FutureWorkState, body: Option<WorkHandle<()>>) {
    let ended = async {
        // The result is not needed: the drop guard of the future has recorded the end.
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
    // If a stop already covers the scope, this call joins that stop.
    let cause = Cause::new(CauseKind::Parent).detail("its task has ended");
    let order = StopRequest::new(Extent::Subtree, cause);
    let receipt = work.scope.stop(order).receipt().await;
    if work.end().is_none()
        && let (Some(end), Some(item)) = (state.end(), receipt.items().first())
    {
        let state = item.state.clone();
        work.decide(BackgroundEnd { state, ..end });
    }
}

/// Drop guard of the future. Records the future's end before the scope's registry records it, so that the end is known
/// before the receipt of a stop is complete.
struct EndGuard {
    state: Arc<FutureWorkState>,
    begun: bool,
    answer_if_lost: Option<AnswerIfLost>,
}

impl EndGuard {
    fn returned(&self, answer: Result<String, String>, acknowledged: Option<Cow<'static, str>>) {
        let state = match acknowledged {
            Some(checkpoint) => {
                let evidence = Evidence::verified(EndProof::TaskEnded).and_observed_at(checkpoint);
                self.state.stopped(EndMethod::Acknowledged, evidence)
            }
            None => ItemState::Finished { after_ms: None },
        };
        let failed = answer.is_err();
        let (Ok(answer) | Err(answer)) = answer;
        self.record_end(state, Some(answer.into()), failed);
    }

    fn record_end(&self, state: ItemState, answer: Option<Arc<str>>, failed: bool) {
        // Only the first end is kept: if the future has returned, its later drop changes nothing.
        drop(self.state.end.set(BackgroundEnd {
            state,
            exit_code: None,
            answer,
            failed,
        }));
    }
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        if self.state.end.get().is_some() {
            return;
        }
        let answer = self
            .answer_if_lost
            .as_ref()
            .and_then(|AnswerIfLost(answer)| answer());
        if std::thread::panicking() {
            let evidence = Evidence::verified(EndProof::TaskEnded);
            let state = match self.state.stopped_at.get() {
                Some(_) => self.state.stopped(EndMethod::Failed, evidence),
                None => ItemState::Finished { after_ms: None },
            };
            let mut text = "the task panicked".to_owned();
            if let Some(answer) = answer {
                text.push('\n');
                text.push_str(&answer);
            }
            return self.record_end(state, Some(text.into()), true);
        }
        let how = if self.begun {
            EndMethod::Dropped
        } else {
            EndMethod::NotBegun
        };
        let evidence = Evidence::verified(EndProof::FutureDropped);
        let state = self.state.stopped(how, evidence);
        self.record_end(state, answer.map(Into::into), false);
    }
}
