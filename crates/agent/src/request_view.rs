//! Shorter form of a long conversation in the requests of a turn. The conversation and the log keep the whole text: a
//! view only changes the requests.
//!
//! A view is a function of the messages and of the limit, so it needs no record. Within a turn, a view only becomes
//! shorter, and the parts that it has shortened stay the same: the provider's cache of the request stays useful.

use std::sync::Arc;

use allstop_core::message::{Arguments, Message};

use crate::oldest_turns::{TurnsSummary, cut_middle, tokens_of};

/// Maximum bytes of an older tool result or of the arguments of an older call: first the larger limit for each message,
/// oldest first, then the smaller limit.
const OLDER_BYTES_MAX: [usize; 2] = [2 * 1024, 256];

/// Maximum bytes of a tool result of the newest step, if the older messages are already short.
const NEWEST_BYTES_MAX: [usize; 3] = [16 * 1024, 4 * 1024, 512];

/// Form of the conversation in the requests of a turn.
#[derive(Debug, Default)]
pub(crate) struct RequestView {
    /// Summary in the place of the oldest turns.
    summary: Option<TurnsSummary>,
    /// Maximum bytes of the tool result or the arguments in each message of the conversation. Messages after the end of
    /// the list are whole.
    bytes_max: Vec<usize>,
}

impl RequestView {
    /// The messages of the request, from all messages of the conversation.
    pub(crate) fn apply(&self, all: &[Arc<Message>]) -> Vec<Arc<Message>> {
        let shown = self.shown_from();
        let summary = self.summary.as_ref().map(|summary| {
            let text = Arc::clone(&summary.text);
            Arc::new(Message::Summary { text })
        });
        let messages = all.iter().enumerate().skip(shown);
        let messages = messages.map(|(at, message)| match self.bytes_max.get(at) {
            Some(max) => shortened(message, *max),
            None => Arc::clone(message),
        });
        summary.into_iter().chain(messages).collect()
    }

    /// Index of the first message that the summary does not replace.
    fn shown_from(&self) -> usize {
        let summary = self.summary.as_ref();
        summary.map_or(0, |summary| summary.messages as usize)
    }

    /// Shortens tool results and the arguments of calls, oldest first, until the messages have at most `tokens_max`
    /// estimated tokens, or nothing is left to shorten. The results of the newest step stay whole as long as possible.
    /// Returns the number of messages that became shorter.
    pub(crate) fn shorten(&mut self, all: &[Arc<Message>], tokens_max: u64) -> u32 {
        let first = self.shown_from();
        let is_call = |message: &Arc<Message>| matches!(&**message, Message::Assistant { tool_calls, .. } if !tool_calls.is_empty());
        let newest = all.iter().rposition(is_call).unwrap_or(all.len());
        let mut now = tokens_of(&self.apply(all));
        let before = self.bytes_max.clone();
        self.bytes_max.resize(all.len(), usize::MAX);
        let older = OLDER_BYTES_MAX.map(|max| (max, first..newest));
        let newer = NEWEST_BYTES_MAX.map(|max| (max, first..all.len()));
        for (max, range) in older.into_iter().chain(newer) {
            for (message, limit) in all
                .iter()
                .zip(&mut self.bytes_max)
                .take(range.end)
                .skip(first)
            {
                if now <= tokens_max {
                    break;
                }
                let was = tokens_of(&[shortened(message, *limit)]);
                *limit = max.min(*limit);
                now = now.saturating_sub(was) + tokens_of(&[shortened(message, *limit)]);
            }
        }
        let became_shorter = |(at, message): &(usize, &Arc<Message>)| {
            let was = before.get(*at).copied().unwrap_or(usize::MAX);
            let is = self.bytes_max.get(*at).copied().unwrap_or(usize::MAX);
            shortened(message, is).bytes() < shortened(message, was).bytes()
        };
        let shorter = all.iter().enumerate().skip(first).filter(became_shorter);
        shorter.count() as u32
    }

    /// The summary in the requests.
    pub(crate) fn summary(&self) -> Option<&TurnsSummary> {
        self.summary.as_ref()
    }

    /// Puts a summary in the place of the oldest turns.
    pub(crate) fn summarise(&mut self, summary: TurnsSummary) {
        self.summary = Some(summary);
    }

    pub(crate) fn into_summary(self) -> Option<TurnsSummary> {
        self.summary
    }
}

/// The message with a tool result or arguments of at most this many bytes, and the note. Each call keeps its id and its
/// result.
fn shortened(message: &Arc<Message>, bytes_max: usize) -> Arc<Message> {
    if message.bytes() <= bytes_max {
        return Arc::clone(message);
    }
    match &**message {
        Message::Tool(result) if result.content.len() > bytes_max => {
            let mut short = result.clone();
            short.content = cut_middle(&result.content, bytes_max, |bytes| {
                format!(
                    "\n[{bytes} bytes of this result are left out to keep the conversation within the context window; \
                     a read can be repeated]\n"
                )
            });
            if short.content.len() >= result.content.len() {
                return Arc::clone(message);
            }
            Arc::new(Message::Tool(short))
        }
        Message::Assistant { text, tool_calls }
            if tool_calls
                .iter()
                .any(|call| call.arguments.bytes() > bytes_max) =>
        {
            let mut tool_calls = tool_calls.clone();
            for call in &mut tool_calls {
                if call.arguments.bytes() > bytes_max {
                    call.arguments = Arguments::left_out();
                }
            }
            let text = Arc::clone(text);
            Arc::new(Message::Assistant { text, tool_calls })
        }
        _ => Arc::clone(message),
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::ToolCall;
    use allstop_core::message::ToolResult;
    use serde_json::json;

    use super::*;

    fn call(id: &str, argument: &str) -> Arc<Message> {
        Arc::new(Message::Assistant {
            text: "".into(),
            tool_calls: vec![ToolCall {
                id: id.into(),
                name: "read".into(),
                arguments: json!({ "path": argument }).into(),
            }],
        })
    }

    fn result(id: &str, bytes: usize) -> Arc<Message> {
        Arc::new(Message::Tool(ToolResult {
            call_id: id.into(),
            content: "x".repeat(bytes).into(),
            is_error: false,
        }))
    }

    fn steps(count: usize, bytes: usize) -> Vec<Arc<Message>> {
        let question = Arc::new(Message::User {
            text: "read".into(),
        });
        let steps = (0..count).flat_map(|at| {
            let id = format!("call_{at}");
            [call(&id, "file"), result(&id, bytes)]
        });
        std::iter::once(question).chain(steps).collect()
    }

    #[test]
    fn older_results_are_shortened_first_and_stay_the_same() {
        let mut view = RequestView::default();
        let all = steps(4, 40_000);
        assert_eq!(view.shorten(&all, 25_000), 2);
        let first = view.apply(&all);
        assert!(tokens_of(&first) <= 25_000);
        assert!(first[2].bytes() < 3_000 && first[4].bytes() < 3_000);
        assert_eq!(first[6..], all[6..]);
        let longer = steps(6, 40_000);
        assert_eq!(view.shorten(&longer, 25_000), 2);
        let second = view.apply(&longer);
        assert_eq!(first[..6], second[..6]);
        assert_eq!(longer[10..], second[10..]);
    }

    #[test]
    fn newest_result_is_shortened_last() {
        let mut view = RequestView::default();
        let all = steps(1, 400_000);
        assert_eq!(view.shorten(&all, 2_000), 1);
        let shown = view.apply(&all);
        assert!(tokens_of(&shown) <= 2_000);
        let Message::Tool(result) = &*shown[2] else {
            panic!("{shown:?}")
        };
        assert!(result.content.contains("bytes of this result are left out"));
        assert_eq!(view.shorten(&all, 2_000), 0, "nothing is left to shorten");
    }

    #[test]
    fn long_arguments_are_left_out_and_calls_keep_their_results() {
        let mut view = RequestView::default();
        let mut all = steps(2, 10);
        all[1] = call("call_0", &"y".repeat(40_000));
        assert_eq!(view.shorten(&all, 500), 1);
        let shown = view.apply(&all);
        allstop_core::message::check_history(shown.iter().map(AsRef::as_ref)).unwrap();
        assert!(shown[1].bytes() < 200);
    }

    #[test]
    fn summary_replaces_the_oldest_messages() {
        let mut view = RequestView::default();
        let all = steps(3, 10);
        view.summarise(TurnsSummary {
            messages: 3,
            turns: 1,
            text: "short".into(),
        });
        let shown = view.apply(&all);
        assert_eq!(shown.len(), all.len() - 2);
        assert!(matches!(&*shown[0], Message::Summary { .. }));
    }
}
