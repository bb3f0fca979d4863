//! Tasks of the demo, as a client of the front end sees them. The front end is the process `serve`, which accepts the
//! tasks of the cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::{Cause, Receipt};
use serde_json::Value;

use super::wait::wait_for;
use crate::error::CliError;
use crate::tasks::client::{RequestError, TaskServer};
use crate::tasks::find::{FoundTask, newest};

/// Maximum wait for the acknowledgement of a message, with retries. The limit is longer than the servers need to elect
/// a leader.
const SEND_MAX: Duration = Duration::from_secs(25);

/// Maximum number of listed tasks. This limit is greater than the number of sent tasks. So surplus tasks, which the
/// demo has not sent, would also be listed.
const LIST_MAX: usize = 100;

/// A client of the front end, and the tasks that it has sent.
pub(super) struct DemoTasks {
    server: TaskServer,
    pub(super) sent: Vec<SentTask>,
}

/// A message that the front end has acknowledged.
#[derive(Debug, Clone)]
pub(super) struct SentTask {
    pub(super) name: &'static str,
    pub(super) id: String,
}

/// End of a task, as the front end reports it.
#[derive(Debug, Clone)]
pub(super) struct SeenEnd {
    /// State of the task: `completed`, `canceled` or `failed`.
    pub(super) state: String,
    pub(super) cause: Option<Cause>,
    pub(super) error: Option<String>,
    pub(super) receipt: Option<Arc<Receipt>>,
}

impl DemoTasks {
    pub(super) fn new(address: &str) -> Result<Self, CliError> {
        Ok(Self {
            server: TaskServer::new(address, None)?,
            sent: Vec::new(),
        })
    }

    /// Sends a message that starts a task, waits for the acknowledgement, and returns the elapsed time. If the message
    /// gets no answer, it is sent again with the same id.
    pub(super) async fn send(&mut self, name: &'static str) -> Result<Duration, CliError> {
        let began = Instant::now();
        let answer = loop {
            match self.server.send(name, name).await {
                Ok(answer) => break answer,
                Err(RequestError::Refused { status, error }) if !status.is_server_error() => {
                    return Err(error);
                }
                Err(error) if began.elapsed() > SEND_MAX => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        };
        let id = FoundTask::of(answer)?.task.id;
        self.sent.push(SentTask { name, id });
        Ok(began.elapsed())
    }

    /// Id of a task that was sent.
    pub(super) fn id(&self, name: &str) -> Result<String, CliError> {
        let sent = self.sent.iter().find(|sent| sent.name == name);
        sent.map(|sent| sent.id.clone())
            .ok_or_else(|| CliError::failure(format!("the demo has not sent {name}")))
    }

    /// Stops a task and returns its end.
    pub(super) async fn stop(&self, name: &str) -> Result<SeenEnd, CliError> {
        let stopped = self
            .server
            .stop(&self.id(name)?, Some("the demo's stop"))
            .await?;
        Ok(SeenEnd::of(&FoundTask::of(stopped)?))
    }

    /// Waits for the end of a task, and returns it with the elapsed time.
    pub(super) async fn end(
        &self,
        name: &str,
        max: Duration,
    ) -> Result<(SeenEnd, Duration), CliError> {
        let id = self.id(name)?;
        let look = async || {
            // If the request gets no answer, it is repeated.
            let found = self.server.task(&id).await.ok()?;
            let found = FoundTask::of(found).ok()?;
            found
                .task
                .status
                .state
                .is_terminal()
                .then(|| SeenEnd::of(&found))
        };
        wait_for(&format!("the end of {name}"), max, look).await
    }

    /// Waits until these tasks have ended, and returns their ends.
    pub(super) async fn ends(
        &self,
        names: &[&'static str],
        max: Duration,
    ) -> Result<Vec<(&'static str, SeenEnd)>, CliError> {
        let mut ends = Vec::new();
        for name in names {
            ends.push((*name, self.end(name, max).await?.0));
        }
        Ok(ends)
    }

    /// Every listed task: its id, and its state if the task has ended.
    pub(super) async fn listed(&self) -> Result<Vec<(String, Option<String>)>, CliError> {
        let (tasks, _) = newest(&self.server, &[], LIST_MAX).await?;
        let listed = tasks.into_iter().map(|found| {
            let state = &found.task.status.state;
            let ended = state.is_terminal().then(|| state.word());
            (found.task.id, ended)
        });
        Ok(listed.collect())
    }
}

impl SeenEnd {
    pub(super) fn is_completed(&self) -> bool {
        self.state == "completed"
    }

    /// Describes the end for people: `failed, cause failure (crash)`.
    pub(super) fn describe(&self) -> String {
        let cause = self.cause.as_ref();
        let cause = cause.map_or_else(String::new, |cause| format!(", cause {cause}"));
        let error = self.error.as_ref();
        let error = error.map_or_else(String::new, |error| format!(": {error}"));
        format!("{}{cause}{error}", self.state)
    }

    fn of(found: &FoundTask) -> Self {
        let end = found.task.end();
        Self {
            state: found.task.status.state.word(),
            cause: end.cause,
            error: end.error,
            receipt: end.receipt,
        }
    }
}

impl From<&SentTask> for Value {
    fn from(sent: &SentTask) -> Self {
        serde_json::json!({"name": sent.name, "id": sent.id})
    }
}
