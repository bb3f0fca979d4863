//! Publication of one message.

use async_nats::jetstream::message::PublishMessage;

use crate::errors::{self, NotPublished};
use crate::store::NatsStore;

impl NatsStore {
    /// Publishes a message, and returns its sequence number.
    ///
    /// # Cancel safety
    /// A dropped publication may have happened.
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
}
