//! Search for the commands of a client.

use std::sync::Arc;

use allstop_core::TaskId;
use allstop_task::{ListFilter, Task, TaskState};

use crate::calls::ClientCall;
use crate::failure::CallFailure;
use crate::report::CommandReport;

/// Maximum number of commands in one preview. It is above the default limit of running commands.
const PREVIEWED_MAX: usize = 256;

/// Number of tasks in one page, in the search for ended ones.
const PAGE_LEN: usize = 256;

/// Number of ended commands in the text of a receipt without an id: enough to find a command that was cancelled.
const LISTED_MAX: usize = 10;

impl ClientCall<'_> {
    /// The command of this client with this id.
    pub(crate) async fn find(&self, id: &str) -> Result<Arc<Task>, CallFailure> {
        let id = TaskId::new(id);
        let task = self.manager.get(&id).await?;
        let is_own = task.owner == self.owner;
        is_own.then_some(task).ok_or(CallFailure::NotFound(id))
    }

    /// The commands that run or are about to start.
    pub(crate) async fn unended(&self) -> Result<Vec<TaskId>, CallFailure> {
        let mut tasks = Vec::new();
        for state in [TaskState::Working, TaskState::Submitted] {
            let filter = self.filter(Some(state));
            let page = self.manager.list(&filter, None, PREVIEWED_MAX).await;
            let page = page.map_err(|error| CallFailure::Other(error.to_string()))?;
            tasks.extend(page.tasks.into_iter().map(|task| task.id));
        }
        Ok(tasks)
    }

    /// The command that ended last, and reports about earlier ones.
    pub(crate) async fn last_ended(&self) -> Result<(Arc<Task>, Vec<CommandReport>), CallFailure> {
        let filter = self.filter(None);
        let mut ended = Vec::new();
        let mut after = None;
        loop {
            let page = self.manager.list(&filter, after.as_ref(), PAGE_LEN).await;
            let page = page.map_err(|error| CallFailure::Other(error.to_string()))?;
            for task in page.tasks {
                // The list can be older than the result that the client has received.
                let has_ended = task.has_ended()
                    || self
                        .manager
                        .get(&task.id)
                        .await
                        .is_ok_and(|task| task.has_ended());
                if has_ended {
                    ended.push(task.id);
                }
            }
            after = page.next;
            if ended.len() >= LISTED_MAX || after.is_none() {
                break;
            }
        }
        ended.truncate(LISTED_MAX);
        let mut ended = ended.into_iter();
        let last = ended.next().ok_or(CallFailure::NoneEnded)?;
        let mut before = Vec::new();
        for id in ended {
            // The server may have removed the command meanwhile.
            if let Ok(task) = self.manager.get(&id).await {
                before.push(CommandReport::of_task(&task));
            }
        }
        Ok((self.manager.get(&last).await?, before))
    }

    fn filter(&self, state: Option<TaskState>) -> ListFilter {
        let mut filter = ListFilter::default();
        filter.owner = Some(Arc::clone(&self.owner));
        filter.state = state;
        filter
    }
}
