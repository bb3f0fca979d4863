//! Removal of ended tasks (`--keep-tasks`, `--keep-tasks-max`).

use std::sync::Arc;

use allstop_a2a::PushNotifications;
use allstop_core::HumanDuration;
use allstop_core::receipt::ItemKind;
use allstop_runtime::ContextConversations;
use allstop_scope::{NotStarted, Scope, WorkSpec};
use allstop_task::{RemovalReport, RetentionLimits, TaskManager, TaskRetention};
use allstop_terminal::duration;

use super::metrics::TaskMetrics;
use crate::args::ExecutionArgs;

/// Limits of the ended tasks from the flags. The conversation of a context is deleted with its last task.
pub(super) fn of(args: &ExecutionArgs, conversations: ContextConversations) -> TaskRetention {
    TaskRetention {
        limits: RetentionLimits::default()
            .age_max(args.keep_tasks.map(|HumanDuration(max)| max))
            .ended_max(args.keep_tasks_max),
        contexts: Arc::new(conversations),
        attachments: Vec::new(),
    }
}

/// Describes the limits of the ended tasks; `None` without limits.
pub(super) fn describe(args: &ExecutionArgs) -> Option<String> {
    let age = args
        .keep_tasks
        .map(|age| format!("{} after their end", duration(age.0)));
    let count = args.keep_tasks_max.map(|max| match max {
        0 => "a minute after their end".to_owned(),
        max => format!("if {max} later tasks have ended, but not in the minute after their end"),
    });
    let limits: Vec<String> = age.into_iter().chain(count).collect();
    (!limits.is_empty()).then(|| {
        format!(
            "tasks are removed, with their conversations: {}",
            limits.join("; ")
        )
    })
}

/// Makes the webhooks of a task leave the store with the task.
pub(super) fn attach(retention: &mut TaskRetention, push: Option<&PushNotifications>) {
    if let Some(push) = push {
        retention.attachments.push(Arc::new(push.clone()));
    }
}

/// Starts to remove ended tasks in the scope of the connections, which ends before the store closes. Starts nothing if no
/// limit is set.
///
/// # Errors
/// If the scope is stopped.
pub(super) fn start(
    manager: &TaskManager,
    retention: TaskRetention,
    metrics: TaskMetrics,
    scope: &Scope,
) -> Result<(), NotStarted> {
    if !retention.limits.are_set() {
        return Ok(());
    }
    let manager = manager.clone();
    let spec = WorkSpec::new(ItemKind::Future, "removal of ended tasks");
    let removing = scope.spawn(spec, |cx| async move {
        let on_pass = |report: &RemovalReport| {
            metrics.removed(report.removed);
            if report.removed > 0 {
                let RemovalReport { removed, in_use } = *report;
                tracing::info!(removed, in_use, "ended tasks were removed");
            }
        };
        tokio::select! {
            biased;
            _cause = cx.stopped_at("removal of ended tasks") => {}
            () = manager.keep_removing_ended(&retention, on_pass) => {}
        }
    });
    // The removal is work of the scope, and no caller waits for its value.
    drop(removing?);
    Ok(())
}
