//! Waits for records that are not written yet.

use std::time::Duration;

use allstop_log::{LogError, RecordBytes, StreamName, Version};
use futures::StreamExt as _;
use tokio::time::{sleep, timeout};

use crate::client::errors;
use crate::client::store::NatsStore;

/// First pause after a message on the stream's subject, because subscribers receive a message before a quorum stores
/// it. Each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Longest pause. It limits the delay of a message that was lost during a reconnection.
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl NatsStore {
    /// Implements [`Log::tail`](allstop_log::Log::tail).
    ///
    /// A message on the subject of the stream is only a hint that there may be more records; the leader decides. So a
    /// tail costs the servers a subscription, but no consumer with separate state.
    pub(crate) async fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> Result<Vec<(Version, RecordBytes)>, LogError> {
        // Subscribed before the read, so that a message in between gives a hint.
        Self::check_name(stream)?;
        let hints = self.client.subscribe(self.subject(stream));
        let hints = timeout(self.options.answer_max, hints).await;
        let hints = hints.map_err(|_elapsed| errors::disconnected("subscribe"))?;
        let mut hints = hints.map_err(|error| errors::unreachable("subscribe", error))?;
        // Short at first, because the servers need time to exchange the subscription.
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
                // The connection was closed for good; the next read reports it.
                Ok(None) => sleep(pause).await,
                Err(_elapsed) => pause = (pause * 2).min(PAUSE_MAX),
            }
        }
    }
}
