//! Images, resources and prompts of messages. A thread reads the files, because a disk can be slow. Later messages and
//! keys wait, so that their order stays.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Instant;

use allstop_core::Images;
use allstop_core::receipt::ItemKind;
use allstop_scope::{Scope, WorkSpec};
use allstop_terminal::Key;
use futures::FutureExt as _;
use tokio::sync::oneshot;

use super::ChatLoop;
use super::pending::FinishedWork;
use crate::chat::attached::{self, AttachedImages};
use crate::chat::complete::CompletionNames;
use crate::chat::server_content::{CompleteMessage, complete_message, named_resources};
use crate::chat::state::{ChatActivity, ChatEvent, MessageNumber};
use crate::image_names::{ends_in_word, names};
use crate::pasted_mark::{mark, unmark};

/// A message whose images and resources are not read yet.
#[derive(Debug, Clone)]
pub(super) struct UnsentMessage {
    pub(super) number: MessageNumber,
    pub(super) text: String,
    /// True if the text is the command for a prompt of an MCP server.
    pub(super) is_prompt: bool,
}

/// Messages whose images and resources are not read yet, and the messages after them.
#[derive(Debug, Default)]
pub(super) struct UnsentMessages {
    queue: VecDeque<UnsentMessage>,
    /// Dropped if the oldest message is withdrawn, which ends the reading for it.
    reading: Option<oneshot::Sender<Infallible>>,
}

impl UnsentMessage {
    /// True if something must be read before the message is sent.
    fn needs_reading(&self) -> bool {
        self.is_prompt || attached::names_files(&self.text)
    }
}

impl ChatLoop<'_> {
    /// Sends a message with the images and resources that it names.
    pub(super) fn send(&mut self, message: UnsentMessage) -> ChatEvent {
        if self.unsent.queue.is_empty() && !message.needs_reading() {
            let UnsentMessage { number, text, .. } = message;
            return self.send_now(number, &unmark(&text), Images::default());
        }
        let number = message.number;
        self.unsent.queue.push_back(message);
        if self.unsent.queue.len() == 1 {
            self.read_parts();
        }
        ChatEvent::Reads(number)
    }

    /// Reads the images and resources of the oldest unsent message.
    fn read_parts(&mut self) {
        let Some(UnsentMessage {
            text, is_prompt, ..
        }) = self.unsent.queue.front().cloned()
        else {
            return;
        };
        let servers = self.chat.system.mcp().all().to_vec();
        let finder = self.images.clone();
        let scope = Scope::root("images", self.chat.host.scopes());
        let spec = WorkSpec::new(ItemKind::Thread, "reading images");
        let (named, typed) = (named_resources(&text, &servers), text.clone());
        let reading = scope.spawn_blocking(spec, move |_| {
            if is_prompt {
                Ok(AttachedImages::default())
            } else {
                finder.read(&typed, &named)
            }
        });
        let read = async move {
            let attached = match reading {
                Ok(reading) => reading.await.unwrap_or_else(|lost| Err(lost.to_string())),
                Err(not_started) => Err(not_started.to_string()),
            };
            complete_message(&text, is_prompt, attached?, &servers).await
        };
        let (held, withdrawn) = oneshot::channel();
        self.unsent.reading = Some(held);
        let read = async move {
            FinishedWork::PartsRead(tokio::select! {
                read = read => read,
                _ = withdrawn => Err("the message was withdrawn".to_owned()),
            })
        };
        self.pending.push(read.boxed());
    }

    /// Ends the reading for the oldest unsent message if it is one of these.
    pub(super) fn end_reading_of(&mut self, withdrawn: &[MessageNumber]) {
        let oldest = self.unsent.queue.front().map(|message| message.number);
        if oldest.is_some_and(|oldest| withdrawn.contains(&oldest)) {
            self.unsent.reading = None;
        }
    }

    /// Sends the message whose parts were read, and then the messages after it.
    pub(super) fn parts_read(&mut self, read: Result<CompleteMessage, String>) {
        let mut read = Some(read);
        self.unsent.reading = None;
        while let Some(message) = self.unsent.queue.pop_front() {
            let complete = match read.take() {
                Some(complete) => complete,
                None if message.needs_reading() => {
                    self.unsent.queue.push_front(message);
                    return self.read_parts();
                }
                None => Ok(CompleteMessage {
                    text: unmark(&message.text),
                    attached: AttachedImages::default(),
                }),
            };
            let message = message.number;
            // A stop has put the text of the message back on the input line.
            if !self.state.is_waiting(message) {
                continue;
            }
            let event = match complete {
                Ok(CompleteMessage { text, attached }) => {
                    let AttachedImages { images, rows } = attached;
                    self.apply(ChatEvent::Attached { message, rows });
                    self.send_now(message, &text, images)
                }
                Err(why) => ChatEvent::Refused { message, why },
            };
            self.apply(event);
        }
    }

    /// Replaces pasted paths of images by their names after `@`. Later keys wait. Other pasted text attaches no file.
    pub(super) fn paste(&mut self, text: String) {
        let is_reply = self.state.activity() == ChatActivity::Asks;
        // A search looks for the pasted text.
        if !is_reply && !self.state.edits_message() {
            return self.apply(ChatEvent::Key(Key::Paste(text)));
        }
        if attached::pasted_paths(&text).is_empty() {
            return self.apply(ChatEvent::Key(Key::Paste(mark(&text))));
        }
        self.is_pasting = true;
        let finder = self.images.clone();
        let scope = Scope::root("paste", self.chat.host.scopes());
        let spec = WorkSpec::new(ItemKind::Thread, "looking for a pasted file");
        let pasted = text.clone();
        let looking = scope.spawn_blocking(spec, move |_| finder.pasted_images(&pasted));
        let pasted = async move {
            let names = match looking {
                Ok(looking) => looking.await.ok().flatten(),
                Err(_not_started) => None,
            };
            FinishedWork::Pasted { text, names }
        };
        self.pending.push(pasted.boxed());
    }

    pub(super) fn pasted(&mut self, text: &str, found: Option<String>) {
        self.is_pasting = false;
        let text = match found {
            Some(found) => {
                for name in names(&found) {
                    self.images.remember(name);
                }
                let line = self.line_before_cursor();
                match line.strip_suffix('@') {
                    // The `@` was typed.
                    Some(line) if !ends_in_word(line) => found[1..].to_owned(),
                    _ if ends_in_word(&line) => format!(" {found}"),
                    _ => found,
                }
            }
            None => mark(text),
        };
        self.apply(ChatEvent::Key(Key::Paste(text)));
    }

    /// Completes the name of a file, and remembers that the file exists.
    pub(super) fn files_found(&mut self, files: Vec<String>) {
        let before = self.state.typed_line();
        self.apply(ChatEvent::Names(CompletionNames {
            files,
            ..CompletionNames::default()
        }));
        let completed = self.state.typed_line();
        if completed != before
            && !ends_in_word(&completed)
            && let Some(name) = names(&completed).pop()
        {
            self.images.remember(name);
        }
    }

    /// The text before the cursor. A reply that is no answer returns to the end of the message.
    fn line_before_cursor(&self) -> String {
        let shown = self.state.input_line(Instant::now());
        let before = shown.as_ref().and_then(|line| line.text.get(..line.cursor));
        match before {
            Some(before) if !before.is_empty() || self.state.edits_message() => before.to_owned(),
            _ => self.state.typed_line(),
        }
    }
}
