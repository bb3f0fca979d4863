//! The wait for records that are not there yet.

use std::time::Duration;

use allstop_log::{LogError, RecordBytes, StreamName, Version};
use futures::StreamExt as _;
use tokio::time::{sleep, timeout};

use crate::client::errors;
use crate::client::store::NatsStore;

/// Pause behind a message on the stream's subject: subscribers get it before a quorum has it. Each further one is twice
/// as long.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Longest pause: a message that a reconnection has swallowed is found by then.
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl NatsStore {
    /// Reads as [`Log::tail`](allstop_log::Log::tail) has it.
    ///
    /// A message on the subject of the stream is a hint that there may be more; what there is, the leader says. So a
    /// tail costs the servers a subscription, and no consumer with a state of its own.
    pub(crate) async fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> Result<Vec<(Version, RecordBytes)>, LogError> {
        // Before the read: what comes in between is a hint.
        Self::check_name(stream)?;
        let hints = self.client.subscribe(self.subject(stream));
        let hints = timeout(self.options.answer_max, hints).await;
        let hints = hints.map_err(|_elapsed| errors::disconnected("subscribe"))?;
        let mut hints = hints.map_err(|error| errors::unreachable("subscribe", error))?;
        // Short at first: the servers tell each other about the subscription meanwhile.
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
                // The connection was closed for good; reads say so.
                Ok(None) => sleep(pause).await,
                Err(_elapsed) => pause = (pause * 2).min(PAUSE_MAX),
            }
        }
    }
}
