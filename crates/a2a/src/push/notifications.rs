//! Operations of the protocol on the webhooks of tasks, for the service.

use std::sync::Arc;

use a2a::{
    A2AError, ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig, error_code,
};
use allstop_core::TaskId;
use allstop_core::receipt::ItemKind;
use allstop_log::{Log, Version};
use allstop_scope::{Scope, WorkSpec};
use allstop_task::{AcceptedTask, Task, TaskManager, TaskRequest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::config::PushConfig;
use super::delivery;
use super::options::PushOptions;
use super::record::{ConfigProgress, DeliveryPhase, PushRecord, TaskPushConfigs};
use super::sender::WebhookClient;
use super::shared::PushShared;
use super::store::{ChangeError, PushStore, PushStoreError};
use crate::errors;
use crate::overload::Overload;
use crate::version::ProtocolVersion;

/// Default and maximum number of configurations per page.
const PAGE_LEN_MAX: usize = 100;

/// Push notifications of one task manager. Clones refer to the same push notifications.
#[derive(Debug, Clone)]
pub struct PushNotifications {
    pub(super) shared: Arc<PushShared>,
}

/// Reason why push notifications cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenPushError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] PushStoreError),
    /// The HTTP client cannot be created.
    #[error("cannot create the HTTP client of push notifications")]
    Client(#[from] reqwest::Error),
}

impl PushNotifications {
    /// Reads the configurations of a store, and resumes their deliveries after the last delivered event. `log` is the
    /// log of the task manager. Deliveries run in `scope`: a stop of the scope ends the deliveries, and the next call
    /// of this function resumes the deliveries.
    ///
    /// # Cancel safety
    /// Dropping the future opens nothing.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read, or if this system has no certificates to verify webhooks.
    pub async fn open(
        manager: TaskManager,
        log: Arc<dyn Log>,
        scope: Scope,
        options: PushOptions,
    ) -> Result<Self, OpenPushError> {
        let client = WebhookClient::new(&options)?;
        let store = PushStore::open(log).await?;
        let shared = Arc::new(PushShared::new(manager, store, client, scope, options));
        for (task, progress) in shared.store.all() {
            if progress.phase == DeliveryPhase::Active {
                delivery::start(&shared, &task, &progress);
            }
        }
        Ok(Self { shared })
    }

    /// Number of configurations with deliveries that are neither finished nor paused.
    pub fn active(&self) -> usize {
        self.shared.linked()
    }

    /// Sets a webhook configuration of a task. Notifications begin after the last record of the task's log. If the task
    /// already has a configuration with this id, the new configuration replaces the old one. In this case notifications
    /// resume after the last event that was delivered for the old configuration.
    pub(crate) async fn create(
        &self,
        task: &Task,
        config: TaskPushNotificationConfig,
        version: ProtocolVersion,
    ) -> Result<TaskPushNotificationConfig, A2AError> {
        let config = PushConfig::from_wire(config, version, &self.shared.guard)?;
        let config = Arc::new(config);
        let (shared, task) = (Arc::clone(&self.shared), task.id.clone());
        self.owned(async move {
            let subscription = shared.manager.subscribe(&task, None).await;
            let subscription = subscription.map_err(|error| errors::of_read(&error))?;
            set(&shared, &task, &config, subscription.cursor(), false).await?;
            Ok(config.to_wire(&task))
        })
        .await
    }

    /// Checks the webhook configuration in a message before the message is accepted.
    pub(crate) fn check(
        &self,
        message_task: Option<&str>,
        config: TaskPushNotificationConfig,
        version: ProtocolVersion,
    ) -> Result<Arc<PushConfig>, A2AError> {
        if !config.task_id.is_empty() && message_task != Some(config.task_id.as_str()) {
            return Err(A2AError::invalid_params(
                "taskPushNotificationConfig.taskId must be empty",
            ));
        }
        let config = PushConfig::from_wire(config, version, &self.shared.guard)?;
        if let Some(task) = message_task {
            let known = self.shared.store.of_task(&TaskId::from(task));
            let is_new = known.iter().all(|known| known.config.id != config.id);
            self.check_room(known.len(), is_new)?;
        }
        Ok(Arc::new(config))
    }

    fn check_room(&self, len: usize, is_new: bool) -> Result<(), A2AError> {
        check_room(len, is_new, self.shared.options.configs_per_task_max)
    }

    /// Accepts a message, and sets its webhook configuration. Notifications begin with the record of the message. Both
    /// steps happen even if the client disconnects between the steps.
    pub(crate) async fn execute(
        &self,
        request: TaskRequest,
        config: Arc<PushConfig>,
    ) -> Result<AcceptedTask, A2AError> {
        let shared = Arc::clone(&self.shared);
        self.owned(async move {
            let accepted = shared.manager.execute(request).await;
            let accepted = accepted.map_err(|error| errors::of_execute(&error))?;
            // If the server was killed before it stored the configuration, the client may repeat the message. In this
            // case the configuration is set now, and notifications begin with the first event.
            let after = if accepted.is_repeated {
                Version(0)
            } else {
                accepted.subscription.cursor()
            };
            let task = &accepted.task_id;
            set(&shared, task, &config, after, accepted.is_repeated).await?;
            Ok(accepted)
        })
        .await
    }

    /// Returns one configuration.
    pub(crate) fn get(
        &self,
        task: &Task,
        id: &str,
    ) -> Result<TaskPushNotificationConfig, A2AError> {
        let progress = self.shared.store.get(&task.id, id);
        let progress = progress.ok_or_else(|| {
            let text = format!(
                "task {} has no push notification configuration {id}",
                task.id
            );
            A2AError::new(error_code::TASK_NOT_FOUND, text)
        })?;
        Ok(progress.config.to_wire(&task.id))
    }

    /// Returns a page of the configurations of a task, in the order of their ids.
    pub(crate) fn list(
        &self,
        task: &Task,
        request: &ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse, A2AError> {
        let len = match request.page_size {
            None | Some(0) => PAGE_LEN_MAX,
            Some(len) => usize::try_from(len)
                .map_err(|_| A2AError::invalid_params("pageSize must not be negative"))?
                .min(PAGE_LEN_MAX),
        };
        let token = request
            .page_token
            .as_ref()
            .filter(|token| !token.is_empty());
        let after = token.map(|token| last_id(token)).transpose()?;
        let configs = self.shared.store.of_task(&task.id);
        let is_after = |progress: &&ConfigProgress| {
            after
                .as_deref()
                .is_none_or(|last| &*progress.config.id > last)
        };
        let mut rest = configs.iter().filter(is_after).peekable();
        let page: Vec<_> = rest.by_ref().take(len).collect();
        let next = rest.peek().and(page.last());
        Ok(ListTaskPushNotificationConfigsResponse {
            next_page_token: next.map(|last| URL_SAFE_NO_PAD.encode(&*last.config.id)),
            configs: page
                .iter()
                .map(|progress| progress.config.to_wire(&task.id))
                .collect(),
        })
    }

    /// Deletes a configuration, if it exists. After the return of this function, no request to the configured webhook
    /// runs or follows.
    pub(crate) async fn delete(&self, task: &Task, id: &str) -> Result<(), A2AError> {
        let (shared, task, id) = (Arc::clone(&self.shared), task.id.clone(), Arc::from(id));
        self.owned(async move {
            let delete = |configs: &TaskPushConfigs| {
                let known = configs.configs.get(&id);
                let record = known.map(|_| PushRecord::ConfigDeleted {
                    id: Arc::clone(&id),
                });
                Ok(record.into_iter().collect())
            };
            shared
                .store
                .change(&task, delete)
                .await
                .map_err(of_change)?;
            if let Some(link) = shared.unlink(&task, &id) {
                link.end().await;
            }
            Ok(())
        })
        .await
    }

    /// Runs a change that continues if the client disconnects.
    async fn owned<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, A2AError>> + Send + 'static,
    ) -> Result<T, A2AError> {
        let shutting_down =
            || Overload::Unavailable.error("the server is shutting down".to_owned());
        let spec = WorkSpec::new(
            ItemKind::Future,
            "change of a push notification configuration",
        );
        let changed = self.shared.scope.spawn(spec, |_cx| change);
        let changed = changed.map_err(|_| shutting_down())?;
        changed.await.unwrap_or_else(|_| Err(shutting_down()))
    }
}

/// Stores a configuration and starts its deliveries. If `is_repeated` is true, the request may have been served before.
/// In this case a configuration with equal content, under any id, is sufficient.
async fn set(
    shared: &Arc<PushShared>,
    task: &TaskId,
    config: &Arc<PushConfig>,
    after: Version,
    is_repeated: bool,
) -> Result<(), A2AError> {
    let max = shared.options.configs_per_task_max;
    let decide = |configs: &TaskPushConfigs| {
        let mut known = configs.configs.values();
        if is_repeated && known.any(|known| known.config.is_like(config)) {
            return Ok(Vec::new());
        }
        let replaced = configs.configs.get(&config.id);
        check_room(configs.configs.len(), replaced.is_none(), max)?;
        Ok(vec![PushRecord::ConfigSet {
            config: Arc::clone(config),
            behind: replaced.map_or(after, |replaced| replaced.delivered),
        }])
    };
    shared.store.change(task, decide).await.map_err(of_change)?;
    if let Some(progress) = shared.store.get(task, &config.id) {
        delivery::start(shared, task, &progress);
    }
    Ok(())
}

fn check_room(len: usize, is_new: bool, max: usize) -> Result<(), A2AError> {
    if is_new && len >= max {
        return Err(A2AError::invalid_params(format!(
            "the task has {len} push notification configurations, and may have {max}; delete one first"
        )));
    }
    Ok(())
}

/// Decodes the id of the last configuration of the preceding page.
fn last_id(token: &str) -> Result<String, A2AError> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    let id = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    id.ok_or_else(|| A2AError::invalid_params("pageToken is not one of this server's"))
}

/// Converts a failed change. The client receives the kind of the store's failure, but not the location of the store.
fn of_change(error: ChangeError<A2AError>) -> A2AError {
    match error {
        ChangeError::Refused(error) => error,
        ChangeError::Store(error) => {
            tracing::error!(%error, "the store of push notifications");
            Overload::Unavailable.error("the store failed; try again later".to_owned())
        }
    }
}
