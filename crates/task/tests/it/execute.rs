//! Executions, each from its message to its end.

use futures::FutureExt as _;
use std::collections::HashSet;
use std::sync::Arc;

use allstop_core::ContextId;
use allstop_log::MemoryLog;
use allstop_task::model::{Artifact, MessageSender};
use allstop_task::{
    ExecuteError, ExecutorReturn, ListFilter, ReadTaskError, TaskEvent, TaskMessage, TaskOptions,
    TaskParts, TaskState,
};

use crate::support::{
    SOON, ScriptedExecutor, TestStore, ended, endless, follow_up, manager_of, request, rest, start,
    three_events, user, wait_until, writes,
};

#[tokio::test(start_paused = true)]
async fn execution_runs_from_message_to_end() {
    let executor = three_events();
    let manager = manager_of(&executor).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    assert_eq!(
        rest(&mut accepted.subscription).await,
        [
            "snapshot submitted",
            "working",
            "artifact answer",
            "ended completed"
        ]
    );
    let task = manager.get(&accepted.task_id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.artifacts[0].as_ref(), &Artifact::text("answer", "42"));
    assert_eq!(task.ending.cause, None);
    // The four records: created, working, artifact, completed.
    assert_eq!(task.generation, 4);
    assert_eq!(executor.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn every_subscriber_gets_every_event() {
    let executor = ScriptedExecutor::new(|cx| async move {
        let write = |event| cx.events.write(event);
        write(TaskEvent::state(TaskState::Working)).await.unwrap();
        for number in 0..100 {
            let artifact = Artifact::text(format!("a{number}"), "x");
            write(TaskEvent::artifact(artifact)).await.unwrap();
        }
        write(TaskEvent::state(TaskState::Completed)).await.unwrap();
        Ok(ExecutorReturn::Finished)
    });
    let manager = manager_of(&executor).await;
    let accepted = manager.execute(request("m1")).await.unwrap();
    let mut readers = Vec::new();
    for _ in 0..20 {
        // A subscriber that starts at the acceptance misses no record, even if it reads late.
        let from = Some(accepted.subscription.cursor());
        readers.push(manager.subscribe(&accepted.task_id, from).await.unwrap());
    }
    for mut reader in readers {
        let words = rest(&mut reader).await;
        assert_eq!(words.len(), 102);
        assert_eq!(words.last().unwrap(), "ended completed");
    }
}

#[tokio::test(start_paused = true)]
async fn message_during_an_execution_is_refused() {
    let executor = endless(false);
    let manager = manager_of(&executor).await;
    let accepted = start(&manager, &executor).await;
    let refused = manager.execute(follow_up("m2", &accepted.task_id)).await;
    assert!(matches!(
        refused.unwrap_err(),
        ExecuteError::ExecutionInProgress(_)
    ));
    let _outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn message_continues_a_task_that_waits_for_input() {
    let executor = ScriptedExecutor::new(|cx| async move {
        let state = if cx.task.epoch == 1 {
            TaskState::InputRequired
        } else {
            TaskState::Completed
        };
        let question = TaskMessage::text("q", MessageSender::Agent, "which one?");
        cx.events
            .write(TaskEvent::status(state, question))
            .await
            .unwrap();
        Ok(ExecutorReturn::Finished)
    });
    let manager = manager_of(&executor).await;
    let mut first = manager.execute(request("m1")).await.unwrap();
    assert_eq!(
        rest(&mut first.subscription).await,
        ["snapshot submitted", "input_required"]
    );
    // The first execution has just written its end and may still run, so the message may have to wait for the release
    // of that execution.
    let mut second = manager
        .execute(follow_up("m2", &first.task_id))
        .await
        .unwrap();
    assert_eq!(
        rest(&mut second.subscription).await,
        ["snapshot submitted", "ended completed"]
    );
    let task = manager.get(&first.task_id).await.unwrap();
    let texts: Vec<_> = task.history.iter().map(|m| m.id.as_str()).collect();
    assert_eq!(texts, ["m1", "q", "m2"]);
    assert_eq!(task.epoch, 2);
}

#[tokio::test(start_paused = true)]
async fn message_to_an_ended_or_unknown_task_is_refused() {
    let executor = three_events();
    let manager = manager_of(&executor).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    let refused = manager.execute(follow_up("m2", &accepted.task_id)).await;
    assert!(matches!(
        refused.unwrap_err(),
        ExecuteError::Ended {
            state: TaskState::Completed,
            ..
        }
    ));
    let refused = manager.execute(follow_up("m3", &"nothing".into())).await;
    assert!(matches!(refused.unwrap_err(), ExecuteError::NotFound(_)));
}

#[tokio::test(start_paused = true)]
async fn message_of_another_context_is_refused() {
    let executor = writes(TaskEvent::state(TaskState::InputRequired));
    let manager = manager_of(&executor).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    let mut wrong = follow_up("m2", &accepted.task_id);
    wrong.context_id = Some("another".into());
    // The message waits until the first execution has ended. Then the message is refused because of its context.
    let refused = manager.execute(wrong).await;
    assert!(matches!(
        refused.unwrap_err(),
        ExecuteError::OtherContext(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn context_belongs_to_the_owner_of_its_first_task() {
    let store = TestStore::over(Arc::new(MemoryLog::new()));
    let in_context =
        |message: &str, owner: &str| request(message).owner(owner).context(ContextId::new("c1"));
    let open = || {
        let parts = TaskParts::of(three_events());
        store.manager(parts, TaskOptions::default())
    };
    let manager = open().await;
    let first = manager.execute(in_context("m1", "alice"));
    let refused = manager.execute(in_context("m2", "bob"));
    // The owner of the context is known even before the first record of the context is durable.
    let (first, refused) = tokio::join!(first, refused);
    assert!(matches!(
        refused.unwrap_err(),
        ExecuteError::ContextOfOther(_)
    ));
    ended(&manager, &mut first.unwrap()).await;
    manager.execute(in_context("m3", "alice")).await.unwrap();
    drop(manager.shutdown(SOON, "test").await);
    drop(manager);
    let manager = open().await;
    let refused = manager.execute(in_context("m4", "bob")).await;
    refused.expect_err("the log names the owner");
    manager.execute(in_context("m5", "alice")).await.unwrap();
}

/// Without the check, a task would exist and fail.
#[tokio::test(start_paused = true)]
async fn context_that_the_executor_refuses_starts_no_task() {
    let executor = three_events().permits_only_context("c1");
    let manager = manager_of(&executor).await;
    let in_context = |message: &str, id: &str| request(message).context(ContextId::new(id));
    let refused = manager.execute(in_context("m1", "c2")).await.unwrap_err();
    assert_eq!(refused.to_string(), "use the context c1");
    assert!(matches!(refused, ExecuteError::InvalidContext(_)));
    let listed = manager.list(&ListFilter::default(), None, 10).await;
    assert_eq!(listed.unwrap().total, 0);
    manager.execute(in_context("m1", "c1")).await.unwrap();
    manager.execute(request("m2")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn created_context_belongs_to_the_sender_of_its_message() {
    let manager = manager_of(&three_events()).await;
    let mut first = manager.execute(request("m1")).await.unwrap();
    let context = ended(&manager, &mut first).await.context_id.clone();
    let in_context =
        |message: &str, owner: &str| request(message).owner(owner).context(context.clone());
    let refused = manager.execute(in_context("m2", "bob")).await;
    assert!(matches!(
        refused.unwrap_err(),
        ExecuteError::ContextOfOther(_)
    ));
    manager.execute(in_context("m3", "alice")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn repeated_message_starts_nothing_new() {
    let executor = three_events();
    let manager = manager_of(&executor).await;
    let mut first = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut first).await;
    let mut again = manager.execute(request("m1")).await.unwrap();
    assert!(again.is_repeated);
    assert_eq!(again.task_id, first.task_id);
    assert_eq!(rest(&mut again.subscription).await, ["snapshot completed"]);
    let page = manager
        .list(&ListFilter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(page.total, 1);
    // Each owner has separate message ids.
    let mut other = request("m1");
    other.owner = "bob".into();
    assert!(!manager.execute(other).await.unwrap().is_repeated);
}

/// Found by fuzzing: the subscription of a repeated message waited for another execution of the task.
#[tokio::test(start_paused = true)]
async fn repeated_message_of_a_task_that_waits_for_its_client_ends() {
    let executor = writes(TaskEvent::state(TaskState::InputRequired));
    let manager = manager_of(&executor).await;
    let mut first = manager.execute(request("m1")).await.unwrap();
    rest(&mut first.subscription).await;
    let mut again = manager.execute(request("m1")).await.unwrap();
    assert_eq!(
        rest(&mut again.subscription).await,
        ["snapshot input_required"]
    );
    let cursor = Some(again.subscription.cursor());
    let after = manager.subscribe_to_execution(&first.task_id, cursor).await;
    assert_eq!(rest(&mut after.unwrap()).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn reply_without_a_task_is_in_no_list() {
    let answer = Arc::new(TaskMessage::text("r", MessageSender::Agent, "hello"));
    let executor = writes(TaskEvent::Reply(answer));
    let manager = manager_of(&executor).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    assert_eq!(
        rest(&mut accepted.subscription).await,
        ["snapshot submitted", "replied"]
    );
    assert!(matches!(
        manager.get(&accepted.task_id).await.unwrap_err(),
        ReadTaskError::NotFound(_)
    ));
    assert_eq!(
        manager
            .list(&ListFilter::default(), None, 10)
            .await
            .unwrap()
            .total,
        0
    );
    // A second subscriber of the message still gets the answer.
    let mut again = manager.execute(request("m1")).await.unwrap();
    let item = again.subscription.next().await.unwrap().unwrap();
    let allstop_task::SubscriptionItem::Snapshot(_, task) = item else {
        panic!("the first item is a snapshot");
    };
    assert_eq!(task.reply.as_ref().unwrap().id.as_str(), "r");
}

#[tokio::test(start_paused = true)]
async fn client_that_goes_away_stops_nothing() {
    let executor = three_events();
    let manager = manager_of(&executor).await;
    {
        let sending = manager.execute(request("m1"));
        let mut sending = std::pin::pin!(sending);
        // The request is polled once and then dropped: the manager has decided about it, and its caller has
        // disconnected.
        assert!(futures::poll!(&mut sending).is_pending());
    }
    let mut again = manager.execute(request("m1")).await.unwrap();
    assert!(again.is_repeated);
    let task = ended(&manager, &mut again).await;
    assert_eq!(task.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn list_has_pages_and_filters() {
    let executor = three_events();
    let manager = manager_of(&executor).await;
    for number in 0..5 {
        let mut accepted = manager
            .execute(request(&format!("m{number}")))
            .await
            .unwrap();
        ended(&manager, &mut accepted).await;
    }
    let mut other = request("m0");
    other.owner = "bob".into();
    let mut other = manager.execute(other).await.unwrap();
    ended(&manager, &mut other).await;

    let filter = ListFilter::default().owner("alice");
    let first = manager.list(&filter, None, 3).await.unwrap();
    assert_eq!((first.tasks.len(), first.total), (3, 5));
    let second = manager.list(&filter, first.next.as_ref(), 3).await.unwrap();
    assert_eq!((second.tasks.len(), second.next), (2, None));
    let mut ids: Vec<_> = first
        .tasks
        .iter()
        .chain(&second.tasks)
        .map(|t| &t.id)
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5, "no task is in two pages");
    let filter = ListFilter::default().state(TaskState::Working);
    assert_eq!(manager.list(&filter, None, 3).await.unwrap().total, 0);
}

/// Long lists are scanned in several steps. Their pages and totals must be equal to the results of a single scan.
#[tokio::test(start_paused = true)]
async fn long_list_is_complete() {
    const TASKS: usize = 1_100;
    let executor = three_events();
    let manager = manager_of(&executor).await;
    for number in 0..TASKS {
        let message = request(&format!("m{number}"));
        let mut accepted = manager.execute(message).await.unwrap();
        ended(&manager, &mut accepted).await;
    }
    let all = ListFilter::default();
    let of_owner = all.clone().owner("alice");
    let completed = all.clone().state(TaskState::Completed);
    for filter in [all, of_owner, completed] {
        let (mut ids, mut after) = (HashSet::new(), None);
        loop {
            let page = manager.list(&filter, after.as_ref(), 300).await.unwrap();
            assert_eq!(page.total, TASKS);
            ids.extend(page.tasks.into_iter().map(|task| task.id));
            after = page.next;
            if after.is_none() {
                break;
            }
            assert!(ids.len() < TASKS, "a page after the last task");
        }
        assert_eq!(ids.len(), TASKS);
    }
}

#[tokio::test(start_paused = true)]
async fn list_shows_the_state_of_a_running_task() {
    let executor = ScriptedExecutor::new(|cx| async move {
        cx.events
            .write(TaskEvent::state(TaskState::Working))
            .await
            .unwrap();
        cx.scope.stopped().await;
        Ok(ExecutorReturn::Finished)
    });
    let manager = manager_of(&executor).await;
    let started = manager.execute(request("m1")).await.unwrap();
    let working = ListFilter::default().state(TaskState::Working);
    wait_until("it is listed as working", || {
        let page = manager.list(&working, None, 3).now_or_never();
        page.unwrap().unwrap().total == 1
    })
    .await;
    let _outcome = manager.cancel(&started.task_id, user()).await.unwrap();
    assert_eq!(manager.list(&working, None, 3).await.unwrap().total, 0);
}
