//! Sends messages and stops, and handles their results: outcomes of messages, receipts of stops, texts of commands.

use std::sync::Arc;
use std::time::Instant;

use allstop_core::turn::Conversation;
use allstop_core::{Cause, Extent, Images, Receipt};
use allstop_log::SessionError;
use allstop_session::{Admission, MessageOutcome, NewMessage, SendError, SessionStop, StopTarget};
use futures::FutureExt as _;

use super::{ChatLoop, LeaveRequest};
use crate::chat::complete::CompletionNames;
use crate::chat::said::Said;
use crate::chat::server_content::CompleteMessage;
use crate::chat::state::{ChatEvent, CommandWork, MessageNumber};
use crate::display::is_worth_showing;
use allstop_remote::RemoteStop;

/// Maximum number of remembered stops. The outcome of a stopped message arrives within a second after the stop, and no
/// user requests more than 16 stops in a second.
const ASKED_STOPS_MAX: usize = 16;

/// Result of work that the chat began.
pub(super) enum FinishedWork {
    Outcome(MessageNumber, Arc<MessageOutcome>),
    Stopped(Arc<Receipt>),
    /// The conversation, to be shown.
    History(Result<Arc<Conversation>, SessionError>),
    /// Files of the working folder, to complete a name.
    Files(Vec<String>),
    /// The images and resources of the oldest unsent message.
    PartsRead(Result<CompleteMessage, String>),
    /// Names of the commands for prompts of MCP servers.
    Prompts(Vec<String>),
    /// A pasted text, and the names after `@` if the text is only paths of images.
    Pasted {
        text: String,
        names: Option<String>,
    },
    /// The text that the user has edited in an editor.
    Edited(Result<String, String>),
    /// The end of `/compact`.
    Compacted(Said),
    /// A text to show. If `was_wait` is true, the text also ends the wait for background work.
    Said {
        said: Said,
        was_wait: bool,
    },
}

impl ChatLoop<'_> {
    pub(super) fn send_now(
        &mut self,
        message: MessageNumber,
        text: &str,
        images: Images,
    ) -> ChatEvent {
        let new = NewMessage::from(text).images(images);
        match self.chat.session.send(new) {
            Ok(sent) => {
                self.numbers.insert(sent.id.clone(), message);
                let steers = sent.admission == Admission::Steers;
                let outcome = async move { FinishedWork::Outcome(message, sent.outcome().await) };
                self.pending.push(outcome.boxed());
                ChatEvent::Accepted { message, steers }
            }
            Err(error) => ChatEvent::Refused {
                message,
                why: match error {
                    SendError::Refused(why) => {
                        format!(
                            "{why} · policy {}; /policy changes it",
                            self.chat.session.policy()
                        )
                    }
                    other => other.to_string(),
                },
            },
        }
    }

    pub(super) fn stop(&mut self, target: &StopTarget, cause: Cause) {
        let stopping = self.chat.session.stop(target, cause);
        self.follow_stop(stopping);
    }

    /// Stops messages before their turns begin. The texts of these messages return to the input line, and the receipts
    /// of these stops are not shown.
    pub(super) fn withdraw(&mut self, numbers: &[MessageNumber], cause: &Cause) {
        self.end_reading_of(numbers);
        let ids = self.numbers.iter();
        let ids = ids.filter(|(_, number)| numbers.contains(number));
        let targets: Vec<_> = ids.map(|(id, _)| StopTarget::Message(id.clone())).collect();
        for target in targets {
            let stopping = self.chat.session.stop(&target, cause.clone());
            self.remember_stop(stopping);
        }
    }

    /// Remembers a stop whose receipt must not be shown with the outcome of a message.
    fn remember_stop(&mut self, stopping: SessionStop) {
        self.asked_stops.push_back(stopping);
        if self.asked_stops.len() > ASKED_STOPS_MAX {
            self.asked_stops.pop_front();
        }
    }

    /// Handles a stop from another terminal like a stop from this one.
    pub(super) fn stopped_from_elsewhere(&mut self, asked: RemoteStop) {
        self.follow_stop(asked.stop);
    }

    fn follow_stop(&mut self, stopping: SessionStop) {
        let id = &stopping.request().stop_id;
        // This stop has joined an earlier stop, and both have the same receipt. The chat already waits for the earlier
        // stop.
        if self.stops.iter().any(|stop| stop.request().stop_id == *id) {
            return;
        }
        let now = Instant::now();
        self.state.stop_begun(now);
        let force_at = self.state.force_at(now);
        self.chat.view.live.stopping(force_at);
        self.chat.remote.announcer().stopping(force_at);
        self.stops.push(stopping.clone());
        self.remember_stop(stopping.clone());
        self.pending
            .push(async move { FinishedWork::Stopped(stopping.receipt().await) }.boxed());
    }

    pub(super) fn done(&mut self, done: FinishedWork) {
        match done {
            FinishedWork::Outcome(number, outcome) => self.outcome(number, &outcome),
            FinishedWork::Stopped(receipt) => {
                let id = receipt.stop_id();
                self.stops.retain(|stop| stop.request().stop_id != *id);
                if self.stops.is_empty() {
                    self.chat.view.live.stopping(None);
                }
                self.chat.view.live.interrupt();
                self.chat.show_receipt(&receipt);
                self.apply(ChatEvent::StopEnded);
                if self.stops.is_empty() && std::mem::take(&mut self.suspends_after_stops) {
                    self.suspend();
                }
                if receipt.request().extent == Extent::Session {
                    // The session accepts no more messages.
                    self.left = Some(LeaveRequest {
                        cause: None,
                        next: None,
                    });
                }
            }
            FinishedWork::History(Ok(conversation)) => {
                self.chat.view.live.interrupt();
                let id = self.chat.session.id().clone();
                if conversation.messages.is_empty() {
                    self.chat.view.note("the conversation is empty");
                }
                self.chat.view.transcript(&conversation, &id);
                self.apply(ChatEvent::CommandEnded);
            }
            FinishedWork::History(Err(error)) => {
                self.note(&format!("the history cannot be read: {error}"));
                self.apply(ChatEvent::CommandEnded);
            }
            FinishedWork::Files(files) => self.files_found(files),
            FinishedWork::PartsRead(read) => self.parts_read(read),
            FinishedWork::Prompts(commands) => self.apply(ChatEvent::Names(CompletionNames {
                commands,
                ..CompletionNames::default()
            })),
            FinishedWork::Pasted { text, names } => self.pasted(&text, names),
            FinishedWork::Edited(edited) => self.editor_closed(edited),
            FinishedWork::Compacted(said) => {
                self.chat.view.live.interrupt();
                self.chat.view.said(&said);
                self.status.compacts(None);
                self.apply(ChatEvent::WorkEnded(CommandWork::Compacts));
            }
            FinishedWork::Said { said, was_wait } => {
                self.chat.view.live.interrupt();
                self.chat.view.said(&said);
                self.apply(if was_wait {
                    ChatEvent::WorkEnded(CommandWork::Waits)
                } else {
                    ChatEvent::CommandEnded
                });
            }
        }
    }

    fn outcome(&mut self, number: MessageNumber, outcome: &MessageOutcome) {
        if self.state.shows(Some(number)) {
            self.chat.view.end_turn(Some(outcome));
        }
        self.apply(ChatEvent::Outcome(number));
        self.chat.view.outcome(outcome, &self.outputs);
        if let Some(error) = &outcome.error {
            self.chat.remote.announcer().note(error.to_string());
        }
        let Some(receipt) = &outcome.receipt else {
            return;
        };
        // The receipt of a remembered stop is shown separately, because the stop may cover more than this message.
        let mut asked = self.asked_stops.iter();
        let is_ours = asked.any(|stop| stop.request().stop_id == *receipt.stop_id());
        if !is_ours && is_worth_showing(receipt) {
            self.chat.show_receipt(receipt);
        }
    }
}
