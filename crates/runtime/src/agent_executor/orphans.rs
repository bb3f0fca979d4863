//! Work of a task that an earlier process left running, such as processes whose server and keeper (the process that
//! supervises a command) were both killed.

use allstop_core::receipt::ReceiptItem;
use allstop_log::read_session_end;
use allstop_session::Session;
use allstop_session::orphan_scan::{OrphanedWork, settled_work};
use allstop_session::orphaned_calls::settled_orphaned_calls;
use allstop_task::Task;

use super::context_sessions::{ContextSessions, session_id_of};
use super::task_sessions::{message_id_of, work_of};

impl ContextSessions {
    /// Receipt items for the orphaned work of a task.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn orphans_of(&self, task: &Task) -> Vec<ReceiptItem> {
        if let Some(session) = self.open_session(task) {
            session.check_orphaned_work().await;
            return session.preview(&work_of(&task.id)).items().to_vec();
        }
        let orphans = self.logged_orphans(task).await;
        orphans.iter().map(OrphanedWork::running_item).collect()
    }

    /// The session of a task with orphaned work. Opens the session if necessary.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn session_with_orphans(&self, task: &Task) -> Option<Session> {
        if let Some(session) = self.open_session(task) {
            session.check_orphaned_work().await;
            return Some(session);
        }
        if self.logged_orphans(task).await.is_empty() {
            return None;
        }
        match self.session(&task.context_id).await {
            Ok(session) => Some(session),
            Err(error) => {
                tracing::warn!(%error, "the left work of a task cannot be stopped");
                None
            }
        }
    }

    fn open_session(&self, task: &Task) -> Option<Session> {
        let id = session_id_of(&task.context_id).ok()?;
        self.registry().find(&id)
    }

    /// Running work of the task according to the log of a session that no process has open. If a process has the
    /// session open, this process owns the work.
    async fn logged_orphans(&self, task: &Task) -> Vec<OrphanedWork> {
        let Ok(id) = session_id_of(&task.context_id) else {
            return Vec::new();
        };
        let Ok((state, None)) = read_session_end(self.log(), &id).await else {
            return Vec::new();
        };
        let mut works = settled_work(&state, self.scope()).await;
        works.extend(settled_orphaned_calls(&state, self.scope()).await);
        let message = message_id_of(&task.id);
        works.retain(|work| work.alive && work.message.as_ref() == Some(&message));
        works
    }
}
