//! Messages that start executions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use allstop_core::{ContextId, TaskId, Timestamp, TraceContext};
use ulid::Ulid;

use super::slots::SlotAnswer;
use super::{ManagerInner, TaskManager};
use crate::error::ExecuteError;
use crate::execution::{
    Acceptance, Execution, ExecutionHost, ExecutionJob, SlotGuard, SlotRequest, WaitingSlot,
    user_code,
};
use crate::feed::TaskFeed;
use crate::model::{JsonMap, TaskMessage, TaskRecord};
use crate::subscription::TaskSubscription;

/// Message that starts an execution.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TaskRequest {
    /// Principal that sends the message.
    pub owner: Arc<str>,
    /// The task that the message continues; no execution of this task may run. `None` for a new task.
    pub task_id: Option<TaskId>,
    /// Context of the task. `None` means that a new task gets a new context. A context belongs to the owner of its
    /// first task.
    pub context_id: Option<ContextId>,
    /// The message. If a message with this id was accepted before, the request starts no execution.
    pub message: TaskMessage,
    /// Additional fields from the request. They are stored with a new task.
    pub metadata: JsonMap,
    /// W3C trace context of the request, for the execution that the request starts.
    pub trace: Option<TraceContext>,
}

impl TaskRequest {
    /// Creates the request of a principal for a new task in a new context.
    pub fn new(owner: impl Into<Arc<str>>, message: TaskMessage) -> Self {
        Self {
            owner: owner.into(),
            task_id: None,
            context_id: None,
            message,
            metadata: JsonMap::new(),
            trace: None,
        }
    }

    /// Sets the owner.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<Arc<str>>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Sets the task that the message continues.
    #[must_use]
    pub fn task(mut self, id: impl Into<Option<TaskId>>) -> Self {
        self.task_id = id.into();
        self
    }

    /// Sets the context.
    #[must_use]
    pub fn context(mut self, id: impl Into<Option<ContextId>>) -> Self {
        self.context_id = id.into();
        self
    }

    /// Sets the additional fields.
    #[must_use]
    pub fn metadata(mut self, metadata: JsonMap) -> Self {
        self.metadata = metadata;
        self
    }

    /// Sets the trace context.
    #[must_use]
    pub fn trace(mut self, trace: impl Into<Option<TraceContext>>) -> Self {
        self.trace = trace.into();
        self
    }

    /// Context of the new task: the context from the request, or a new one.
    pub(crate) fn context_or_new(&self) -> ContextId {
        let new = || ContextId::new(Ulid::generate().to_string());
        self.context_id.clone().unwrap_or_else(new)
    }
}

/// Accepted message. The message is durable, and its execution runs or waits for a slot.
#[derive(Debug)]
pub struct AcceptedTask {
    /// The task.
    pub task_id: TaskId,
    /// True if the message was accepted before. This request has started no execution.
    pub is_repeated: bool,
    /// The events of the task: first a snapshot, then every later record.
    pub subscription: TaskSubscription,
}

/// Answer of the table to a request.
enum RequestAdmission {
    /// The message was received before. Its execution, if there is one, may not be accepted yet.
    Repeated(TaskId, Option<Arc<Execution>>),
    /// An execution is about to end: wait for its release, and then repeat the request.
    Wait(Arc<Execution>),
    /// The engine of the new execution (the Tokio task that drives it) has started.
    Started(TaskId, Arc<TaskFeed>, Acceptance),
}

impl TaskManager {
    pub(super) async fn execute_locally(
        &self,
        request: TaskRequest,
    ) -> Result<AcceptedTask, ExecuteError> {
        let message = Arc::new(request.message.clone());
        loop {
            match self.inner.admit(&request, &message)? {
                RequestAdmission::Wait(execution) => execution.released().await,
                RequestAdmission::Repeated(id, execution) => {
                    if let Some(execution) = execution {
                        execution.accepted().await?;
                    }
                    return self.repeated(id).await;
                }
                RequestAdmission::Started(task_id, feed, acceptance) => {
                    let accepted = acceptance.await.unwrap_or(Err(ExecuteError::ShuttingDown));
                    let (version, task) = accepted?;
                    let log = Arc::clone(&self.inner.log);
                    return Ok(AcceptedTask {
                        task_id,
                        is_repeated: false,
                        subscription: TaskSubscription::from_snapshot(
                            log,
                            Some(feed),
                            version,
                            task,
                            false,
                        )
                        .of_execution(),
                    });
                }
            }
        }
    }

    pub(crate) async fn repeated(&self, task_id: TaskId) -> Result<AcceptedTask, ExecuteError> {
        let subscription = self.subscribe_to_execution(&task_id, None).await?;
        Ok(AcceptedTask {
            task_id,
            is_repeated: true,
            subscription,
        })
    }
}

impl ManagerInner {
    /// Decides about a request. If the request is accepted, enters its execution in the table, in the same step and
    /// under the lock of the table. The engine starts afterwards.
    fn admit(
        self: &Arc<Self>,
        request: &TaskRequest,
        message: &Arc<TaskMessage>,
    ) -> Result<RequestAdmission, ExecuteError> {
        // Read before the table is locked, because the clock is code of the embedding program.
        let now = self.now();
        let owner = &request.owner;
        let mut table = self.table.lock();
        if table.is_closed || table.is_draining {
            return Err(ExecuteError::ShuttingDown);
        }
        let since = self.options.repetition_max.map(|max| {
            let ms = i64::try_from(max.as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_unix_ms(now.unix_ms().saturating_sub(ms))
        });
        if let Some(id) = table.task_of_message(owner, &message.id, since) {
            return Ok(RequestAdmission::Repeated(id.clone(), table.execution(id)));
        }
        if let Some(id) = &request.task_id {
            let ending = table.check_message(id, request.context_id.as_ref())?;
            if let Some(ending) = ending {
                return Ok(RequestAdmission::Wait(ending));
            }
        }
        if request.task_id.is_none()
            && let Some(context) = &request.context_id
        {
            table.check_context(context, owner)?;
        }
        let id = request.task_id.clone();
        let id = id.unwrap_or_else(|| TaskId::new(Ulid::generate().to_string()));
        let scopes = self.new_execution(&id, request.trace.clone(), None);
        let scopes = scopes.map_err(|_stopped| ExecuteError::ShuttingDown)?;
        let answer = table.slots.request(owner);
        if let SlotAnswer::Full(reason) = answer {
            return Err(ExecuteError::Full(reason));
        }
        let execution = Arc::clone(&scopes.execution);
        let (feed, job) = if request.task_id.is_none() {
            let (feed, context) = (Arc::default(), request.context_or_new());
            table.enter_new(&id, &context, owner, execution, &feed);
            (
                feed,
                ExecutionJob::NewTask(created(&id, &context, request, message, now)),
            )
        } else {
            table.enter(&id, execution);
            let job = ExecutionJob::Message {
                owner: Arc::clone(owner),
                message: Arc::clone(message),
            };
            (table.feed(&id).unwrap_or_default(), job)
        };
        table.remember_message(owner, &message.id, &id, now);
        let slot = Some((answer, owner));
        let acceptance = self.start_engine(table, scopes, &id, Arc::clone(&feed), job, slot);
        Ok(RequestAdmission::Started(id, feed, acceptance))
    }

    /// Asks the executor whether it permits this id of a context.
    pub(super) fn check_context(&self, context: &ContextId) -> Result<(), ExecuteError> {
        let Some(parts) = &self.shared_parts else {
            return Ok(());
        };
        let checked = catch_unwind(AssertUnwindSafe(|| parts.executor.check_context(context)));
        let checked = checked.unwrap_or_else(|panic| {
            user_code::report("check_context", self.options.on_panic.as_ref(), &*panic);
            // The execution decides in this case.
            Ok(())
        });
        checked.map_err(ExecuteError::InvalidContext)
    }

    /// Wraps the slot, or the position in the queue, in a guard. The caller must not hold the lock of the table,
    /// because a dropped guard takes this lock.
    pub(super) fn slot_request(
        self: &Arc<Self>,
        answer: SlotAnswer,
        owner: &Arc<str>,
    ) -> SlotRequest {
        let manager = Arc::downgrade(self);
        let (host, owner): (Weak<dyn ExecutionHost>, _) = (manager, Arc::clone(owner));
        match answer {
            SlotAnswer::Granted => SlotRequest::Granted(SlotGuard::new(host, owner)),
            SlotAnswer::Waiting(grant) => {
                SlotRequest::Waiting(WaitingSlot::new(grant, host, owner))
            }
            SlotAnswer::Full(_) => SlotRequest::NotNeeded,
        }
    }
}

/// Creates the first record of a new task.
pub(crate) fn created(
    id: &TaskId,
    context: &ContextId,
    request: &TaskRequest,
    message: &Arc<TaskMessage>,
    at: Timestamp,
) -> TaskRecord {
    TaskRecord::TaskCreated {
        task_id: id.clone(),
        context_id: context.clone(),
        owner: Arc::clone(&request.owner),
        message: Arc::clone(message),
        metadata: request.metadata.clone(),
        trace: request.trace.clone(),
        at,
    }
}
