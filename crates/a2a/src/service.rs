//! The operations of the protocol, implemented with one task manager.

use std::sync::Arc;

use a2a::{
    A2AError, AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse,
    ListTasksRequest, ListTasksResponse, SendMessageRequest, SendMessageResponse, StreamResponse,
    SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use a2a_server::{RequestHandler, ServiceParams};
use allstop_core::{ContextId, TaskId, TraceContext};
use allstop_log::Version;
use allstop_task::{
    AcceptedTask, CancelError, ReadTaskError, SubscriptionItem, Task, TaskManager, TaskRecord,
    TaskRequest, TaskSubscription,
};
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;

use crate::access::principal_of;
use crate::events::{self, NumberedEvent, StreamStart};
use crate::listing::ReportedTasks;
use crate::push::{PushConfig, PushNotifications};
use crate::response_memory::{ResponseMemory, TASK_BYTES, json_bytes};
use crate::to_wire::{self, TaskDetail};
use crate::version::ProtocolVersion;
use crate::{card, errors, from_wire, receipt_extension};

/// Header with the number of the last event that a client has received.
pub(crate) const LAST_EVENT_ID: &str = "last-event-id";

/// Operations of A2A 1.0 on a task manager. A principal (the authenticated sender of a request) sees only its own
/// tasks. Tasks of other principals are reported as not found.
#[derive(Debug)]
pub struct A2aService {
    pub(crate) manager: TaskManager,
    /// MIME types of parts that the agent accepts; all if empty.
    input_modes: Vec<String>,
    extended_card: Option<AgentCard>,
    push: Option<PushNotifications>,
    pub(crate) memory: Arc<ResponseMemory>,
    pub(crate) reported: ReportedTasks,
}

impl A2aService {
    /// Creates a service for this manager.
    pub fn new(manager: TaskManager) -> Self {
        Self {
            manager,
            input_modes: Vec::new(),
            extended_card: None,
            push: None,
            memory: Arc::default(),
            reported: ReportedTasks::default(),
        }
    }

    /// Restricts the accepted MIME types of parts to this list.
    #[must_use]
    pub fn input_modes(mut self, input_modes: Vec<String>) -> Self {
        self.input_modes = input_modes;
        self
    }

    /// Sets the card for authenticated clients.
    #[must_use]
    pub fn extended_card(mut self, card: AgentCard) -> Self {
        self.extended_card = Some(card);
        self
    }

    /// Enables push notifications.
    #[must_use]
    pub fn push(mut self, push: PushNotifications) -> Self {
        self.push = Some(push);
        self
    }

    /// Declares in a card whether this service sends push notifications.
    pub(crate) fn with_capabilities(&self, mut card: AgentCard) -> AgentCard {
        card.capabilities.push_notifications = Some(self.push.is_some());
        card
    }

    fn push_notifications(&self) -> Result<&PushNotifications, A2AError> {
        let push = self.push.as_ref();
        push.ok_or_else(A2AError::push_notification_not_supported)
    }

    /// Returns the task, if the principal owns it.
    pub(crate) async fn task_of(
        &self,
        params: &ServiceParams,
        id: &str,
    ) -> Result<Arc<Task>, A2AError> {
        let memory = self.memory.of(params);
        memory.reserve(TASK_BYTES).await;
        let task = self.owned_task(params, id).await;
        memory.release();
        task
    }

    /// Returns the task as a value of the protocol, if the principal owns it.
    async fn built_task(
        &self,
        params: &ServiceParams,
        id: &str,
        detail: TaskDetail,
    ) -> Result<a2a::Task, A2AError> {
        let memory = self.memory.of(params);
        let mut wanted = TASK_BYTES;
        loop {
            memory.reserve(wanted).await;
            let task = self.owned_task(params, id).await?;
            wanted = to_wire::bytes(&task, detail);
            if memory.fits(wanted) {
                let mut built = to_wire::task(&task, detail);
                if self.manager.waits_for_take_over(&task) {
                    receipt_extension::add_lost_worker(&mut built.metadata);
                }
                return Ok(built);
            }
        }
    }

    async fn owned_task(&self, params: &ServiceParams, id: &str) -> Result<Arc<Task>, A2AError> {
        let id = TaskId::from(id);
        let task = self.manager.get(&id).await;
        let task = task.map_err(|error| errors::of_read(&error))?;
        if task.owner != principal_of(params) {
            return Err(errors::not_found(&id));
        }
        Ok(task)
    }

    async fn execute(
        &self,
        params: &ServiceParams,
        request: SendMessageRequest,
    ) -> Result<AcceptedTask, A2AError> {
        let configuration = request.configuration;
        let webhook = configuration.and_then(|c| c.task_push_notification_config);
        let push = webhook.as_ref().map(|_| self.push_notifications());
        let push = push.transpose()?;
        let mut media_types = request
            .message
            .parts
            .iter()
            .filter_map(|p| p.media_type.as_ref());
        if !self.input_modes.is_empty()
            && media_types.any(|given| !self.input_modes.contains(given))
        {
            return Err(A2AError::content_type_not_supported());
        }
        let task_id = request.message.task_id.clone();
        if let Some(id) = &task_id {
            // A task of another principal is reported as not found, before any other check reveals facts about it.
            self.task_of(params, id).await?;
        }
        let context_id = request.message.context_id.clone();
        if let Some(context) = &context_id {
            from_wire::check_id("message.contextId", context)?;
        }
        // The configuration of the webhook is checked first. If the configuration is invalid, the message is not
        // accepted.
        let webhook = webhook.zip(push);
        let webhook = webhook.map(|(config, push)| {
            let version = ProtocolVersion::of_params(params);
            let config: Arc<PushConfig> = push.check(task_id.as_deref(), config, version)?;
            Ok::<_, A2AError>((push, config))
        });
        let webhook = webhook.transpose()?;
        let message = from_wire::message(request.message)?;
        let request = TaskRequest::new(principal_of(params), message)
            .task(task_id.map(TaskId::from))
            .context(context_id.map(ContextId::from))
            .metadata(from_wire::map(request.metadata))
            .trace(trace_of(params));
        if let Some((push, config)) = webhook {
            return push.execute(request, config).await;
        }
        let accepted = self.manager.execute(request).await;
        accepted.map_err(|error| errors::of_execute(&error))
    }

    /// Returns the response for a client that waits: the reply message, or the task when it has ended or waits for the
    /// client.
    async fn wait_for_answer(
        &self,
        params: &ServiceParams,
        mut accepted: AcceptedTask,
        detail: TaskDetail,
        returns_at_once: bool,
    ) -> Result<SendMessageResponse, A2AError> {
        let memory = self.memory.of(params);
        let mut first = None;
        while let Some(item) = accepted.subscription.next().await {
            match item.map_err(|error| errors::of_read(&error))? {
                SubscriptionItem::Snapshot(_, task) => {
                    let is_answer = accepted.is_repeated && task.status.state.answers_client();
                    if let Some(reply) = &task.reply {
                        memory.ensure(json_bytes(reply)).await;
                        return Ok(SendMessageResponse::Message(to_wire::reply(reply, &task)));
                    }
                    if returns_at_once || is_answer {
                        memory.ensure(to_wire::bytes(&task, detail)).await;
                        return Ok(SendMessageResponse::Task(to_wire::task(&task, detail)));
                    }
                    first = Some(task);
                }
                SubscriptionItem::Update(update) => match (&*update.record, &first) {
                    (TaskRecord::Replied { message, .. }, Some(task)) => {
                        memory.ensure(json_bytes(message)).await;
                        return Ok(SendMessageResponse::Message(to_wire::reply(message, task)));
                    }
                    (TaskRecord::StatusChanged { status, .. }, _)
                        if status.state.answers_client() =>
                    {
                        break;
                    }
                    _ => {}
                },
            }
        }
        let id = accepted.task_id.clone();
        // The subscription holds the task as it was before.
        drop((accepted, first));
        let built = self.built_task(params, id.as_str(), detail).await;
        built.map(SendMessageResponse::Task)
    }

    /// Sends a message. Returns the numbered events of the execution that the message starts.
    pub(crate) async fn send_numbered(
        &self,
        params: &ServiceParams,
        request: SendMessageRequest,
    ) -> Result<BoxStream<'static, NumberedEvent>, A2AError> {
        let detail = detail_of(&request);
        // The header `Last-Event-ID` is checked first. If its number is invalid, the message is not accepted.
        let last_event = last_event_id(params)?;
        let continues = request.message.task_id.is_some();
        let accepted = self.execute(params, request).await?;
        if let (true, Some(cursor)) = (accepted.is_repeated, last_event) {
            let id = &accepted.task_id;
            self.check_cursor(id, cursor).await?;
            let subscription = self.manager.subscribe_to_execution(id, Some(cursor)).await;
            return self.continued(params, id, subscription, detail).await;
        }
        let start = if continues {
            StreamStart::Task
        } else {
            StreamStart::TaskOrReply
        };
        // This task is used only until the first event, which is a snapshot of the task.
        let memory = self.memory.of(params);
        memory.reserve(TASK_BYTES).await;
        let task = self.manager.get_with_replies(&accepted.task_id).await;
        let task = task.map_err(|error| errors::of_read(&error))?;
        Ok(events::numbered(
            accepted.subscription,
            &task,
            start,
            detail,
            memory,
        ))
    }

    /// Returns the numbered events of a task. The stream begins after the event number that the client has sent. If the
    /// client has sent none, the stream begins with a snapshot of the task.
    pub(crate) async fn subscribe_numbered(
        &self,
        params: &ServiceParams,
        request: SubscribeToTaskRequest,
    ) -> Result<BoxStream<'static, NumberedEvent>, A2AError> {
        let memory = self.memory.of(params);
        memory.reserve(TASK_BYTES).await;
        let task = self.owned_task(params, &request.id).await?;
        let detail = TaskDetail::with_history(None);
        if let Some(cursor) = last_event_id(params)? {
            self.check_cursor(&task.id, cursor).await?;
            let subscription = self.manager.subscribe(&task.id, Some(cursor)).await;
            return self.continued(params, &task.id, subscription, detail).await;
        }
        if task.has_ended() {
            return Err(A2AError::unsupported_operation(format!(
                "task {} has ended ({}); read it with GetTask",
                task.id, task.status.state
            )));
        }
        let subscription = self.manager.subscribe(&task.id, None).await;
        let subscription = subscription.map_err(|error| errors::of_read(&error))?;
        let start = StreamStart::Task;
        Ok(events::numbered(subscription, &task, start, detail, memory))
    }

    /// Refuses a cursor that is greater than the number of the last event. Such a number belongs to another task, or to
    /// another store, and the stream would omit all further events up to this number.
    async fn check_cursor(&self, id: &TaskId, cursor: Version) -> Result<(), A2AError> {
        let last = self.manager.last_event(id).await;
        let last = last.map_err(|error| errors::of_read(&error))?;
        if cursor > last {
            return Err(A2AError::invalid_params(format!(
                "Last-Event-ID {cursor} is greater than {last}, the last event of the task: subscribe without it"
            )));
        }
        Ok(())
    }

    async fn continued(
        &self,
        params: &ServiceParams,
        id: &TaskId,
        subscription: Result<TaskSubscription, ReadTaskError>,
        detail: TaskDetail,
    ) -> Result<BoxStream<'static, NumberedEvent>, A2AError> {
        let memory = self.memory.of(params);
        memory.reserve(TASK_BYTES).await;
        let task = self.manager.get_with_replies(id).await;
        // The stream begins with an update, which may come late.
        memory.release();
        let task = task.map_err(|error| errors::of_read(&error))?;
        let subscription = subscription.map_err(|error| errors::of_read(&error))?;
        let start = StreamStart::Update;
        Ok(events::numbered(subscription, &task, start, detail, memory))
    }
}

/// Returns the trace context of the request; `None` without a valid header `traceparent`.
fn trace_of(params: &ServiceParams) -> Option<TraceContext> {
    let header = |name: &str| params.get(name).map(|values| values.join(","));
    let trace = TraceContext::new(params.get("traceparent")?.first()?)?;
    Some(
        trace
            .with_tracestate(&header("tracestate").unwrap_or_default())
            .with_baggage(&header("baggage").unwrap_or_default()),
    )
}

fn detail_of(request: &SendMessageRequest) -> TaskDetail {
    let configuration = request.configuration.as_ref();
    TaskDetail::with_history(configuration.and_then(|c| c.history_length))
}

/// Returns the number of the last event that the client has received.
fn last_event_id(params: &ServiceParams) -> Result<Option<Version>, A2AError> {
    let Some(id) = params.get(LAST_EVENT_ID).and_then(|ids| ids.first()) else {
        return Ok(None);
    };
    let number = id.trim().parse();
    let number = number.map_err(|_| A2AError::invalid_params("Last-Event-ID is not a number"))?;
    Ok(Some(Version(number)))
}

fn unnumbered(
    events: BoxStream<'static, NumberedEvent>,
) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
    events
        .map(|event| event.map(|(_number, event)| event))
        .boxed()
}

#[async_trait]
impl RequestHandler for A2aService {
    async fn send_message(
        &self,
        params: &ServiceParams,
        request: SendMessageRequest,
    ) -> Result<SendMessageResponse, A2AError> {
        let detail = detail_of(&request);
        let configuration = request.configuration.as_ref();
        let returns_at_once = configuration.and_then(|c| c.return_immediately) == Some(true);
        let accepted = self.execute(params, request).await?;
        self.wait_for_answer(params, accepted, detail, returns_at_once)
            .await
    }

    async fn send_streaming_message(
        &self,
        params: &ServiceParams,
        request: SendMessageRequest,
    ) -> Result<BoxStream<'static, Result<StreamResponse, A2AError>>, A2AError> {
        self.send_numbered(params, request).await.map(unnumbered)
    }

    async fn get_task(
        &self,
        params: &ServiceParams,
        request: GetTaskRequest,
    ) -> Result<a2a::Task, A2AError> {
        let detail = TaskDetail::with_history(request.history_length);
        self.built_task(params, &request.id, detail).await
    }

    async fn list_tasks(
        &self,
        params: &ServiceParams,
        request: ListTasksRequest,
    ) -> Result<ListTasksResponse, A2AError> {
        self.list(params, request).await
    }

    async fn cancel_task(
        &self,
        params: &ServiceParams,
        request: CancelTaskRequest,
    ) -> Result<a2a::Task, A2AError> {
        let task = self.task_of(params, &request.id).await?;
        let principal = principal_of(params);
        let cause = receipt_extension::requested_cause(request.metadata.as_ref(), &principal);
        let memory = self.memory.of(params);
        let detail = TaskDetail::with_history(None);
        Ok(match self.manager.cancel(&task.id, cause).await {
            Ok(outcome) => {
                memory.ensure(to_wire::bytes(&outcome.task, detail)).await;
                let mut wire = to_wire::task(&outcome.task, detail);
                if outcome.covers_orphans() {
                    let metadata = wire.metadata.get_or_insert_default();
                    receipt_extension::add_orphan_receipt(metadata, &outcome.receipt);
                }
                wire
            }
            Err(CancelError::NotYet { task, delivery }) => {
                memory.ensure(to_wire::bytes(&task, detail)).await;
                let mut wire = to_wire::task(&task, detail);
                let metadata = wire.metadata.get_or_insert_default();
                receipt_extension::add_requested_stop(metadata, delivery.as_str());
                wire
            }
            Err(error) => return Err(errors::of_cancel(&error)),
        })
    }

    async fn subscribe_to_task(
        &self,
        params: &ServiceParams,
        request: SubscribeToTaskRequest,
    ) -> Result<BoxStream<'static, Result<StreamResponse, A2AError>>, A2AError> {
        self.subscribe_numbered(params, request)
            .await
            .map(unnumbered)
    }

    async fn create_push_config(
        &self,
        params: &ServiceParams,
        request: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig, A2AError> {
        let push = self.push_notifications()?;
        let task = self.task_of(params, &request.task_id).await?;
        let version = ProtocolVersion::of_params(params);
        push.create(&task, request, version).await
    }

    async fn get_push_config(
        &self,
        params: &ServiceParams,
        request: GetTaskPushNotificationConfigRequest,
    ) -> Result<TaskPushNotificationConfig, A2AError> {
        let push = self.push_notifications()?;
        let task = self.task_of(params, &request.task_id).await?;
        push.get(&task, &request.id)
    }

    async fn list_push_configs(
        &self,
        params: &ServiceParams,
        request: ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse, A2AError> {
        let push = self.push_notifications()?;
        let task = self.task_of(params, &request.task_id).await?;
        push.list(&task, &request)
    }

    async fn delete_push_config(
        &self,
        params: &ServiceParams,
        request: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<(), A2AError> {
        let push = self.push_notifications()?;
        let task = self.task_of(params, &request.task_id).await?;
        push.delete(&task, &request.id).await
    }

    async fn get_extended_agent_card(
        &self,
        params: &ServiceParams,
        _request: GetExtendedAgentCardRequest,
    ) -> Result<AgentCard, A2AError> {
        let card = self.extended_card.as_ref();
        let card = card.ok_or_else(A2AError::extended_card_not_configured)?;
        let card = card::for_principal(card, &principal_of(params));
        Ok(self.with_capabilities(card))
    }
}
