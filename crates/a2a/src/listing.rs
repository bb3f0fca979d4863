//! Lists of tasks.
//!
//! A task whose records cannot be read does not prevent the list of the other tasks. Such a task is listed with the
//! facts of the manager's index, and its metadata contains an entry under [`UNREADABLE_EXTENSION`]:
//!
//! ```json
//! {"https://allstop.dev/a2a/unreadable/v1": {"reason": "record 7 of task … cannot be read: …"}}
//! ```

use std::collections::{HashMap, HashSet};

use a2a::{A2AError, JsonRpcRequest, JsonRpcResponse, ListTasksRequest, ListTasksResponse};
use a2a_pb::protojson_conv;
use a2a_server::ServiceParams;
use allstop_core::{ContextId, TaskId, Timestamp};
use allstop_task::{ListFilter, ReadTaskError, TaskSummary};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::access::principal_of;
use crate::page::PageOfTasks;
use crate::response_memory::PAGE_BYTES;
use crate::service::A2aService;
use crate::to_wire::{self, TaskDetail};
use crate::{errors, from_wire, jsonrpc, page_token};

/// URI under which the metadata of a listed task contains the reason why the task cannot be read.
pub const UNREADABLE_EXTENSION: &str = "https://allstop.dev/a2a/unreadable/v1";

/// Default number of tasks per page (A2A 1.0, section 3.1.4).
const PAGE_LEN_DEFAULT: i32 = 50;
/// Maximum number of tasks per page.
const PAGE_LEN_MAX: i32 = 100;

/// Maximum number of unreadable tasks that are remembered, so that the memory is bounded. Further unreadable tasks are
/// not logged; the lists still name them.
const REPORTED_LEN_MAX: usize = 1_000;

/// Unreadable tasks that the operator's log already names.
#[derive(Debug, Default)]
pub(crate) struct ReportedTasks(Mutex<HashSet<TaskId>>);

impl ReportedTasks {
    /// Logs an unreadable task at its first appearance in a list.
    fn report(&self, id: &TaskId, reason: &str) {
        let mut reported = self.0.lock();
        if reported.len() < REPORTED_LEN_MAX && reported.insert(id.clone()) {
            drop(reported);
            tracing::warn!(task = %id, reason, "a task cannot be read; lists name it without its content");
        }
    }
}

impl A2aService {
    /// Returns a page of the principal's tasks.
    pub(crate) async fn list(
        &self,
        params: &ServiceParams,
        request: ListTasksRequest,
    ) -> Result<ListTasksResponse, A2AError> {
        let page_size = request.page_size.unwrap_or(PAGE_LEN_DEFAULT);
        check_page_size(page_size.into())?;
        if request.history_length.is_some_and(|len| len < 0) {
            return Err(A2AError::invalid_params(
                "historyLength must not be negative",
            ));
        }
        let filter = ListFilter::default()
            .owner(principal_of(params))
            .context_id(request.context_id.map(ContextId::from))
            .state(request.status.as_ref().and_then(from_wire::state))
            .updated_after(
                request
                    .status_timestamp_after
                    .map(|at| Timestamp::from_unix_ms(at.timestamp_millis() - 1)),
            );
        let after = request
            .page_token
            .as_deref()
            .filter(|token| !token.is_empty());
        let after = after.map(page_token::decode).transpose()?;
        let len = usize::try_from(page_size).unwrap_or_default();
        let detail = TaskDetail {
            has_artifacts: request.include_artifacts == Some(true),
            ..TaskDetail::with_history(request.history_length.or(Some(0)))
        };
        let memory = self.memory.of(params);
        let mut wanted = PAGE_BYTES;
        let (page, collected, is_full) = loop {
            memory.reserve(wanted).await;
            let page = self.manager.list(&filter, after.as_ref(), len).await;
            let page = page.map_err(|error| errors::of_store(&error))?;
            let (collected, is_full) = self.collected(&page.tasks, detail).await?;
            wanted = collected.bytes();
            if memory.fits(wanted) {
                break (page, collected, is_full);
            }
        };
        let (tasks, last) = collected.finish();
        let next = if is_full { last } else { page.next };
        Ok(ListTasksResponse {
            tasks,
            next_page_token: next.map(page_token::encode).unwrap_or_default(),
            page_size,
            total_size: i32::try_from(page.total).unwrap_or(i32::MAX),
        })
    }

    /// Returns the tasks that fit into a page. The flag is true if the page is full.
    async fn collected(
        &self,
        summaries: &[TaskSummary],
        detail: TaskDetail,
    ) -> Result<(PageOfTasks, bool), A2AError> {
        let mut collected = PageOfTasks::default();
        for summary in summaries {
            if let Some(task) = self.listed(summary, detail).await?
                && !collected.push(summary, task)
            {
                return Ok((collected, true));
            }
        }
        Ok((collected, false))
    }

    /// Returns a task of a page; `None` if the task no longer exists.
    async fn listed(
        &self,
        summary: &TaskSummary,
        detail: TaskDetail,
    ) -> Result<Option<a2a::Task>, A2AError> {
        let error = match self.manager.get(&summary.id).await {
            Ok(task) => return Ok(Some(to_wire::task(&task, detail))),
            Err(ReadTaskError::NotFound(_)) => return Ok(None),
            Err(ReadTaskError::Store(error)) => error,
        };
        let reason = errors::unreadable(&error).ok_or_else(|| errors::of_store(&error))?;
        self.reported.report(&summary.id, &reason);
        let entry = (UNREADABLE_EXTENSION.to_owned(), json!({"reason": reason}));
        Ok(Some(a2a::Task {
            metadata: Some(HashMap::from([entry])),
            ..to_wire::summary(summary)
        }))
    }
}

/// Checks that the size of a page is permitted (A2A 1.0, section 3.1.4).
pub(crate) fn check_page_size(page_size: i64) -> Result<(), A2AError> {
    if (1..=i64::from(PAGE_LEN_MAX)).contains(&page_size) {
        return Ok(());
    }
    let range = format!("pageSize must be 1 to {PAGE_LEN_MAX}");
    Err(A2AError::invalid_params(range))
}

/// Answers a `ListTasks` over JSON-RPC. The library would replace a page size below 1 by the default.
pub(crate) async fn jsonrpc_answer(
    service: &A2aService,
    params: &ServiceParams,
    request: JsonRpcRequest,
) -> Response {
    let body = request.params.unwrap_or_else(|| json!({}));
    match list_json(service, params, body).await {
        Ok(page) => axum::Json(JsonRpcResponse::success(request.id, page)).into_response(),
        Err(error) => jsonrpc::error_response(request.id, &error),
    }
}

async fn list_json(
    service: &A2aService,
    params: &ServiceParams,
    body: Value,
) -> Result<Value, A2AError> {
    // The JSON format of the protocol permits an integer as a string.
    let page_size = body.get("pageSize").and_then(|size| {
        let text = size.as_str().and_then(|size| size.parse().ok());
        size.as_i64().or(text)
    });
    page_size.map_or(Ok(()), check_page_size)?;
    let request = protojson_conv::from_value::<ListTasksRequest>(body);
    let request = request.map_err(|error| errors::invalid(&error))?;
    let page = service.list(params, request).await?;
    let page = protojson_conv::to_value(&page);
    let mut page = page.map_err(|error| A2AError::internal(error.to_string()))?;
    complete(&mut page);
    Ok(page)
}

/// Adds the fields that the JSON of the library omits in an empty page. The specification requires these fields (A2A
/// 1.0, section 3.1.4).
pub(crate) fn complete(page: &mut Value) {
    if let Some(page) = page.as_object_mut() {
        page.entry("tasks").or_insert_with(|| json!([]));
        page.entry("totalSize").or_insert_with(|| json!(0));
    }
}
