//! Publication of one message.

use async_nats::jetstream::message::PublishMessage;

use crate::errors::{self, NotPublished, RequestFailure};
use crate::store::NatsStore;

impl NatsStore {
    /// Publishes a message, and returns its sequence number.
    pub(crate) async fn publish_message(
        &self,
        subject: String,
        message: PublishMessage,
    ) -> Result<u64, NotPublished> {
        let ack = self.context.send_publish(subject, message).await;
        // Not handed to the connection: it was not sent.
        let ack = ack.map_err(|error| {
            let error = errors::unreachable("publish", error);
            NotPublished::Failed(RequestFailure::Passing(error))
        })?;
        match self.answer(ack).await {
            Some(Ok(ack)) => Ok(ack.sequence),
            Some(Err(error)) => Err(errors::of_publish(error)),
            None => Err(NotPublished::Unknown(errors::disconnected("publish"))),
        }
    }
}
