//! The link between the managers of a cluster: entries, wake-ups and questions.
//!
//! - An *entry* is the only message of a subject in a stream of JetStream. A change of an entry contains the sequence
//!   number of the message that the change replaces.
//! - *Wake-ups* are hints that a task needs a worker. The wake-ups are in a work queue of JetStream. All workers share
//!   the one consumer of the queue.
//! - *Questions* are requests of NATS. The servers do not store questions.

mod entries;
mod questions;
mod wake_ups;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::WorkerId;
use allstop_log::LogError;
use allstop_task::{
    AskedQuestion, ClusterLink, HeldWakeUp, LinkEntry, LinkFuture, PutError, WakeUpQueue,
};
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::stream::{Config, RetentionPolicy, Stream};
use futures::FutureExt as _;
use futures::stream::BoxStream;

use crate::client::attempts::Attempts;
use crate::client::connect::{common, stream};
use crate::client::store::NatsStore;
use crate::connect_error::ConnectError;
use crate::options::NatsOptions;

/// The link between the managers of a cluster, on the servers that also store the log.
pub(crate) struct NatsLink {
    shared: Arc<LinkParts>,
}

pub(crate) struct LinkParts {
    pub store: Arc<NatsStore>,
    pub entries: Stream,
    pub wake_ups: PullConsumer,
}

impl NatsLink {
    /// Opens the streams and the consumer, and creates them if they do not exist.
    pub(crate) async fn open(store: Arc<NatsStore>) -> Result<Self, ConnectError> {
        let options = &store.options;
        let mut attempts = Attempts::within(options.answer_max);
        let entries = stream(&store.context, entries_config(options), &mut attempts).await?;
        let queue = stream(&store.context, wake_ups_config(options), &mut attempts).await?;
        let wake_ups = wake_ups::consumer(&queue, options, &mut attempts).await?;
        let shared = Arc::new(LinkParts {
            store,
            entries,
            wake_ups,
        });
        Ok(Self { shared })
    }
}

fn entries_config(options: &NatsOptions) -> Config {
    Config {
        name: format!("{}-entries", options.prefix),
        description: Some("What the managers of Allstop's tasks share".to_owned()),
        subjects: vec![format!("{}.entry.>", options.prefix)],
        max_messages_per_subject: 1,
        allow_message_ttl: true,
        ..common(options)
    }
}

fn wake_ups_config(options: &NatsOptions) -> Config {
    Config {
        name: format!("{}-wake-ups", options.prefix),
        description: Some("Tasks of Allstop that need a worker".to_owned()),
        subjects: vec![wake_ups::subject(options)],
        retention: RetentionPolicy::WorkQueue,
        ..common(options)
    }
}

impl WakeUpQueue for NatsLink {
    fn wake(&self, wake_up: Vec<u8>) -> LinkFuture<Result<(), LogError>> {
        let link = Arc::clone(&self.shared);
        async move { link.wake(wake_up).await }.boxed()
    }

    fn next_wake_up(&self) -> LinkFuture<Result<Box<dyn HeldWakeUp>, LogError>> {
        let link = Arc::clone(&self.shared);
        async move { link.next_wake_up().await }.boxed()
    }

    fn waiting_wake_up(&self) -> LinkFuture<Result<Option<Box<dyn HeldWakeUp>>, LogError>> {
        let link = Arc::clone(&self.shared);
        async move { link.waiting_wake_up().await }.boxed()
    }
}

impl ClusterLink for NatsLink {
    fn entry(&self, key: &str) -> LinkFuture<Result<Option<LinkEntry>, LogError>> {
        let (link, key) = (Arc::clone(&self.shared), key.to_owned());
        async move { link.entry(&key).await }.boxed()
    }

    fn entries(&self, prefix: &str) -> LinkFuture<Result<Vec<LinkEntry>, LogError>> {
        let (link, prefix) = (Arc::clone(&self.shared), prefix.to_owned());
        async move { link.entries(&prefix).await }.boxed()
    }

    fn put(
        &self,
        key: &str,
        value: Vec<u8>,
        expected: Option<u64>,
        ttl: Option<Duration>,
    ) -> LinkFuture<Result<u64, PutError>> {
        let (link, key) = (Arc::clone(&self.shared), key.to_owned());
        async move { link.put(&key, value, expected, ttl).await }.boxed()
    }

    fn remove(&self, key: &str, revision: u64) -> LinkFuture<Result<(), LogError>> {
        let (link, key) = (Arc::clone(&self.shared), key.to_owned());
        async move { link.remove(&key, revision).await }.boxed()
    }

    fn ask(
        &self,
        worker: &WorkerId,
        question: Vec<u8>,
        max: Duration,
    ) -> LinkFuture<Result<Option<Vec<u8>>, LogError>> {
        let (link, worker) = (Arc::clone(&self.shared), worker.clone());
        async move { link.ask(&worker, question, max).await }.boxed()
    }

    fn questions(
        &self,
        worker: &WorkerId,
    ) -> LinkFuture<Result<BoxStream<'static, AskedQuestion>, LogError>> {
        let (link, worker) = (Arc::clone(&self.shared), worker.clone());
        async move { link.questions(&worker).await }.boxed()
    }
}

impl fmt::Debug for NatsLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsLink")
            .field("options", &self.shared.store.options)
            .finish_non_exhaustive()
    }
}
