//! Messages in a cluster. Every node (process of the cluster) can store a message for a task. The node first stores a
//! wake-up: an entry in a shared queue, through which a worker finds the task. A worker is a node that runs tasks.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{ContextId, MessageId, TaskId};
use allstop_log::{LogErrorKind, Version};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep, timeout};
use ulid::Ulid;

use super::admission::TaskReads;
use super::link::PutError;
use super::node::ClusterNode;
use crate::error::{ExecuteError, ReadTaskError, TaskStoreError};
use crate::manager::{
    AcceptedTask, ListFilter, ManagerInner, TaskManager, TaskRequest, TaskSummary, created,
};
use crate::model::{MessageSender, Task, TaskMessage, TaskRecord};
use crate::subscription::TaskSubscription;
use crate::task_stream::TaskStream;

const CONTEXT_PREFIX: &str = "context/";

/// Time in which a failed claim of a context is repeated, and the pause before each repetition. The servers accept no
/// writes while they elect a leader, and shortly after a store is created.
const CLAIM_MAX: Duration = Duration::from_secs(15);
const CLAIM_EVERY: Duration = Duration::from_millis(50);

/// Id of the task that a message starts. If an owner sends a message to several nodes, all of them compute the same id.
fn task_of(owner: &str, message: &MessageId) -> TaskId {
    let mut hash = Sha256::new();
    hash.update(u64::try_from(owner.len()).unwrap_or(u64::MAX).to_be_bytes());
    hash.update(owner);
    hash.update(message.as_str());
    let digest = hash.finalize();
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    TaskId::new(Ulid::from_bytes(id).to_string())
}

/// Decision about a message to an existing task.
enum FollowUpDecision {
    Store,
    IsRepeated,
}

fn check_follow_up(task: &Task, request: &TaskRequest) -> Result<FollowUpDecision, ExecuteError> {
    let id = || task.id.clone();
    if has_message(task, &request.message.id) {
        return Ok(FollowUpDecision::IsRepeated);
    }
    if task.has_ended() {
        let state = task.status.state;
        return Err(ExecuteError::Ended { id: id(), state });
    }
    if task.stop_requested.is_some() {
        return Err(ExecuteError::CancellationInProgress(id()));
    }
    if task.is_executing || task.awaits_execution {
        return Err(ExecuteError::ExecutionInProgress(id()));
    }
    let context = request.context_id.as_ref();
    if context.is_some_and(|context| *context != task.context_id) {
        return Err(ExecuteError::OtherContext(id()));
    }
    Ok(FollowUpDecision::Store)
}

fn has_message(task: &Task, id: &MessageId) -> bool {
    let of_client = |message: &&Arc<TaskMessage>| message.role == MessageSender::User;
    let mut messages = task.history.iter().filter(of_client);
    messages.any(|message| message.id == *id)
}

impl TaskManager {
    pub(crate) async fn execute_in_cluster(
        &self,
        node: &Arc<ClusterNode>,
        request: TaskRequest,
    ) -> Result<AcceptedTask, ExecuteError> {
        let permit = node.requests.acquire_permit()?;
        let (manager, own) = (self.clone(), Arc::clone(node));
        let accepted = node.requests.run_detached("message", async move {
            let _permit = permit;
            manager.accept(&own, request).await
        });
        accepted.await.unwrap_or(Err(ExecuteError::ShuttingDown))
    }

    async fn accept(
        &self,
        node: &ClusterNode,
        request: TaskRequest,
    ) -> Result<AcceptedTask, ExecuteError> {
        let message = Arc::new(request.message.clone());
        loop {
            if self.inner.occupancy().1 {
                return Err(ExecuteError::ShuttingDown);
            }
            let mut own_context = None;
            // Dropped after the message is stored.
            let _admitted;
            let reads = ClusterReads {
                manager: &self.inner,
                node,
            };
            let admit = async |id: &TaskId| node.admission.admit(&reads, id, &request.owner).await;
            let (id, before, record) = match &request.task_id {
                None => {
                    let context = request.context_or_new();
                    let id = task_of(&request.owner, &request.message.id);
                    _admitted = match admit(&id).await {
                        Ok(admitted) => admitted,
                        // A repetition starts nothing, so no limit applies.
                        Err(_full) if self.inner.stored(&id).await.is_ok() => {
                            return self.first_of(node, id, &request).await;
                        }
                        Err(full) => return Err(full),
                    };
                    let now = self.inner.now();
                    let record = created(&id, &context, &request, &message, now);
                    if request.context_id.is_some() {
                        node.claim_context(&context, &request.owner).await?;
                    } else {
                        own_context = Some(context);
                    }
                    (id, None, record)
                }
                Some(id) => {
                    let (version, task) = self.inner.stored(id).await?;
                    if let FollowUpDecision::IsRepeated = check_follow_up(&task, &request)? {
                        if task.awaits_execution {
                            // The first wake-up was stored before the record, perhaps long before. The queue may no
                            // longer contain this wake-up.
                            let woken = node.wake_for(id, version, self.inner.now()).await;
                            woken.map_err(TaskStoreError::from)?;
                        }
                        return self.repeated(id.clone()).await;
                    }
                    _admitted = admit(id).await?;
                    let record = TaskRecord::MessageReceived {
                        message: Arc::clone(&message),
                        trace: request.trace.clone(),
                        at: self.inner.now(),
                    };
                    (id.clone(), Some((version, task)), record)
                }
            };
            let is_new = before.is_none();
            // A client learns the id of a new context only from the answer, so the claim can run in parallel to the
            // append.
            let claimed = async {
                match &own_context {
                    Some(context) => node.claim_context(context, &request.owner).await,
                    None => Ok(()),
                }
            };
            let stored = self.store_message(node, &id, before, record);
            let (claimed, stored) = tokio::join!(claimed, stored);
            claimed?;
            match stored {
                Ok((version, task)) => {
                    node.index_now(version, &task).await.unwrap_or_else(|error| {
                        // The worker that runs the task writes the entry of the task in the index later.
                        tracing::debug!(%error, task = %id, "the entry of a task is written later");
                    });
                    let log = Arc::clone(&self.inner.log);
                    if let Some(observer) = &self.inner.options.observer {
                        observer.message_accepted();
                        node.accepted.add(&id, version);
                    }
                    let remote = self.inner.coordinator.remote_live_text(&task);
                    let records = TaskSubscription::from_snapshot(log, None, version, task, false);
                    return Ok(AcceptedTask {
                        task_id: id,
                        is_repeated: false,
                        subscription: records.with_remote(remote),
                    });
                }
                Err(TaskStoreError::Fenced(_)) if is_new => {
                    return self.first_of(node, id, &request).await;
                }
                // The task has changed since the read: decide again.
                Err(TaskStoreError::Fenced(_) | TaskStoreError::Illegal { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Answers a request for a new task if the id of the task exists already: an earlier copy of the message has
    /// created the task.
    async fn first_of(
        &self,
        node: &ClusterNode,
        id: TaskId,
        request: &TaskRequest,
    ) -> Result<AcceptedTask, ExecuteError> {
        let task = self.get_with_replies(&id).await?;
        debug_assert!(task.owner == request.owner, "ids are hashes");
        // The node that created the task may have ended before it claimed the context.
        node.claim_context(&task.context_id, &task.owner).await?;
        self.repeated(id).await
    }

    /// Stores a wake-up for a message, then the record of the message.
    async fn store_message(
        &self,
        node: &ClusterNode,
        id: &TaskId,
        before: Option<(Version, Arc<Task>)>,
        record: TaskRecord,
    ) -> Result<(Version, Arc<Task>), TaskStoreError> {
        let log = Arc::clone(&self.inner.log);
        let mut stream = match before {
            Some((version, task)) => TaskStream::after(log, version, &task),
            None => TaskStream::new(log, id.clone(), Arc::default()),
        };
        let awaited = stream.version().next();
        node.wake_for(id, awaited, self.inner.now()).await?;
        let max = self.inner.options.ending_write_max;
        let began = Instant::now();
        let stored = timeout(max, async {
            let mut stored = stream.append(vec![record]).await;
            while matches!(stored, Err(TaskStoreError::Indeterminate)) {
                stored = stream.settle().await;
            }
            stored
        });
        stored.await.unwrap_or(Err(TaskStoreError::Indeterminate))?;
        let record = stream.version();
        if record != awaited || began.elapsed() > max / 2 {
            // A late receipt (from a worker that has lost the task) may have taken the record number that the first
            // wake-up announces. Or the append was slow: the first wake-up reached its maximum of deliveries before the
            // record existed.
            node.wake_for(id, record, self.inner.now()).await?;
        }
        let task = stream.task().ok_or(TaskStoreError::NoAnswer)?;
        Ok((stream.version(), Arc::clone(task)))
    }
}

/// Reads of the tasks that the node counts.
struct ClusterReads<'a> {
    manager: &'a ManagerInner,
    node: &'a ClusterNode,
}

impl TaskReads for ClusterReads<'_> {
    async fn needs_worker(&self, id: &TaskId) -> bool {
        match self.manager.stored(id).await {
            Ok((_version, task)) => {
                !task.has_ended() && (task.is_executing || task.awaits_execution)
            }
            Err(ReadTaskError::NotFound(_)) => false,
            Err(ReadTaskError::Store(_)) => true,
        }
    }

    async fn open_tasks(&self) -> Result<Vec<(TaskId, Arc<str>)>, TaskStoreError> {
        let all = ListFilter::default();
        let page = self.node.list(&all, None, usize::MAX).await?;
        let open = page.tasks.into_iter().filter(TaskSummary::needs_worker);
        Ok(open.map(|task| (task.id, task.owner)).collect())
    }
}

impl ClusterNode {
    /// Assigns a context (a conversation, which may contain several tasks) to its first owner.
    async fn claim_context(
        &self,
        context: &ContextId,
        owner: &Arc<str>,
    ) -> Result<(), ExecuteError> {
        let key = format!("{CONTEXT_PREFIX}{context}");
        let failed = |error| ExecuteError::Store(TaskStoreError::Log(error));
        let until = Instant::now() + CLAIM_MAX;
        loop {
            if let Some(known) = self.link().entry(&key).await.map_err(failed)? {
                return if known.value == owner.as_bytes() {
                    Ok(())
                } else {
                    Err(ExecuteError::ContextOfOther(context.clone()))
                };
            }
            let put = self
                .link()
                .put(&key, owner.as_bytes().to_vec(), Some(0), None);
            match put.await {
                Ok(_) => return Ok(()),
                // Another node has stored an owner of the context first. A read may still return the state before that
                // write, so the loop repeats the read until the read returns the owner.
                Err(PutError::Conflict) => tokio::task::yield_now().await,
                // If the write was stored nevertheless, the next read returns its owner.
                Err(PutError::Unknown(error) | PutError::Failed(error))
                    if error.kind() == LogErrorKind::Unreachable && Instant::now() < until =>
                {
                    sleep(CLAIM_EVERY).await;
                }
                Err(PutError::Unknown(error) | PutError::Failed(error)) => {
                    return Err(failed(error));
                }
            }
        }
    }
}
