//! Deliveries for one webhook configuration: the events of its task, one after another, up to the last event.
//!
//! Invariants:
//! 1. An event is sent only after the receiver has accepted each earlier event.
//! 2. A delivery reads the log of its task from a cursor, which is an event number. The task never waits for the
//!    delivery.
//! 3. A delivery ends when its configuration is deleted, replaced or paused, after the last event of the task, or when
//!    the server ends.

use std::sync::Arc;

use a2a::{A2AError, StreamResponse};
use a2a_pb::protojson_conv;
use allstop_core::receipt::ItemKind;
use allstop_core::{TaskId, error_chain};
use allstop_log::Version;
use allstop_scope::{WorkCx, WorkSpec};
use allstop_task::{ReadTaskError, SubscriptionItem, Task, TaskRecord};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use ulid::Ulid;

use super::config::PushConfig;
use super::record::{ConfigProgress, DeliveryPhase, PushRecord};
use super::retry::{AttemptResult, DeliveryStep, EventAttempts};
use super::sender::WebhookEvent;
use super::shared::{DeliveryEnd, PushShared};
use crate::to_wire::{self, TaskDetail};
use crate::v0_3::event;
use crate::version::ProtocolVersion;

/// Starts the deliveries of a configuration. Starts nothing after a stop of the server; the next start of the server
/// continues the deliveries.
pub(crate) fn start(shared: &Arc<PushShared>, task: &TaskId, progress: &ConfigProgress) {
    let (config, set_at) = (Arc::clone(&progress.config), progress.set_at);
    let Some(end) = shared.link(task, &config.id, set_at) else {
        return;
    };
    let delivery = ConfigDelivery {
        shared: Arc::clone(shared),
        task_id: task.clone(),
        config,
        set_at,
        unsaved_since: None,
    };
    let spec = WorkSpec::new(
        ItemKind::Future,
        format!("push notifications of task {task}"),
    );
    // The scope owns the work, and no code needs its result.
    drop(shared.scope.spawn(spec, |cx| delivery.run(end, cx)));
}

/// Deliveries of one configuration.
struct ConfigDelivery {
    shared: Arc<PushShared>,
    task_id: TaskId,
    config: Arc<PushConfig>,
    set_at: Version,
    /// Delivery time of the first event that the log does not record as delivered; `None` if the log is up to date.
    unsaved_since: Option<Instant>,
}

/// Result of the deliveries up to the end of an execution of the task.
enum DeliveryFlow {
    /// The task continues later.
    Continue,
    /// No events follow.
    End,
}

impl ConfigDelivery {
    async fn run(mut self, mut end: DeliveryEnd, cx: WorkCx) {
        if let Some(previous) = end.previous.take() {
            previous.end().await;
        }
        tokio::select! {
            biased;
            _cause = cx.stopped_at("push notifications") => self.save().await,
            // The configuration was deleted or replaced. The record of a replacement already contains the progress.
            () = end.end.cancelled() => {}
            () = self.deliver_all() => {}
        }
        let Self {
            shared,
            task_id,
            config,
            set_at,
            ..
        } = &self;
        shared.forget(task_id, &config.id, *set_at);
    }

    async fn deliver_all(&mut self) {
        while let Some(progress) = self.progress()
            && progress.phase == DeliveryPhase::Active
        {
            match self.deliver_after(progress.delivered).await {
                Ok(DeliveryFlow::Continue) => {}
                Ok(DeliveryFlow::End) => return,
                Err(ReadTaskError::NotFound(_)) => return self.delete_all().await,
                // A later read would fail too. The configurations stay for a version that can read the task.
                Err(ReadTaskError::Store(error)) if error.is_unreadable() => {
                    tracing::warn!(task = %self.task_id, error = %error_chain(&error), "push notifications of a task that cannot be read end");
                    return;
                }
                Err(error) => {
                    tracing::warn!(task = %self.task_id, %error, "push notifications wait for the store");
                    sleep(self.shared.options.pause_min).await;
                }
            }
        }
    }

    /// Deletes the configurations of a task that does not exist.
    async fn delete_all(&self) {
        if let Err(error) = self.shared.store.delete(&self.task_id).await {
            tracing::warn!(task = %self.task_id, %error, "the webhooks of a deleted task stay until the next start");
        }
    }

    /// Returns the current progress. `None` if the configuration was deleted or replaced.
    fn progress(&self) -> Option<ConfigProgress> {
        let progress = self.shared.store.get(&self.task_id, &self.config.id);
        progress.filter(|progress| progress.set_at == self.set_at)
    }

    /// Delivers the events after a cursor, up to the end of an execution.
    async fn deliver_after(&mut self, cursor: Version) -> Result<DeliveryFlow, ReadTaskError> {
        let manager = &self.shared.manager;
        let task = manager.get_with_replies(&self.task_id).await?;
        let mut events = manager.subscribe(&self.task_id, Some(cursor)).await?;
        // A subscription without any event belongs to an ended task.
        let mut is_last = true;
        loop {
            let next = match self.unsaved_since {
                None => events.next().await,
                Some(since) => {
                    let save_at = since + self.shared.options.cursor_delay;
                    match timeout_at(save_at, events.next()).await {
                        Ok(next) => next,
                        Err(_elapsed) => {
                            self.save().await;
                            continue;
                        }
                    }
                }
            };
            let Some(item) = next else {
                break;
            };
            let SubscriptionItem::Update(update) = item? else {
                continue;
            };
            if let Some(event) = to_wire::event(&update.record, &task)
                && let Some(body) = self.body_of(event).await?
                && !self.deliver(&task, update.version, body).await
            {
                return Ok(DeliveryFlow::End);
            }
            let (store, id) = (&self.shared.store, &self.config.id);
            store.note_delivered(&self.task_id, id, self.set_at, update.version);
            let unsaved_since = *self.unsaved_since.get_or_insert_with(Instant::now);
            if unsaved_since.elapsed() >= self.shared.options.cursor_delay {
                // The progress must also be saved while events follow each other without a pause.
                self.save().await;
            }
            is_last = matches!(
                *update.record,
                TaskRecord::TaskEnded { .. } | TaskRecord::Replied { .. }
            );
        }
        if !is_last {
            return Ok(DeliveryFlow::Continue);
        }
        self.record_progress(true).await;
        Ok(DeliveryFlow::End)
    }

    /// Returns the body of a delivery; `None` if the webhook does not get this event. In version 0.3, a webhook gets the
    /// current task after each change of its status.
    async fn body_of(
        &self,
        event: StreamResponse,
    ) -> Result<Option<Result<Value, A2AError>>, ReadTaskError> {
        if self.config.version == ProtocolVersion::V1 {
            let body = protojson_conv::to_value(&event);
            return Ok(Some(
                body.map_err(|error| A2AError::internal(error.to_string())),
            ));
        }
        let event = match event {
            StreamResponse::ArtifactUpdate(_) => return Ok(None),
            StreamResponse::StatusUpdate(_) => {
                let task = self.shared.manager.get_with_replies(&self.task_id).await?;
                StreamResponse::Task(to_wire::task(&task, TaskDetail::with_history(None)))
            }
            event => event,
        };
        Ok(Some(event::event(event)))
    }

    /// Delivers one event. Returns true if the next event may follow.
    async fn deliver(
        &mut self,
        task: &Task,
        number: Version,
        body: Result<Value, A2AError>,
    ) -> bool {
        let body = match body {
            Ok(body) => body.to_string(),
            Err(error) => {
                self.pause(&format!(
                    "event {number} cannot be written as JSON: {error}"
                ))
                .await;
                return false;
            }
        };
        let event = WebhookEvent::new(&self.task_id, &self.config, number, body);
        let host = self.config.host_and_port();
        let mut attempts = EventAttempts::default();
        loop {
            let result = {
                let _slot = self.shared.slots.acquire(&task.owner, &host).await;
                let client = &self.shared.client;
                client.attempt(&self.config, &task.owner, &event).await
            };
            let random = Ulid::generate().random() as u64;
            let options = &self.shared.options;
            match attempts.decide(&result, options, Instant::now(), random) {
                DeliveryStep::Delivered => return true,
                DeliveryStep::Delete => {
                    self.delete().await;
                    return false;
                }
                DeliveryStep::Pause => {
                    self.pause(&text_of(&result)).await;
                    return false;
                }
                DeliveryStep::Repeat(pause) => {
                    tracing::debug!(
                        task = %self.task_id, host, event = %number, failures = attempts.failures(),
                        reason = text_of(&result), "a push notification is repeated"
                    );
                    // The pause may be long, and a crash during the pause must not cause repetitions of the earlier
                    // events.
                    self.save().await;
                    sleep(pause).await;
                }
            }
        }
    }

    /// Records the progress in the log, unless the log is up to date.
    async fn save(&mut self) {
        if self.unsaved_since.is_some() {
            self.record_progress(false).await;
        }
    }

    async fn record_progress(&mut self, is_last: bool) {
        self.unsaved_since = None;
        let id = &self.config.id;
        self.record(|progress| PushRecord::Delivered {
            id: Arc::clone(id),
            up_to: progress.delivered,
            is_last,
        })
        .await;
    }

    async fn delete(&self) {
        tracing::info!(task = %self.task_id, host = self.config.host_and_port(), "a webhook answered 410: its configuration is deleted");
        let id = &self.config.id;
        self.record(|_| PushRecord::ConfigDeleted { id: Arc::clone(id) })
            .await;
    }

    async fn pause(&mut self, error: &str) {
        self.save().await;
        tracing::warn!(
            task = %self.task_id, host = self.config.host_and_port(), error,
            "push notifications are paused; setting the configuration again continues after the last delivered event"
        );
        let id = &self.config.id;
        self.record(|_| PushRecord::DeliveryPaused {
            id: Arc::clone(id),
            error: error.to_owned(),
        })
        .await;
    }

    /// Writes a record, unless the configuration was deleted or replaced. If the write fails, events are delivered
    /// again after the next start of the server, but no event is lost.
    async fn record(&self, record: impl Fn(&ConfigProgress) -> PushRecord) {
        let changed = self.shared.store.change(&self.task_id, |configs| {
            let progress = configs.configs.get(&self.config.id);
            let progress = progress.filter(|progress| progress.set_at == self.set_at);
            Ok::<_, std::convert::Infallible>(progress.map(&record).into_iter().collect())
        });
        if let Err(error) = changed.await {
            tracing::warn!(task = %self.task_id, ?error, "the progress of push notifications is not stored");
        }
    }
}

/// Describes the reason of a failure, for logs.
fn text_of(result: &AttemptResult) -> String {
    match result {
        AttemptResult::Answered(status, _) => format!("HTTP status {status}"),
        AttemptResult::Failed(reason) => reason.clone(),
    }
}
