//! Request to the model for a summary of messages.

use std::sync::Arc;

use allstop_core::message::{Arguments, Message};
use allstop_core::turn::Conversation;
use allstop_core::{Cause, SessionId, Usage};
use allstop_scope::Scope;

use crate::agent::Agent;
use crate::error::TurnErrorKind;
use crate::oldest_turns::{cut_middle, tokens_of};
use crate::plain_answer::{PlainAnswerError, ask_once};

/// Reason why there is no summary.
#[derive(Debug, thiserror::Error)]
pub enum SummaryError {
    /// A stop came before the summary.
    #[error("stopped: {0}")]
    Stopped(Cause),
    /// The provider refused the request for a summary, also with cut messages.
    #[error("the provider refused the request for a summary: {0}")]
    Refused(String),
    /// The model returned no summary.
    #[error("the model returned no summary: {0}")]
    NoSummary(String),
}

/// Prompt for the summary. The summary replaces the messages, so it must contain everything that the conversation still
/// needs.
const ASK_SUMMARY: &str = "Summarise the conversation so far for yourself: it will be dropped, and you go on \
    with your summary alone. Keep what was asked and decided, what was done and found out, names of files and \
    identifiers, and what is open. Leave out greetings and what has become irrelevant. Answer with the summary only.";

/// Maximum bytes of each text in a request for a summary: first no limit, then less and less while the provider refuses
/// the request, for example because it is longer than the context of the model.
const TEXT_BYTES_MAX: [usize; 3] = [usize::MAX, 4 * 1024, 512];

/// Note in the place of the text that was cut for a summary.
const CUT_NOTE: &str = "\n[cut for this summary]\n";

/// Asks the model of this agent for a summary of these messages, without tools and outside the conversation. While the
/// provider refuses the request, tries again with shorter texts. If the request is longer than `tokens_max`, begins with
/// shorter texts. The usage counts also without a summary.
pub async fn summarise(
    agent: &Agent,
    scope: &Scope,
    session_id: &SessionId,
    messages: &[Arc<Message>],
    tokens_max: Option<u64>,
) -> (Result<Arc<str>, SummaryError>, Usage) {
    let mut usage = Usage::default();
    let mut refused = SummaryError::Refused(String::new());
    for bytes_max in TEXT_BYTES_MAX {
        let messages = shortened(messages, bytes_max);
        let is_last = Some(&bytes_max) == TEXT_BYTES_MAX.last();
        if !is_last && tokens_max.is_some_and(|max| tokens_of(&messages) > max) {
            continue;
        }
        let (summary, used) = ask(agent, scope, session_id, messages).await;
        usage += used;
        match summary {
            Err(error @ SummaryError::Refused(_)) => refused = error,
            ended => return (ended, usage),
        }
    }
    (Err(refused), usage)
}

async fn ask(
    agent: &Agent,
    scope: &Scope,
    session_id: &SessionId,
    messages: Vec<Arc<Message>>,
) -> (Result<Arc<str>, SummaryError>, Usage) {
    let conversation = Arc::new(Conversation {
        messages,
        ..Conversation::default()
    });
    let plain = agent.plain();
    let (summary, usage) = ask_once(&plain, scope, session_id, conversation, ASK_SUMMARY).await;
    let summary = summary.map_err(|error| match error {
        PlainAnswerError::Stopped(cause) => SummaryError::Stopped(cause),
        PlainAnswerError::Failed(error) => match error.kind {
            TurnErrorKind::Invalid | TurnErrorKind::ContextLength => {
                SummaryError::Refused(error.message)
            }
            _ => SummaryError::NoSummary(error.message),
        },
        PlainAnswerError::NoAnswer(why) => SummaryError::NoSummary(why),
    });
    (summary, usage)
}

/// The messages without images, each text and the arguments of each call cut to this many bytes.
fn shortened(messages: &[Arc<Message>], bytes_max: usize) -> Vec<Arc<Message>> {
    let cut = |text: &Arc<str>| cut_middle(text, bytes_max, |_| CUT_NOTE.to_owned());
    let shorten = |message: &Arc<Message>| {
        if message.bytes() <= bytes_max && message.images().is_empty() {
            return Arc::clone(message);
        }
        let mut short = message.without_images();
        match &mut short {
            Message::User { text, .. }
            | Message::Note { text }
            | Message::Summary { text }
            | Message::StopMarker { text } => *text = cut(text),
            Message::Tool(result) => result.content = cut(&result.content),
            Message::Assistant { text, tool_calls } => {
                *text = cut(text);
                for call in tool_calls.iter_mut() {
                    if call.arguments.bytes() > bytes_max {
                        call.arguments = Arguments::left_out();
                    }
                }
            }
        }
        Arc::new(short)
    };
    messages.iter().map(shorten).collect()
}
