//! Search for the answer to a message.

use std::sync::Arc;

use allstop_core::message::Message;
use allstop_core::record::SessionRecord;
use allstop_core::{MessageId, SessionId, TurnNumber};

use super::error::SessionError;
use super::fold::decode;
use super::stream_of;
use crate::{Log, Version};

/// Information about a message in the log of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedAnswer {
    /// No turn for the message has begun, so nothing ran for the message.
    NotBegun,
    /// This turn for the message has begun, but was not committed.
    NotCommitted(TurnNumber),
    /// The turn for the message was committed. Contains the answer of this turn.
    Committed(Arc<str>),
}

/// Returns the answer of the turn that a message started, if this turn was committed. Reads the log from its first
/// record, because the message may be of any age. A message that was added to a running turn has no separate turn, so
/// the result is [`LoggedAnswer::NotBegun`].
///
/// **Cancel safety**: if the future is dropped, nothing changes.
///
/// # Errors
/// Returns an error if the session is unreadable or the store fails. For an unknown session, the result is
/// [`LoggedAnswer::NotBegun`].
pub async fn committed_answer(
    log: &dyn Log,
    id: &SessionId,
    message: &MessageId,
) -> Result<LoggedAnswer, SessionError> {
    let stream = stream_of(id);
    let (mut last, mut turn_of_message) = (Version(0), None);
    loop {
        // No limit is needed, because the store limits the memory of a read.
        let records = log.read(&stream, last.next(), usize::MAX).await?;
        if records.is_empty() {
            return Ok(match turn_of_message {
                None => LoggedAnswer::NotBegun,
                Some(turn) => LoggedAnswer::NotCommitted(turn),
            });
        }
        for (version, bytes) in records {
            last = version;
            match decode(id, version, &bytes)? {
                Some(SessionRecord::TurnStarted {
                    turn,
                    message: Some(cause),
                    ..
                }) if cause == *message => turn_of_message = Some(turn),
                Some(SessionRecord::TurnCommitted { turn, messages, .. })
                    if turn_of_message == Some(turn) =>
                {
                    return Ok(LoggedAnswer::Committed(answer_in(&messages)));
                }
                _ => {}
            }
        }
    }
}

/// Text of the model's last answer.
fn answer_in(messages: &[Arc<Message>]) -> Arc<str> {
    let answers = messages.iter().rev().find_map(|message| match &**message {
        Message::Assistant { text, .. } => Some(Arc::clone(text)),
        _ => None,
    });
    answers.unwrap_or_default()
}
