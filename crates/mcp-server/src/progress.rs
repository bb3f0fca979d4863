//! Progress of a running command: the last lines of its output, sent as notifications to a client that asked for them.

use std::time::Duration;

use allstop_core::TaskId;
use allstop_task::{LiveItem, LiveSubscription, ReadTaskError};
use parking_lot::Mutex;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Time between two notifications. Many clients reset the time limit of a request with each notification; the usual limit
/// is a minute.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum size of the output in a notification, in bytes: a few lines of a terminal.
const TAIL_BYTES_MAX: usize = 512;

/// Recipient of the notifications of one request.
pub(crate) struct ProgressRecipient {
    pub(crate) peer: Peer<RoleServer>,
    pub(crate) token: ProgressToken,
}

/// The last output of a command.
#[derive(Debug, Default)]
pub(crate) struct LastOutput {
    text: String,
    /// True if earlier output is left out.
    is_cut: bool,
}

impl LastOutput {
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        let excess = self.text.len().saturating_sub(TAIL_BYTES_MAX);
        let begin = self.text.ceil_char_boundary(excess);
        self.text.drain(..begin);
        self.is_cut |= begin > 0;
    }

    /// The output, with a note if earlier output is left out.
    pub(crate) fn with_note(self) -> String {
        if self.is_cut {
            format!("[earlier output left out]\n{}", self.text)
        } else {
            self.text
        }
    }
}

/// Follows an execution until it ends, and sends its progress.
///
/// # Cancel safety
/// Dropping the future stops nothing.
pub(crate) async fn follow(
    id: &TaskId,
    mut subscription: LiveSubscription,
    recipient: Option<ProgressRecipient>,
) -> Result<(), ReadTaskError> {
    let last = Mutex::new(LastOutput::default());
    let ending = async {
        while let Some(item) = subscription.next().await {
            if let LiveItem::Piece(piece) = item? {
                last.lock().push(&piece.text);
            }
        }
        Ok(())
    };
    let reporting = async {
        match recipient {
            Some(recipient) => report(id, &recipient, &last).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        ended = ending => ended,
        // A client that reads nothing delays only the notifications.
        () = reporting => std::future::pending().await,
    }
}

/// Sends notifications without end. The first one comes at once, so that the client knows the id.
async fn report(id: &TaskId, recipient: &ProgressRecipient, last: &Mutex<LastOutput>) {
    let started = Instant::now();
    let mut ticks = interval(PROGRESS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut number = 0.0_f64;
    loop {
        ticks.tick().await;
        // The value must grow with each notification, also if nothing was printed.
        number = started.elapsed().as_secs_f64().max(number + 0.001);
        let text = last.lock().text.trim_end().to_owned();
        let message = if text.is_empty() {
            format!("command {id} runs")
        } else {
            format!("command {id} runs\n{text}")
        };
        let mut progress = ProgressNotificationParam::new(recipient.token.clone(), number);
        progress.message = Some(message);
        if recipient.peer.notify_progress(progress).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_output_is_bounded_and_never_cuts_a_character() {
        let mut last = LastOutput::default();
        for _ in 0..TAIL_BYTES_MAX {
            last.push("aä€");
        }
        assert!(last.text.len() <= TAIL_BYTES_MAX && last.text.ends_with("aä€"));
        assert!(last.with_note().starts_with("[earlier output left out]\n"));
    }
}
