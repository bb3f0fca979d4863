//! Shorter form of a long conversation in the requests of a turn. The conversation and the log keep the whole text: a
//! view only changes the requests.
//!
//! A view is a function of the messages and of the limit, so it needs no record. Within a turn, a view only becomes
//! shorter, and the parts that it has shortened stay the same: the provider's cache of the request stays useful.

use std::sync::Arc;

use allstop_core::image::{IMAGES_BYTES_MAX, IMAGES_MAX};
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
    /// Index of the first message with its images. Older images are left out.
    images_from: usize,
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
        let messages = messages.map(|(at, message)| self.shown(at, message));
        summary.into_iter().chain(messages).collect()
    }

    /// The message with this index as the request contains it.
    fn shown(&self, at: usize, message: &Arc<Message>) -> Arc<Message> {
        let message = if at < self.images_from {
            without_images(message)
        } else {
            Arc::clone(message)
        };
        match self.bytes_max.get(at) {
            Some(max) => shortened(&message, *max),
            None => message,
        }
    }

    /// Leaves older images out if the request has more images than a provider accepts. A longer conversation leaves
    /// none out for a while, because then half of the images remain.
    pub(crate) fn limit_images(&mut self, all: &[Arc<Message>]) {
        let sizes = |message: &Arc<Message>| {
            let bytes: usize = message
                .images()
                .iter()
                .map(|image| image.bytes().len())
                .sum();
            (message.images().len(), bytes)
        };
        let within = |from: usize, divisor: usize| {
            let sizes = all.iter().skip(from).map(sizes);
            let (count, bytes) = sizes.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
            count <= IMAGES_MAX / divisor && bytes <= IMAGES_BYTES_MAX / divisor
        };
        if within(self.images_from, 1) {
            return;
        }
        // The newest images are from one message, and always within the limits.
        let has_images = |message: &Arc<Message>| !message.images().is_empty();
        let newest = all.iter().rposition(has_images).unwrap_or_default();
        let fits = |from: &usize| within(*from, 2);
        self.images_from = (self.images_from..newest).find(fits).unwrap_or(newest);
    }

    /// Index of the first message that the summary does not replace.
    fn shown_from(&self) -> usize {
        let summary = self.summary.as_ref();
        summary.map_or(0, |summary| summary.messages as usize)
    }

    /// Leaves the images of older turns out, then shortens tool results and the arguments of calls, both oldest first,
    /// until the messages have at most `tokens_max` estimated tokens, or nothing is left to shorten. The results of the newest step stay whole as long as possible.
    /// Returns the number of messages that became shorter.
    pub(crate) fn shorten(&mut self, all: &[Arc<Message>], tokens_max: u64) -> u32 {
        let first = self.shown_from();
        let is_call = |message: &Arc<Message>| matches!(&**message, Message::Assistant { tool_calls, .. } if !tool_calls.is_empty());
        let newest = all.iter().rposition(is_call).unwrap_or(all.len());
        let mut now = tokens_of(&self.apply(all));
        let before: Vec<_> = self.lengths(all);
        let is_user = |message: &Arc<Message>| matches!(&**message, Message::User { .. });
        let turn = all.iter().rposition(is_user).unwrap_or_default();
        let has_images = |at: &usize| {
            all.get(*at)
                .is_some_and(|message| !message.images().is_empty())
        };
        while now > tokens_max
            && let Some(oldest) = (self.images_from..turn).find(has_images)
        {
            self.images_from = oldest + 1;
            now = tokens_of(&self.apply(all));
        }
        self.bytes_max.resize(all.len(), usize::MAX);
        let images_from = self.images_from;
        let older = OLDER_BYTES_MAX.map(|max| (max, first..newest));
        let newer = NEWEST_BYTES_MAX.map(|max| (max, first..all.len()));
        for (max, range) in older.into_iter().chain(newer) {
            for ((at, message), limit) in all
                .iter()
                .enumerate()
                .zip(&mut self.bytes_max)
                .take(range.end)
                .skip(first)
            {
                if now <= tokens_max {
                    break;
                }
                let message = if at < images_from {
                    &without_images(message)
                } else {
                    message
                };
                let was = tokens_of(&[shortened(message, *limit)]);
                *limit = max.min(*limit);
                now = now.saturating_sub(was) + tokens_of(&[shortened(message, *limit)]);
            }
        }
        let after = self.lengths(all);
        let shorter = before.iter().zip(&after).skip(first);
        shorter.filter(|(was, is)| is < was).count() as u32
    }

    /// Length of each message in the request.
    fn lengths(&self, all: &[Arc<Message>]) -> Vec<usize> {
        let messages = all.iter().enumerate();
        let shown = messages.map(|(at, message)| self.shown(at, message).bytes());
        shown.collect()
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

/// The message with a text in the place of each image.
fn without_images(message: &Arc<Message>) -> Arc<Message> {
    if message.images().is_empty() {
        return Arc::clone(message);
    }
    Arc::new(message.without_images())
}

/// The message with a tool result or arguments of at most this many bytes, and the note. Each call keeps its id and its
/// result.
fn shortened(message: &Arc<Message>, bytes_max: usize) -> Arc<Message> {
    if message.bytes() <= bytes_max {
        return Arc::clone(message);
    }
    match &**message {
        Message::Tool(result) if !result.images.is_empty() => {
            shortened(&without_images(message), bytes_max)
        }
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
    use allstop_core::message::ToolResult;
    use allstop_core::{Image, Images, ToolCall};
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
            images: allstop_core::Images::default(),
        }))
    }

    fn steps(count: usize, bytes: usize) -> Vec<Arc<Message>> {
        let question = Arc::new(Message::user("read"));
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

    fn image() -> Images {
        Image::new(*b"\x89PNG\r\n\x1a\n").unwrap().into()
    }

    fn question(text: &str) -> Arc<Message> {
        Arc::new(Message::User {
            text: text.into(),
            images: image(),
        })
    }

    fn image_counts(messages: &[Arc<Message>]) -> Vec<usize> {
        messages
            .iter()
            .map(|message| message.images().len())
            .collect()
    }

    #[test]
    fn images_of_older_turns_are_left_out_first() {
        let mut view = RequestView::default();
        let answer = result("call_0", 4_000);
        let all = [question("one"), answer, question("two"), question("three")];
        assert_eq!(view.shorten(&all, 5_000), 1);
        let shown = view.apply(&all);
        assert_eq!(*shown[0], Message::user("one\n[image left out]"));
        assert_eq!(image_counts(&shown), [0, 0, 1, 1]);
        assert_eq!(shown[1], all[1]);
        view.shorten(&all, 0);
        assert_eq!(image_counts(&view.apply(&all)), [0, 0, 0, 1]);
    }

    #[test]
    fn images_of_results_are_left_out_with_long_results() {
        let mut view = RequestView::default();
        let mut all = steps(2, 10);
        for at in [2, 4] {
            let Message::Tool(result) = Arc::make_mut(&mut all[at]) else {
                panic!("a result")
            };
            result.images = image();
        }
        assert_eq!(view.shorten(&all, 2_000), 1);
        assert_eq!(image_counts(&view.apply(&all)), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn request_has_at_most_as_many_images_as_providers_accept() {
        let mut view = RequestView::default();
        let mut all = vec![question("look"); IMAGES_MAX];
        view.limit_images(&all);
        assert_eq!(view.apply(&all), all);
        all.push(question("look"));
        view.limit_images(&all);
        let count = |view: &RequestView| image_counts(&view.apply(&all)).iter().sum::<usize>();
        assert_eq!(count(&view), IMAGES_MAX / 2);
        view.limit_images(&all);
        assert_eq!(count(&view), IMAGES_MAX / 2, "nothing more is left out");
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
