//! Wake-ups (hints that a task needs a worker): a work queue with one durable consumer that all workers share.

use std::time::Duration;

use allstop_log::LogError;
use allstop_task::{HeldWakeUp, LinkFuture};
use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{AckKind, Message};
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::timeout;

use super::LinkParts;
use crate::client::attempts::Attempts;
use crate::client::errors::{self, RequestFailure};
use crate::client::store::REQUEST_MAX;
use crate::connect_error::ConnectError;
use crate::options::NatsOptions;

const CONSUMER: &str = "workers";

/// Longest time after which the servers deliver a wake-up to another worker if a worker no longer holds it. A shorter time
/// costs more messages, because each running task holds a wake-up.
const HELD_LONGEST: Duration = Duration::from_secs(10);

/// Maximum number of wake-ups that all workers together hold. Each running task needs one held wake-up.
const HELD_MAX: i64 = 1_000_000;

/// The servers keep a request for a wake-up for this time. A longer wait sends the request again, because a server
/// loses its requests when it restarts.
const ASKED: Duration = Duration::from_secs(5);

pub(super) fn subject(options: &NatsOptions) -> String {
    format!("{}.wake-up", options.prefix)
}

/// Time after which the servers deliver a wake-up again. The wake-up of a lost worker must be there when the lease of the
/// worker ends, also if the lease is short. The locks have the same time to live as the lease.
fn held(options: &NatsOptions) -> Duration {
    HELD_LONGEST.min(options.lock_ttl / 2)
}

/// Opens or creates the consumer. A new stream may first need to elect its leader, so the request is repeated. All
/// workers share the consumer, so the worker with the shortest lease determines its times.
pub(super) async fn consumer(
    queue: &Stream,
    options: &NatsOptions,
    attempts: &mut Attempts,
) -> Result<PullConsumer, ConnectError> {
    let config = Config {
        durable_name: Some(CONSUMER.to_owned()),
        description: Some("Workers of Allstop".to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: held(options),
        max_ack_pending: HELD_MAX,
        ..Config::default()
    };
    loop {
        match queue.get_or_create_consumer(CONSUMER, config.clone()).await {
            Ok(consumer) if ack_wait(&consumer) > config.ack_wait => {
                let updated = queue.update_consumer(config).await;
                return Ok(updated.unwrap_or_else(|error| {
                    tracing::warn!(%error, "tasks of lost workers may be taken over later than their leases end");
                    consumer
                }));
            }
            Ok(consumer) => return Ok(consumer),
            Err(error) if !attempts.next().await => {
                return Err(ConnectError::Streams(error.to_string()));
            }
            Err(_no_leader) => {}
        }
    }
}

fn ack_wait(consumer: &PullConsumer) -> Duration {
    consumer.cached_info().config.ack_wait
}

impl LinkParts {
    pub(super) async fn wake(&self, wake_up: Vec<u8>) -> Result<(), LogError> {
        let payload = bytes::Bytes::from(wake_up);
        let message = || PublishMessage::build().payload(payload.clone());
        // A duplicate wake-up is harmless.
        let subject = subject(&self.store.options);
        self.store.publish_repeatable(subject, message).await
    }

    pub(super) async fn next_wake_up(&self) -> Result<Box<dyn HeldWakeUp>, LogError> {
        let failed = |error| errors::unreachable("wake-ups", error);
        loop {
            self.store
                .check_connection()
                .map_err(RequestFailure::into_error)?;
            let fetch = self.wake_ups.batch().max_messages(1).expires(ASKED);
            let messages = timeout(REQUEST_MAX, fetch.messages()).await;
            let messages = messages.map_err(|_elapsed| errors::disconnected("wake-ups"))?;
            let mut messages = messages.map_err(failed)?;
            // The servers end the request after `ASKED`. If they cannot be reached, the timeout ends the request.
            match timeout(ASKED + REQUEST_MAX, messages.next()).await {
                Ok(Some(Ok(message))) => return Ok(self.held(message)),
                Ok(Some(Err(error))) => {
                    let error = std::io::Error::other(error.to_string());
                    return Err(errors::unreachable("wake-ups", error));
                }
                Ok(None) | Err(_) => {}
            }
        }
    }
}

/// Time in which the servers answer that no wake-up waits.
const ANSWERED: Duration = Duration::from_secs(1);

impl LinkParts {
    /// Returns a wake-up that no worker waits for. The servers first give wake-ups to workers that wait.
    pub(super) async fn waiting_wake_up(&self) -> Result<Option<Box<dyn HeldWakeUp>>, LogError> {
        self.store
            .check_connection()
            .map_err(RequestFailure::into_error)?;
        let fetch = self.wake_ups.fetch().max_messages(1).messages();
        let messages = timeout(REQUEST_MAX, fetch).await;
        let messages = messages.map_err(|_elapsed| errors::disconnected("wake-ups"))?;
        let mut messages = messages.map_err(|error| errors::unreachable("wake-ups", error))?;
        match timeout(ANSWERED, messages.next()).await {
            Ok(Some(Ok(message))) => Ok(Some(self.held(message))),
            Ok(Some(Err(error))) => {
                let error = std::io::Error::other(error.to_string());
                Err(errors::unreachable("wake-ups", error))
            }
            Ok(None) | Err(_) => Ok(None),
        }
    }
}

impl LinkParts {
    fn held(&self, message: Message) -> Box<dyn HeldWakeUp> {
        Box::new(NatsWakeUp {
            message,
            hold_every: ack_wait(&self.wake_ups) / 3,
        })
    }
}

struct NatsWakeUp {
    message: Message,
    hold_every: Duration,
}

impl NatsWakeUp {
    fn send_ack(&self, kind: AckKind) -> LinkFuture<Result<(), LogError>> {
        let message = self.message.clone();
        async move {
            let sent = message.ack_with(kind).await;
            sent.map_err(|error| {
                let error = std::io::Error::other(error.to_string());
                errors::unreachable("wake-up", error)
            })
        }
        .boxed()
    }
}

impl HeldWakeUp for NatsWakeUp {
    fn payload(&self) -> &[u8] {
        &self.message.payload
    }

    fn deliveries(&self) -> u64 {
        // If the information about the delivery cannot be parsed, this counts as the first delivery. The message is
        // delivered again, so the error has no lasting effect.
        let info = self.message.info().ok();
        info.and_then(|info| u64::try_from(info.delivered).ok())
            .unwrap_or(1)
    }

    fn hold_every(&self) -> Duration {
        self.hold_every
    }

    fn hold(&self) -> LinkFuture<Result<(), LogError>> {
        self.send_ack(AckKind::Progress)
    }

    fn release_after(&self, pause: Duration) -> LinkFuture<Result<(), LogError>> {
        self.send_ack(AckKind::Nak(Some(pause)))
    }

    fn remove(&self) -> LinkFuture<Result<(), LogError>> {
        self.send_ack(AckKind::Ack)
    }
}
