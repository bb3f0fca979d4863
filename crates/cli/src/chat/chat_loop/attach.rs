//! Images of messages. A thread reads the files, because a disk can be slow. Later messages and keys wait, so that their
//! order stays.

use std::time::Instant;

use allstop_core::Images;
use allstop_core::receipt::ItemKind;
use allstop_scope::{Scope, WorkSpec};
use allstop_terminal::Key;
use futures::FutureExt as _;

use super::ChatLoop;
use super::pending::FinishedWork;
use crate::chat::attached::{self, AttachedImages};
use crate::chat::complete::CompletionNames;
use crate::chat::state::{ChatActivity, ChatEvent, MessageNumber};
use crate::image_names::{ends_in_word, names};
use crate::pasted_mark::mark;

impl ChatLoop<'_> {
    /// Sends a message with the images that it names.
    pub(super) fn send(&mut self, message: MessageNumber, text: String) -> Option<ChatEvent> {
        if self.unsent.is_empty() && !attached::names_files(&text) {
            return Some(self.send_now(message, &text, Images::default()));
        }
        self.unsent.push_back((message, text));
        if self.unsent.len() == 1 {
            self.read_images();
        }
        None
    }

    /// Reads the images of the oldest unsent message.
    fn read_images(&mut self) {
        let Some((_, text)) = self.unsent.front().cloned() else {
            return;
        };
        let finder = self.images.clone();
        let scope = Scope::root("images", self.chat.host.scopes());
        let spec = WorkSpec::new(ItemKind::Thread, "reading images");
        let reading = scope.spawn_blocking(spec, move |_| finder.read(&text));
        let read = async move {
            FinishedWork::ImagesRead(match reading {
                Ok(reading) => reading.await.unwrap_or_else(|lost| Err(lost.to_string())),
                Err(not_started) => Err(not_started.to_string()),
            })
        };
        self.pending.push(read.boxed());
    }

    /// Sends the message whose images were read, and then the messages after it.
    pub(super) fn images_read(&mut self, read: Result<AttachedImages, String>) {
        let mut read = Some(read);
        while let Some((message, text)) = self.unsent.pop_front() {
            let attached = match read.take() {
                Some(attached) => attached,
                None if attached::names_files(&text) => {
                    self.unsent.push_front((message, text));
                    return self.read_images();
                }
                None => Ok(AttachedImages::default()),
            };
            // A stop has put the text of the message back on the input line.
            if !self.state.is_waiting(message) {
                continue;
            }
            let event = match attached {
                Ok(AttachedImages { images, rows }) => {
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
