//! Report at the start about tasks of the store that cannot be read.

use allstop_core::{TaskId, error_chain};
use allstop_task::{TaskManager, TaskStoreError};
use allstop_terminal::{OutputPriority, OutputQueue, Styled};

/// Maximum number of tasks that the report names.
const NAMED_MAX: usize = 10;

pub(super) fn report(manager: &TaskManager, stderr: &OutputQueue) {
    if let Some(text) = describe(&manager.unreadable_tasks()) {
        stderr.lines(Styled::from(text), OutputPriority::Required);
    }
}

/// `None` if all tasks can be read.
fn describe(tasks: &[(TaskId, TaskStoreError)]) -> Option<String> {
    let mut text = match tasks.len() {
        0 => return None,
        1 => "1 task of the store cannot be read, and stays unchanged:".to_owned(),
        count => format!("{count} tasks of the store cannot be read, and stay unchanged:"),
    };
    for (_, error) in tasks.iter().take(NAMED_MAX) {
        text.push_str("\n  ");
        text.push_str(&error_chain(error));
    }
    if tasks.len() > NAMED_MAX {
        text.push_str("\n  …");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_tasks_are_named() {
        let tasks = |count: usize| vec![(TaskId::new("t"), TaskStoreError::NoAnswer); count];
        assert_eq!(describe(&tasks(0)), None);
        let one = describe(&tasks(1)).expect("a report");
        assert_eq!(
            one,
            "1 task of the store cannot be read, and stays unchanged:\n  the store does not answer"
        );
        let many = describe(&tasks(11)).expect("a report");
        assert!(
            many.starts_with("11 tasks") && many.ends_with("  …"),
            "{many}"
        );
        assert_eq!(many.lines().count(), 12);
    }
}
