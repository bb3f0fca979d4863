//! Finds the task that the user names by an id or a part of an id.

use allstop_core::error_chain;
use reqwest::StatusCode;
use serde::Deserialize as _;
use serde_json::Value;

use super::client::{PAGE_LEN_MAX, RequestError, TaskServer};
use super::wire::ServerTask;
use crate::error::CliError;
use crate::short_id::{is_meant, short};

/// Number of newest tasks among which a part of an id is searched.
const SEARCHED_MAX: usize = 1_000;

/// Maximum number of tasks that are listed if the given part of an id is ambiguous.
const NAMED_MAX: usize = 8;

/// A task: the JSON that the server sent, and the parsed fields.
pub(crate) struct FoundTask {
    pub(crate) json: Value,
    pub(crate) task: ServerTask,
}

impl FoundTask {
    pub(crate) fn of(json: Value) -> Result<Self, CliError> {
        let task = ServerTask::deserialize(&json);
        let task = task.map_err(|error| {
            CliError::failure(format!("the server sent no task: {}", error_chain(&error)))
        })?;
        Ok(Self { json, task })
    }
}

/// The task with the id `given`, or else the only one of the newest tasks whose id contains `given`.
pub(super) async fn find(server: &TaskServer, given: &str) -> Result<FoundTask, CliError> {
    match server.task(given).await {
        Ok(json) => return FoundTask::of(json),
        Err(RequestError::Refused { status, .. }) if status == StatusCode::NOT_FOUND => {}
        Err(error) => return Err(error.into()),
    }
    let (newest, _) = newest(server, &[], SEARCHED_MAX).await?;
    let ids: Vec<&str> = newest.iter().map(|found| found.task.id.as_str()).collect();
    let meant: Vec<&str> = ids.into_iter().filter(|id| is_meant(id, given)).collect();
    match meant.as_slice() {
        [id] => FoundTask::of(server.task(id).await?),
        [] => Err(CliError::not_found(format!("task `{given}` not found"))
            .hint("`allstop tasks list` lists the tasks of this server and user")),
        many => {
            let named = many.iter().take(NAMED_MAX).map(|id| short(id));
            let named = named.collect::<Vec<_>>().join(", ");
            let count = many.len();
            Err(
                CliError::usage(format!("`{given}` matches {count} tasks: {named}"))
                    .hint("choose one of these ids, or type more of the id"),
            )
        }
    }
}

/// The newest tasks, and true if the server has more tasks.
pub(crate) async fn newest(
    server: &TaskServer,
    filter: &[(&str, &str)],
    max: usize,
) -> Result<(Vec<FoundTask>, bool), CliError> {
    let (mut tasks, mut token) = (Vec::new(), String::new());
    loop {
        let page = server.page(filter, &token, max - tasks.len()).await?;
        let is_empty = page.tasks.is_empty();
        for json in page.tasks {
            tasks.push(FoundTask::of(json)?);
        }
        let is_last = page.next_page_token.is_empty() || is_empty;
        if is_last || tasks.len() >= max {
            tasks.truncate(max);
            return Ok((tasks, !is_last));
        }
        token = page.next_page_token;
    }
}

const _: () = assert!(SEARCHED_MAX >= PAGE_LEN_MAX, "a search reads whole pages");
