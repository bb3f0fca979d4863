//! Work of a task that an earlier process left running, such as processes whose server and keeper (the process that
//! supervises a command) were both killed.

use std::sync::Arc;

use allstop_core::receipt::ReceiptItem;
use allstop_core::{Cause, Receipt};
use allstop_log::{LoggedAnswer, SessionError, committed_answer, read_session_end};
use allstop_scope::StopRequest;
use allstop_session::Session;
use allstop_session::orphan_scan::settled_work;
use allstop_session::orphan_search::OrphanSearch;
use allstop_session::orphaned_calls::settled_orphaned_calls;
use allstop_task::{CancelCx, Task};

use super::context_sessions::{ContextSessions, session_id_of};
use super::task_sessions::{message_id_of, work_of};

/// Session of an ended task whose orphaned work a stop has to end.
pub(super) enum OrphanSession {
    /// No work of the task is left.
    WithoutOrphans,
    /// The open session.
    Open(Session),
    /// The session cannot be opened. These items stand for the work of the task that may run.
    NotOpened(Vec<ReceiptItem>),
}

impl ContextSessions {
    /// Stops the work that a turn of an earlier process has left, and adds the receipt to the receipt of the task. The
    /// execution was stopped before it continued the turn, so no other stop covers this work.
    pub(super) async fn stop_left_turn(&self, cx: &CancelCx) {
        let Ok(id) = session_id_of(&cx.task.context_id) else {
            return;
        };
        let logged = committed_answer(self.log(), &id, &message_id_of(&cx.task.id)).await;
        if !matches!(logged, Ok(LoggedAnswer::NotCommitted(_))) {
            return;
        }
        let target = work_of(&cx.task.id);
        let receipt = match self.session(&cx.task.context_id).await {
            Ok(session) => {
                session.check_orphaned_work().await;
                let stop = session.stop(&target, cx.cause.clone());
                stop.receipt().await
            }
            Err(error) => {
                tracing::warn!(%error, "the left work of a stopped task cannot be stopped");
                let left = OrphanSearch::unsearched(message_id_of(&cx.task.id));
                self.receipt_of_unopened(&cx.task, cx.cause.clone(), left.items())
            }
        };
        if receipt.outcome().is_none() || !receipt.quiet() {
            cx.receipts.add(receipt);
        }
    }

    /// Receipt of a stop that could not open the session of an ended task. No session makes a receipt then.
    pub(super) fn receipt_of_unopened(
        &self,
        task: &Task,
        cause: Cause,
        items: Vec<ReceiptItem>,
    ) -> Arc<Receipt> {
        let request = StopRequest::new(work_of(&task.id).extent(), cause);
        let request = request.target(format!("task/{}", task.id));
        Arc::new(Receipt::already_ended(
            self.scope().stop_info(&request),
            items,
        ))
    }

    /// Receipt items for the orphaned work of a task.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn orphans_of(&self, task: &Task) -> Vec<ReceiptItem> {
        if let Some(session) = self.open_session(task) {
            session.check_orphaned_work().await;
            return session.preview(&work_of(&task.id)).items().to_vec();
        }
        self.logged_orphans(task).await.items()
    }

    /// The session of a task with orphaned work. Opens the session if necessary.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn session_with_orphans(&self, task: &Task) -> OrphanSession {
        if let Some(session) = self.open_session(task) {
            session.check_orphaned_work().await;
            return OrphanSession::Open(session);
        }
        let items = self.logged_orphans(task).await.items();
        if items.is_empty() {
            return OrphanSession::WithoutOrphans;
        }
        match self.session(&task.context_id).await {
            Ok(session) => OrphanSession::Open(session),
            Err(error) => {
                tracing::warn!(%error, "the left work of a task cannot be stopped");
                OrphanSession::NotOpened(items)
            }
        }
    }

    fn open_session(&self, task: &Task) -> Option<Session> {
        let id = session_id_of(&task.context_id).ok()?;
        self.registry().find(&id)
    }

    /// Running work of the task according to the log of a session that no process has open. If a process has the
    /// session open, this process owns the work.
    async fn logged_orphans(&self, task: &Task) -> OrphanSearch {
        let Ok(id) = session_id_of(&task.context_id) else {
            return OrphanSearch::default();
        };
        let state = match read_session_end(self.log(), &id).await {
            Ok((state, None)) => state,
            Ok((_, Some(_))) | Err(SessionError::NotFound(_)) => return OrphanSearch::default(),
            Err(error) => {
                tracing::warn!(%error, "the left work of a task cannot be listed");
                return OrphanSearch::unsearched(message_id_of(&task.id));
            }
        };
        let works = settled_work(&state, self.scope()).await;
        let mut found = settled_orphaned_calls(&state, self.scope()).await;
        found.works.splice(..0, works);
        let message = message_id_of(&task.id);
        found
            .works
            .retain(|work| work.alive && work.message.as_ref() == Some(&message));
        found.unsearched.retain_message(&message);
        found
    }
}
