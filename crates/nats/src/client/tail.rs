//! Waits for records that are not written yet (a tail).

use std::time::Duration;

use allstop_log::{LogError, RecordBytes, StreamName, Version};
use futures::StreamExt as _;
use tokio::time::{sleep, timeout};

use crate::client::errors;
use crate::client::store::NatsStore;

/// First pause after a message on the subject of the stream. The pause is needed because subscribers receive a message
/// before a quorum has stored it. Each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Longest pause. If a message is lost during a reconnection, the tail is delayed by at most this time.
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl NatsStore {
    /// Implements [`Log::tail`](allstop_log::Log::tail).
    ///
    /// A message on the subject of the stream is only a hint that more records may exist; the answer of the leader
    /// decides. Therefore a tail needs only a subscription on the servers, and no consumer with separate state.
    pub(crate) async fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> Result<Vec<(Version, RecordBytes)>, LogError> {
        // Subscribed before the read: a message that comes between the subscription and the read is then not missed.
        Self::check_name(stream)?;
        let hints = self.client.subscribe(self.subject(stream));
        let hints = timeout(self.options.answer_max, hints).await;
        let hints = hints.map_err(|_elapsed| errors::disconnected("subscribe"))?;
        let mut hints = hints.map_err(|error| errors::unreachable("subscribe", error))?;
        // The first pauses are short: until all servers know the new subscription, a hint can be lost.
        let mut pause = PAUSE_MIN;
        loop {
            let records = self.read(stream, from, limit).await?;
            if !records.is_empty() || limit == 0 {
                return Ok(records);
            }
            match timeout(pause, hints.next()).await {
                Ok(Some(_hint)) => {
                    pause = PAUSE_MIN;
                    sleep(pause).await;
                }
                // The connection was closed permanently. The next read reports this error.
                Ok(None) => sleep(pause).await,
                Err(_elapsed) => pause = (pause * 2).min(PAUSE_MAX),
            }
        }
    }
}
