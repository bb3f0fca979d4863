//! Publication of one message.

use allstop_log::LogError;
use async_nats::jetstream::message::PublishMessage;

use crate::client::attempts::Attempts;
use crate::client::errors::{self, NotPublished, RequestFailure};
use crate::client::store::NatsStore;

impl NatsStore {
    /// Publishes a message, and returns its sequence number.
    ///
    /// # Cancel safety
    /// If the future is dropped, the message may be stored or not.
    pub(crate) async fn publish_message(
        &self,
        subject: String,
        message: PublishMessage,
    ) -> Result<u64, NotPublished> {
        self.check_connection().map_err(NotPublished::Failed)?;
        let ack = self.context.send_publish(subject, message).await;
        let ack = ack.map_err(errors::of_unsent)?;
        match self.answer(ack).await {
            Some(Ok(ack)) => Ok(ack.sequence),
            Some(Err(error)) => Err(errors::of_publish(error, self.options.replicas)),
            None => Err(NotPublished::Unknown(errors::disconnected("publish"))),
        }
    }

    /// Publishes a message, and repeats the publication until the servers confirm it. The message may then be stored
    /// twice.
    ///
    /// # Cancel safety
    /// If the future is dropped, the message may be stored or not.
    pub(crate) async fn publish_repeatable(
        &self,
        subject: String,
        message: impl Fn() -> PublishMessage,
    ) -> Result<(), LogError> {
        let mut attempts = Attempts::within(self.options.answer_max);
        loop {
            let error = match self.publish_message(subject.clone(), message()).await {
                Ok(_sequence) => return Ok(()),
                Err(NotPublished::Failed(RequestFailure::Lasting(error))) => return Err(error),
                Err(error) => error,
            };
            if !attempts.next().await {
                return Err(error.into_error());
            }
        }
    }
}
