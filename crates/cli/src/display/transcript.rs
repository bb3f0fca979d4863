//! A conversation for people: for `/history`, a resumed chat, `sessions show` and `sessions export`.

use std::borrow::Cow;
use std::fmt::Write as _;

use allstop_core::describe_call;
use allstop_core::image::text_with_images;
use allstop_core::message::{Message, ResultEnding, ToolResult};
use allstop_core::terminal_text::{OWN_ROW_MARK, escape};
use allstop_core::turn::Conversation;
use allstop_terminal::{
    AnswerFormat, AnswerStream, OutputPriority, OutputQueue, Style, Styled, Symbol, TextRole,
    first_lines, styled,
};

const SUMMARY_TITLE: &str = "[summary of earlier turns]";

/// One part of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TranscriptPart<'a> {
    /// A message of the user, with a row for each image.
    User(Cow<'a, str>),
    /// Text of the model.
    Answer(&'a str),
    /// A tool call. `ending` is `None` if the conversation has no result.
    Call {
        label: String,
        ending: Option<ResultEnding>,
        /// The failure of a command, such as `exit code 3`.
        failure: Option<&'a str>,
    },
    /// A summary that replaces earlier turns.
    Summary(&'a str),
    /// A note of Allstop to the model.
    Note(&'a str),
    /// The turn was stopped here.
    Stopped,
}

/// The parts of a conversation, in their order.
pub(crate) fn entries(conversation: &Conversation) -> Vec<TranscriptPart<'_>> {
    let messages = &conversation.messages;
    let mut entries = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        match &**message {
            Message::User { text, images } if images.is_empty() => {
                entries.push(TranscriptPart::User(Cow::Borrowed(text)));
            }
            Message::User { text, images } => {
                let text = text_with_images(text, images.infos());
                entries.push(TranscriptPart::User(Cow::Owned(text)));
            }
            Message::Assistant { text, tool_calls } => {
                if !text.trim().is_empty() {
                    entries.push(TranscriptPart::Answer(text));
                }
                entries.extend(tool_calls.iter().map(|call| {
                    // The results of a step follow directly after its answer.
                    let results = messages[at + 1..]
                        .iter()
                        .map_while(|message| match &**message {
                            Message::Tool(result) => Some(result),
                            _ => None,
                        });
                    let result = results.into_iter().find(|result| result.call_id == call.id);
                    TranscriptPart::Call {
                        label: describe_call(&call.name, &call.arguments).replace('\n', " "),
                        ending: result.map(ToolResult::ending),
                        failure: result.and_then(|result| failure_of(&result.content)),
                    }
                }));
            }
            Message::Summary { text } => entries.push(TranscriptPart::Summary(text)),
            Message::StopMarker { .. } => entries.push(TranscriptPart::Stopped),
            Message::Note { text } => entries.push(TranscriptPart::Note(text)),
            Message::Tool(_) => {}
        }
    }
    entries
}

/// Shows the parts on a terminal, answers as Markdown.
pub(crate) fn show(entries: &[TranscriptPart<'_>], queue: &OutputQueue, style: Style) {
    let lines = |lines: Styled| queue.lines(lines, OutputPriority::Required);
    for entry in entries {
        match entry {
            TranscriptPart::Answer(text) => answer(text, queue, style),
            TranscriptPart::Summary(text) => {
                lines(style.paint(TextRole::Dim, SUMMARY_TITLE));
                answer(text, queue, style);
            }
            entry => drop(lines(line_of(entry, style))),
        }
    }
}

/// Shows a text of the model.
fn answer(text: &str, queue: &OutputQueue, style: Style) {
    if !queue.is_terminal() {
        queue.lines(Styled::text(text), OutputPriority::Required);
        return;
    }
    let mut stream = AnswerStream::new(style, AnswerFormat::Markdown);
    let mut parts = stream.push(text);
    parts.extend(stream.finish());
    queue.flow(parts, None);
}

/// The parts as text: answers as Markdown, indented. So no text of the model looks like a line of Allstop.
pub(crate) fn lines(entries: &[TranscriptPart<'_>], style: Style) -> Styled {
    let mut text = Styled::default();
    for entry in entries {
        text.push_line(&line_of(entry, style));
    }
    text
}

fn line_of(entry: &TranscriptPart<'_>, style: Style) -> Styled {
    let dim = |text: String| style.paint(TextRole::Dim, text);
    match entry {
        TranscriptPart::User(text) => {
            let sign = style.pick("›", ">");
            style.paint(
                TextRole::Strong,
                styled![sign, " ", Styled::text(&first_lines(text)).hanging(2)],
            )
        }
        TranscriptPart::Answer(text) => indented(text),
        TranscriptPart::Call {
            label,
            ending,
            failure,
        } => {
            let (symbol, role, said) = end_of_call(*ending, *failure);
            let symbol = style.paint(role, style.symbol(symbol));
            let said = style.paint(TextRole::Dim, said);
            styled![symbol, " ", label, "  ", said]
        }
        TranscriptPart::Summary(text) => {
            let mut lines = Styled::default();
            lines.push_line(&style.paint(TextRole::Dim, SUMMARY_TITLE));
            lines.push(&indented(text));
            lines
        }
        TranscriptPart::Note(text) => {
            let note = Styled::text(&format!("[note to the model] {text}"));
            style.paint(TextRole::Dim, note.hanging(2))
        }
        TranscriptPart::Stopped => dim("[the turn was stopped here]".to_owned()),
    }
}

fn indented(text: &str) -> Styled {
    styled!["  ", Styled::text(text.trim_end()).hanging(2)]
}

/// The failure of a command, which the shell tool writes in the last line of its result.
fn failure_of(result: &str) -> Option<&str> {
    let last = result.trim_end().lines().next_back()?;
    let end = last.strip_prefix('[')?.strip_suffix(']')?;
    let is_failure = end.starts_with("exit code ") || end.starts_with("killed by ");
    Some(end).filter(|end| is_failure && *end != "exit code 0")
}

fn end_of_call(ending: Option<ResultEnding>, failure: Option<&str>) -> (Symbol, TextRole, &str) {
    match (ending, failure) {
        (Some(ResultEnding::Completed), Some(failure)) => (Symbol::Bad, TextRole::Warning, failure),
        (ending, _) => end_of_tool(ending),
    }
}

fn end_of_tool(ending: Option<ResultEnding>) -> (Symbol, TextRole, &'static str) {
    match ending {
        Some(ResultEnding::Completed) => (Symbol::Good, TextRole::Good, ""),
        Some(ResultEnding::Failed) => (Symbol::Bad, TextRole::Bad, "failed"),
        Some(ResultEnding::Denied) => (Symbol::Denied, TextRole::Warning, "denied"),
        Some(ResultEnding::Stopped) => (Symbol::Stopped, TextRole::Warning, "stopped"),
        None => (Symbol::Unknown, TextRole::Warning, "no result"),
    }
}

/// The conversation as Markdown. Only Allstop's own lines contain the mark [`OWN_ROW_MARK`].
pub(crate) fn markdown(entries: &[TranscriptPart<'_>]) -> String {
    let mut text = String::new();
    let mark = OWN_ROW_MARK;
    let escaped = |said: &str| escape(said.trim_end(), |c| c == mark).into_owned();
    let mut is_in_list = false;
    for entry in entries {
        let is_item = matches!(entry, TranscriptPart::Call { .. });
        let continues_list = is_item && is_in_list;
        if !text.is_empty() && !continues_list {
            text.push('\n');
        }
        is_in_list = is_item;
        // Writing to a string cannot fail.
        let _ = match entry {
            TranscriptPart::User(said) => writeln!(text, "## {mark}User\n\n{}", escaped(said)),
            TranscriptPart::Answer(said) => writeln!(text, "## {mark}Agent\n\n{}", escaped(said)),
            TranscriptPart::Call {
                label,
                ending,
                failure,
            } => {
                let ended = match end_of_call(*ending, *failure).2 {
                    "" => "completed",
                    said => said,
                };
                let ticks = "`".repeat(longest_ticks(label) + 1);
                let label = escaped(label);
                writeln!(text, "- {mark}{ticks}{label}{ticks}: {ended}")
            }
            TranscriptPart::Summary(said) => {
                writeln!(
                    text,
                    "## {mark}Summary of earlier turns\n\n{}",
                    escaped(said)
                )
            }
            TranscriptPart::Note(said) => {
                writeln!(
                    text,
                    "> {mark}Note to the model: {}",
                    escaped(said).replace('\n', "\n> ")
                )
            }
            TranscriptPart::Stopped => writeln!(text, "> {mark}The turn was stopped here."),
        };
    }
    text
}

/// Length of the longest run of backticks. Inline code needs more of them around it.
fn longest_ticks(text: &str) -> usize {
    let runs = text.split(|letter| letter != '`').map(str::len);
    runs.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use allstop_core::ToolCall;
    use allstop_core::message::Arguments;
    use std::sync::Arc;

    use super::*;

    fn conversation() -> Conversation {
        let call = |id: &str, command: &str| ToolCall {
            id: id.into(),
            name: "shell".into(),
            arguments: Arguments::from(serde_json::json!({ "command": command })),
        };
        let result = |id: &str, content: &str, is_error: bool| {
            Message::Tool(ToolResult {
                call_id: id.into(),
                content: content.into(),
                is_error,
                images: allstop_core::Images::default(),
            })
        };
        let messages = vec![
            Message::user("go"),
            Message::Assistant {
                text: "Let me see.".into(),
                tool_calls: vec![
                    call("a", "ls"),
                    call("b", "rm `x`"),
                    call("c", "sleep 9"),
                    call("d", "false"),
                    call("e", "exit 3"),
                ],
            },
            result("a", "x", false),
            result("b", "the call did not run: permission was denied", true),
            result(
                "c",
                "Stopped by SIGTERM before it had a result (user).",
                true,
            ),
            result("d", "no such file", true),
            result("e", "some output\n[exit code 3]", false),
            Message::Assistant {
                text: "# Done\n\nIt is **x**.".into(),
                tool_calls: Vec::new(),
            },
        ];
        Conversation {
            messages: messages.into_iter().map(Arc::new).collect(),
            ..Conversation::default()
        }
    }

    #[test]
    fn image_is_a_row_below_its_message() {
        let image = allstop_core::Image::new(*b"\x89PNG\r\n\x1a\n").unwrap();
        let message = Message::User {
            text: "Look:".into(),
            images: image.into(),
        };
        let conversation = Conversation {
            messages: vec![Arc::new(message)],
            ..Conversation::default()
        };
        let text = markdown(&entries(&conversation));
        assert!(
            text.ends_with("User\n\nLook:\n[image, image/png, 1 kB]\n"),
            "{text}"
        );
    }

    #[test]
    fn markdown_marks_denied_stopped_and_failed_calls() {
        let conversation = conversation();
        insta::assert_snapshot!(markdown(&entries(&conversation)));
    }
}
