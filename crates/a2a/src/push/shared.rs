//! Parts that all deliveries and operations share.

use std::collections::HashMap;
use std::sync::Arc;

use allstop_core::TaskId;
use allstop_log::Version;
use allstop_scope::Scope;
use allstop_task::TaskManager;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::guard::AddressGuard;
use super::options::PushOptions;
use super::sender::WebhookClient;
use super::slots::DeliverySlots;
use super::store::PushStore;

/// Shared parts of push notifications.
#[derive(Debug)]
pub(crate) struct PushShared {
    pub(crate) manager: TaskManager,
    pub(crate) store: PushStore,
    pub(crate) client: WebhookClient,
    pub(crate) slots: DeliverySlots,
    pub(crate) guard: AddressGuard,
    pub(crate) options: PushOptions,
    pub(crate) scope: Scope,
    links: Mutex<HashMap<(TaskId, Arc<str>), DeliveryLink>>,
}

/// Link to a running delivery.
#[derive(Debug, Clone)]
pub(crate) struct DeliveryLink {
    set_at: Version,
    end: CancellationToken,
    /// Closed after the end of the delivery, which holds the sender.
    ended: watch::Receiver<()>,
}

/// The delivery's side of its link.
#[derive(Debug)]
pub(crate) struct DeliveryEnd {
    pub(crate) end: CancellationToken,
    /// The older delivery, which this delivery replaces.
    pub(crate) previous: Option<DeliveryLink>,
    _ended: watch::Sender<()>,
}

impl DeliveryLink {
    /// Ends the delivery and waits for its end.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn end(mut self) {
        self.end.cancel();
        // An error means that the sender was dropped together with the delivery.
        while self.ended.changed().await.is_ok() {}
    }
}

impl PushShared {
    pub(crate) fn new(
        manager: TaskManager,
        store: PushStore,
        client: WebhookClient,
        scope: Scope,
        options: PushOptions,
    ) -> Self {
        Self {
            manager,
            store,
            client,
            slots: DeliverySlots::new(&options),
            guard: AddressGuard::new(options.allowed.clone()),
            options,
            scope,
            links: Mutex::default(),
        }
    }

    /// Links a new delivery of a configuration and replaces an older delivery. `None` if the linked delivery is not
    /// older.
    pub(crate) fn link(
        &self,
        task: &TaskId,
        id: &Arc<str>,
        set_at: Version,
    ) -> Option<DeliveryEnd> {
        let (sender, ended) = watch::channel(());
        let link = DeliveryLink {
            set_at,
            end: CancellationToken::new(),
            ended,
        };
        let end = link.end.clone();
        let key = (task.clone(), Arc::clone(id));
        let mut links = self.links.lock();
        if links.get(&key).is_some_and(|known| known.set_at >= set_at) {
            return None;
        }
        let previous = links.insert(key, link);
        if let Some(previous) = &previous {
            previous.end.cancel();
        }
        Some(DeliveryEnd {
            end,
            previous,
            _ended: sender,
        })
    }

    /// Removes the link of a deleted configuration. Keeps the link if the configuration has been set again since then.
    pub(crate) fn unlink(&self, task: &TaskId, id: &Arc<str>) -> Option<DeliveryLink> {
        let mut links = self.links.lock();
        let key = (task.clone(), Arc::clone(id));
        let known = links.get(&key)?.set_at;
        let present = self.store.get(task, id).map(|progress| progress.set_at);
        if present == Some(known) {
            return None;
        }
        links.remove(&key)
    }

    /// Removes the link of a delivery that ends, unless a newer delivery is linked.
    pub(crate) fn forget(&self, task: &TaskId, id: &Arc<str>, set_at: Version) {
        let mut links = self.links.lock();
        let key = (task.clone(), Arc::clone(id));
        if links.get(&key).is_some_and(|known| known.set_at == set_at) {
            links.remove(&key);
        }
    }

    /// Number of linked deliveries.
    pub(crate) fn linked(&self) -> usize {
        self.links.lock().len()
    }
}
