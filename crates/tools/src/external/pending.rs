//! Matching of calls and answers: pending requests, the queue to the handler, and late answers.

use std::collections::{HashMap, VecDeque};

use allstop_core::Cause;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::requests::{
    Delivery, ExternalEvent, ExternalOptions, ExternalRequest, LateAnswer, RequestId,
};
use crate::call_link::CallLink;
use crate::tool::{ToolError, ToolOutput};

/// Maximum number of remembered calls that ended without an answer. The table remembers such calls to recognise a late
/// answer. An answer that arrives after a thousand further such calls counts as unknown.
const ABANDONED_MAX: usize = 1024;

#[derive(Debug)]
pub(super) enum RequestEnd {
    Answered(Result<ToolOutput, ToolError>),
    ConfirmedCancelled,
    /// The request was cancelled, and its handler does not confirm cancellations.
    NotConfirmed,
    /// The request was cancelled before the handler took it.
    NeverTaken,
    /// The handler disconnected, before or after it took the request.
    HandlerGone {
        taken: bool,
    },
}

#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(super) enum RequestRefused {
    #[error("the handler of this tool has disconnected")]
    HandlerGone,
    #[error("the handler of this tool is too slow: {waiting} calls are waiting for it")]
    Full { waiting: usize },
}

#[derive(Debug)]
pub(super) struct PendingRequests {
    options: ExternalOptions,
    state: Mutex<PendingState>,
    /// Notified when an event was queued or the handler disconnected.
    changed: Notify,
}

#[derive(Debug, Default)]
struct PendingState {
    last: u64,
    queue: VecDeque<ExternalEvent>,
    calls_queued: usize,
    pending: HashMap<RequestId, PendingRequest>,
    abandoned: VecDeque<(RequestId, LateAnswer)>,
    late_answers: u64,
    disconnected: bool,
}

#[derive(Debug)]
struct PendingRequest {
    reply: oneshot::Sender<RequestEnd>,
    link: CallLink,
    call: LateAnswer,
    taken: bool,
    cancelled: bool,
}

impl PendingRequests {
    pub(super) fn new(options: ExternalOptions) -> Self {
        Self {
            options,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub(super) fn confirms_cancellation(&self) -> bool {
        self.options.confirms_cancellation
    }

    pub(super) fn send(
        &self,
        mut request: ExternalRequest,
        link: CallLink,
    ) -> Result<(RequestId, oneshot::Receiver<RequestEnd>), RequestRefused> {
        let mut state = self.state.lock();
        if state.disconnected {
            return Err(RequestRefused::HandlerGone);
        }
        if state.calls_queued >= self.options.queue_len_max {
            return Err(RequestRefused::Full {
                waiting: state.calls_queued,
            });
        }
        state.last += 1;
        let id = RequestId(state.last);
        request.request_id = id;
        let (reply, answer) = oneshot::channel();
        let pending = PendingRequest {
            reply,
            link,
            call: LateAnswer {
                session_id: request.session_id.clone(),
                call_id: request.call_id.clone(),
                name: request.name.clone(),
            },
            taken: false,
            cancelled: false,
        };
        state.pending.insert(id, pending);
        state.queue.push_back(ExternalEvent::Call(request));
        state.calls_queued += 1;
        drop(state);
        self.changed.notify_one();
        Ok((id, answer))
    }

    /// Notifies the handler of a cancellation, once. If the handler has not taken the call yet, the call is removed and
    /// the handler is not notified.
    pub(super) fn cancel(&self, id: RequestId, cause: Cause) {
        let mut state = self.state.lock();
        let Some(pending) = state.pending.get_mut(&id) else {
            return;
        };
        if !pending.taken {
            state.queue.retain(
                |event| !matches!(event, ExternalEvent::Call(call) if call.request_id == id),
            );
            state.calls_queued -= 1;
            let pending = state.pending.remove(&id);
            drop(state);
            if let Some(pending) = pending {
                pending.end(RequestEnd::NeverTaken);
            }
            return;
        }
        if !std::mem::replace(&mut pending.cancelled, true) {
            let request_id = id;
            state
                .queue
                .push_back(ExternalEvent::Cancelled { request_id, cause });
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Ends the wait for an answer. An answer that arrives after that is late.
    pub(super) fn abandon(&self, id: RequestId, cause: Cause) {
        self.cancel(id, cause);
        let mut state = self.state.lock();
        if let Some(pending) = state.pending.remove(&id) {
            if state.abandoned.len() == ABANDONED_MAX {
                state.abandoned.pop_front();
            }
            state.abandoned.push_back((id, pending.call));
        }
    }

    pub(super) fn end(&self, id: RequestId, end: RequestEnd) -> Delivery {
        let is_answer = matches!(end, RequestEnd::Answered(_));
        let mut state = self.state.lock();
        if let Some(pending) = state.pending.remove(&id) {
            drop(state);
            return pending.end(end);
        }
        let Some(at) = state.abandoned.iter().position(|(given, _)| *given == id) else {
            return Delivery::Unknown;
        };
        // Only the first late answer of a call counts. A second one is unknown.
        if let Some((_, call)) = state.abandoned.remove(at)
            && is_answer
        {
            state.late_answers += 1;
            drop(state);
            (self.options.on_late_answer)(call);
        }
        Delivery::Late
    }

    pub(super) fn progress(&self, id: RequestId, text: &str) -> Delivery {
        let state = self.state.lock();
        let Some(link) = state.pending.get(&id).map(|pending| pending.link.clone()) else {
            let late = state.abandoned.iter().any(|(given, _)| *given == id);
            return if late {
                Delivery::Late
            } else {
                Delivery::Unknown
            };
        };
        drop(state);
        link.output(text);
        Delivery::Delivered
    }

    /// True if the request waits for an answer and was not cancelled.
    pub(super) fn is_open(&self, id: RequestId) -> bool {
        let state = self.state.lock();
        let pending = state.pending.get(&id);
        pending.is_some_and(|pending| !pending.cancelled)
    }

    pub(super) fn late_answers(&self) -> u64 {
        self.state.lock().late_answers
    }

    pub(super) fn disconnect(&self) {
        let mut state = self.state.lock();
        state.disconnected = true;
        state.queue.clear();
        state.calls_queued = 0;
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        for pending in pending.into_values() {
            let taken = pending.taken;
            pending.end(RequestEnd::HandlerGone { taken });
        }
        self.changed.notify_one();
    }

    pub(super) async fn next(&self) -> Option<ExternalEvent> {
        loop {
            {
                let mut state = self.state.lock();
                match state.queue.pop_front() {
                    Some(ExternalEvent::Call(call)) => {
                        state.calls_queued -= 1;
                        if let Some(pending) = state.pending.get_mut(&call.request_id) {
                            pending.taken = true;
                        }
                        return Some(ExternalEvent::Call(call));
                    }
                    Some(event) => return Some(event),
                    None if state.disconnected => return None,
                    None => {}
                }
            }
            self.changed.notified().await;
        }
    }
}

impl PendingRequest {
    fn end(self, end: RequestEnd) -> Delivery {
        // Sending fails if the receiver was dropped at this moment.
        self.reply
            .send(end)
            .map_or(Delivery::Late, |()| Delivery::Delivered)
    }
}
