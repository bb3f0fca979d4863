//! The receipt of a stop, as an extension of the protocol. A receipt lists each part of the stopped work, with the
//! proof that the part has ended, or the reason why the part may still run.
//!
//! The executor of a task normally decides how the task ends. If a stop or a failure ended the task instead, the
//! metadata of the task contains an entry under [`RECEIPT_EXTENSION`]. The last status update of the task contains an
//! equal entry:
//!
//! ```json
//! {"https://allstop.dev/a2a/receipt/v1": {"cause": {"kind": "user"}, "error": null, "receipt": {"schema": "allstop.receipt/1"}}}
//! ```
//!
//! A `CancelTask` can be recorded in the log before the worker that runs the task has confirmed the stop. If the worker
//! does not confirm in time, the response contains the current task, and the entry
//! `{"requestedStop": "observed" | "queued" | "no_owner"}`. Until the end of the task, other responses with the task
//! contain the entry `{"requestedStop": "requested"}`.
//!
//! If the worker of a running task is lost, and no other worker has taken the task over, the response to `GetTask` has
//! the field `"worker": "lost"` in the entry. The state of the task is still the state before the loss.
//!
//! A `CancelTask` of an ended task stops the work that the task has left running. The entry of the response then
//! contains the receipt of this stop in the field `leftWork`.
//!
//! If a task failed because its worker was lost, only this worker can write the receipt, and the worker may never
//! return. After the worker has written the receipt, responses with the task contain the receipt.
//!
//! `POST /tasks/{id}:previewCancel` of the HTTP+JSON binding returns the receipt that a `CancelTask` would have now.
//! The schema of receipts is `schemas/receipt.schema.json` in the repository.
//!
//! A client can set the cause of its `CancelTask` in the request's metadata under the same URI:
//! `{"cause": {"detail": "the user left", "by": "web"}}`.

use std::collections::HashMap;

use a2a::AgentExtension;
use allstop_core::{Cause, CauseKind, Receipt};
use allstop_task::model::TaskEnding;
use serde::Deserialize;
use serde_json::{Value, json};

/// URI of the extension.
pub const RECEIPT_EXTENSION: &str = "https://allstop.dev/a2a/receipt/v1";

/// Maximum size in bytes of the client's texts in a cause: `detail`, and the name of the requester. Every receipt
/// contains these texts.
const TEXT_BYTES_MAX: usize = 200;

/// Returns the extension's entry for an agent card.
pub(crate) fn declaration() -> AgentExtension {
    AgentExtension {
        uri: RECEIPT_EXTENSION.to_owned(),
        description: Some(
            "A stopped or failed task carries its cause, and the receipt of the stop: what stopped, what did not, \
             and how that is known. POST /tasks/{id}:previewCancel answers what a stop would do."
                .to_owned(),
        ),
        required: Some(false),
        params: None,
    }
}

/// Adds the entry for the end of a task, unless the task's executor chose the end.
pub(crate) fn add(metadata: &mut HashMap<String, Value>, ending: &TaskEnding) {
    if *ending == TaskEnding::default() {
        return;
    }
    let entry = json!({
        "cause": ending.cause,
        "error": ending.error,
        "receipt": ending.receipt,
    });
    metadata.insert(RECEIPT_EXTENSION.to_owned(), entry);
}

/// Adds the entry for a stop that is recorded in the log, but has no receipt yet.
pub(crate) fn add_requested_stop(metadata: &mut HashMap<String, Value>, progress: &str) {
    let entry = json!({"requestedStop": progress});
    metadata.insert(RECEIPT_EXTENSION.to_owned(), entry);
}

/// Marks a task whose worker is lost.
pub(crate) fn add_lost_worker(metadata: &mut Option<HashMap<String, Value>>) {
    let metadata = metadata.get_or_insert_default();
    let entry = metadata.entry(RECEIPT_EXTENSION.to_owned());
    let entry = entry.or_insert_with(|| json!({}));
    entry["worker"] = json!("lost");
}

/// Adds the receipt for a stop of the work that an ended task had left running.
pub(crate) fn add_orphan_receipt(metadata: &mut HashMap<String, Value>, receipt: &Receipt) {
    let entry = metadata.entry(RECEIPT_EXTENSION.to_owned());
    let entry = entry.or_insert_with(|| json!({}));
    entry["leftWork"] = json!(receipt);
}

#[derive(Deserialize)]
struct CancelParams {
    cause: RequestedCause,
}

#[derive(Deserialize)]
struct RequestedCause {
    detail: Option<String>,
    by: Option<String>,
}

/// Returns the cause of a `CancelTask`: always a stop by a user, with the client's texts if present.
pub(crate) fn requested_cause(metadata: Option<&HashMap<String, Value>>, principal: &str) -> Cause {
    let entry = metadata.and_then(|metadata| metadata.get(RECEIPT_EXTENSION));
    let params = entry.and_then(|entry| CancelParams::deserialize(entry).ok());
    let mut cause = Cause::new(CauseKind::User).by(principal.to_owned());
    if let Some(CancelParams { cause: requested }) = params {
        if let Some(detail) = requested.detail.filter(|text| text.len() <= TEXT_BYTES_MAX) {
            cause = cause.detail(detail);
        }
        if let Some(by) = requested.by.filter(|text| text.len() <= TEXT_BYTES_MAX) {
            cause = cause.by(format!("{principal}: {by}"));
        }
    }
    cause
}
