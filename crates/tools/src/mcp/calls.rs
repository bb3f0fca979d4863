//! The open calls of one connection to an MCP server. Each call is answered exactly once; the id of the request assigns
//! an answer to its call.
//!
//! Invariants:
//! 1. An entry leaves the table together with its registration in the scope of the call, which a receipt of a stop
//!    lists. The code that removes the entry reports the call's end to the registration.
//! 2. An answer whose call has no entry is dropped, so a late answer never reaches a later call.
//! 3. After the table has begun to end, no call begins on the connection.
//! 4. The entry of a call that the server continues as a task stays in the table until the end of the task.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use allstop_scope::{Ending, Registration};
use parking_lot::Mutex;
use rmcp::model::{
    ClientRequest, NumberOrString, ProgressNotificationParam, ProgressToken, RequestId,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, RoleClient};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::call_answer::{AnsweredCall, CallAnswer};
use super::cancellation::{CallCancellation, SendRefusal, UnsentCancellations};
use super::connection_end::ConnectionEnd;
use super::elicitation::SentQuestion;
use super::limits::CALLS_MAX;
use super::mcp_task::McpTask;
use crate::call_progress::CallProgress;

#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    table: Mutex<CallTable>,
    /// Notified when a call leaves the table.
    left: Notify,
    pub(super) unsent: Arc<UnsentCancellations>,
}

#[derive(Debug, Default)]
struct CallTable {
    open: HashMap<RequestId, OpenMcpCall>,
    /// Reason why no further call begins.
    ending: Option<Arc<str>>,
}

#[derive(Debug)]
struct OpenMcpCall {
    token: ProgressToken,
    /// The latest progress. The call shows the progress at fixed intervals, so only the last of many quick messages is
    /// shown.
    progress: watch::Sender<Option<CallProgress>>,
    questions: mpsc::Sender<SentQuestion>,
    cancel: Arc<CallCancellation>,
    registration: Registration,
    /// Receives the task that continues the call. `None` if the call is a task now.
    continued: Option<oneshot::Sender<McpTask>>,
    /// Id of the task that continues the call.
    task_id: Option<Arc<str>>,
    answer: oneshot::Sender<AnsweredCall>,
}

/// A call whose request was sent.
#[derive(Debug)]
pub(super) struct BegunCall {
    pub(super) handle: RequestHandle<RoleClient>,
    /// Receives the task, if the server continues the call as a task.
    pub(super) continued: oneshot::Receiver<McpTask>,
    pub(super) answered: oneshot::Receiver<AnsweredCall>,
}

/// Channels to the future of a call, for the messages of the server during the call.
#[derive(Debug)]
pub(super) struct CallChannels {
    pub(super) progress: watch::Sender<Option<CallProgress>>,
    pub(super) questions: mpsc::Sender<SentQuestion>,
}

#[derive(Debug)]
pub(super) enum CallRefused {
    Cancelled,
    Ending(Arc<str>),
    TooMany,
    Refused,
}

impl OpenCalls {
    /// Sends a request and records its call in one step, so that no answer can arrive before the call is recorded.
    pub(super) fn begin(
        &self,
        request: ClientRequest,
        options: PeerRequestOptions,
        cancel: &Arc<CallCancellation>,
        channels: CallChannels,
        registration: Registration,
    ) -> Result<BegunCall, CallRefused> {
        let mut table = self.table.lock();
        let refused = if let Some(why) = &table.ending {
            CallRefused::Ending(Arc::clone(why))
        } else if table.open.len() >= CALLS_MAX {
            CallRefused::TooMany
        } else {
            match cancel.send(request, options) {
                Ok(handle) => {
                    let (answer, answered) = oneshot::channel();
                    let (created, continued) = oneshot::channel();
                    let open = OpenMcpCall {
                        token: handle.progress_token.clone(),
                        progress: channels.progress,
                        questions: channels.questions,
                        cancel: Arc::clone(cancel),
                        registration,
                        continued: Some(created),
                        task_id: None,
                        answer,
                    };
                    table.open.insert(handle.id.clone(), open);
                    return Ok(BegunCall {
                        handle,
                        continued,
                        answered,
                    });
                }
                Err(SendRefusal::Cancelled) => CallRefused::Cancelled,
                Err(SendRefusal::Refused) => CallRefused::Refused,
            }
        };
        drop(table);
        registration.finish(Ending::NotBegun);
        Err(refused)
    }

    /// Delivers an answer. `Err` if no open call has this id. A call that the server continues as a task stays open.
    pub(super) fn answer(&self, id: &RequestId, answer: CallAnswer) -> Result<(), CallAnswer> {
        let mut table = self.table.lock();
        let Entry::Occupied(mut entry) = table.open.entry(exact(id)) else {
            return Err(answer);
        };
        if let CallAnswer::Result(result) = &answer
            && let Some(task) = McpTask::created(result)
            && let Some(continued) = entry.get_mut().continued.take()
        {
            let open = entry.get_mut();
            open.task_id = Some(Arc::clone(&task.id));
            open.cancel.continued_as(&task);
            // Fails if the call is abandoned. Its task is cancelled then.
            drop(continued.send(task));
            return Ok(());
        }
        let open = entry.remove();
        drop(table);
        self.left.notify_waiters();
        match &answer {
            // No answer will arrive, so a cancellation informs the server that no caller waits.
            CallAnswer::Cut(why) => open.cancel.request(why),
            _ => open.cancel.answered(),
        }
        open.answer(answer);
        Ok(())
    }

    /// True if an open call has this id.
    pub(super) fn is_open(&self, id: &RequestId) -> bool {
        self.table.lock().open.contains_key(&exact(id))
    }

    /// Passes progress to its call. Invalid progress is dropped.
    pub(super) fn progress(&self, params: &ProgressNotificationParam) {
        let message = params.message.as_deref();
        let progress = CallProgress::checked(params.progress, params.total, message);
        let table = self.table.lock();
        let mut open = table.open.values();
        let open = open.find(|open| open.token == params.progress_token);
        if let Some(progress) = progress
            && let Some(open) = open.filter(|open| !open.cancel.is_cancelled())
        {
            open.progress.send_replace(Some(progress));
        }
    }

    /// Channel to the call that a question of the server belongs to. `task` is the id of its task and `origin` the id of
    /// its request, if they are known. Otherwise the question belongs to the only open call.
    pub(super) fn asker(
        &self,
        task: Option<&str>,
        origin: Option<&RequestId>,
    ) -> Option<mpsc::Sender<SentQuestion>> {
        let table = self.table.lock();
        let open = match (task, origin) {
            (Some(task), _) => {
                let mut open = table.open.values();
                open.find(|open| open.task_id.as_deref() == Some(task))
            }
            (None, Some(id)) => table.open.get(&exact(id)),
            (None, None) if table.open.len() == 1 => table.open.values().next(),
            (None, None) => None,
        };
        let open = open.filter(|open| !open.cancel.is_cancelled());
        open.map(|open| open.questions.clone())
    }

    /// Removes a call whose end will remain unknown.
    pub(super) fn take(&self, id: &RequestId) -> Option<Registration> {
        let open = self.table.lock().open.remove(id);
        self.left.notify_waiters();
        open.map(|open| open.registration)
    }

    /// If every open call is cancelled, refuses new calls from now on and returns true.
    pub(super) fn end_if_unused(&self, why: &str) -> bool {
        let mut table = self.table.lock();
        let unused = table.open.values().all(|open| open.cancel.is_cancelled());
        if unused {
            table.ending.get_or_insert_with(|| why.into());
        }
        unused
    }

    /// Refuses new calls from now on.
    pub(super) fn refuse(&self, why: &Arc<str>) {
        self.table
            .lock()
            .ending
            .get_or_insert_with(|| Arc::clone(why));
    }

    /// Cancels every open call, and waits until all cancellations are written.
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection still writes the remaining cancellations.
    pub(super) async fn cancel_all(&self, reason: &str) {
        let cancels = |open: &OpenMcpCall| Arc::clone(&open.cancel);
        let open: Vec<_> = self.table.lock().open.values().map(cancels).collect();
        for cancel in open {
            cancel.request(reason);
        }
        self.unsent.written().await;
    }

    /// Waits until no call is open.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn all_ended(&self) {
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            // A call that leaves after the check must not be missed.
            left.as_mut().enable();
            if self.table.lock().open.is_empty() {
                return;
            }
            left.await;
        }
    }

    /// Ends every open call with the end of the connection as its answer.
    pub(super) fn close(&self, ended: &Arc<ConnectionEnd>) {
        self.refuse(&ended.why);
        let open = std::mem::take(&mut self.table.lock().open);
        for open in open.into_values() {
            open.answer(CallAnswer::Ended(Arc::clone(ended)));
        }
    }
}

impl OpenMcpCall {
    fn answer(self, answer: CallAnswer) {
        let answered = AnsweredCall {
            answer,
            registration: self.registration,
        };
        if let Err(unheard) = self.answer.send(answered) {
            unheard.conclude();
        }
    }
}

/// Some servers return an id of this side as text. Converts such an id back to a number.
fn exact(id: &RequestId) -> RequestId {
    match id {
        NumberOrString::String(text) => text
            .parse()
            .map_or_else(|_| id.clone(), NumberOrString::Number),
        NumberOrString::Number(_) => id.clone(),
    }
}
