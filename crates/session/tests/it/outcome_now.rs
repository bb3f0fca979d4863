//! Current outcome of a message with a running turn, for a process that cannot wait.

use std::sync::Arc;

use allstop_agent::{Hook, HookCx, HookEvent, HookVerdict, TurnErrorKind};
use allstop_core::receipt::{ConversationEffect, ItemKind, ItemState, NothingToStop};
use allstop_core::{CauseKind, StopReason, TurnNumber, Usage};
use allstop_log::MemoryLog;
use allstop_model::{ModelError, ModelErrorKind, Pause, Reply};
use allstop_scope::WorkSpec;
use allstop_session::{FollowUp, SessionOptions, StopTarget};
use allstop_testkit::{FaultyLog, LogFault, ToolFn};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::{agent, fixture, fixture_in, in_order, text_delta, tools, user};

/// A turn that has decided to commit is never reported as stopped, even if the store hangs.
#[tokio::test(start_paused = true)]
async fn hanging_commit_is_a_store_failure_and_not_a_stop() {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    log.fail_at("turn_committed", LogFault::Hold);
    let agent = agent(&in_order(vec![Reply::text("done").usage(10, 5)])).build();
    let fixture = fixture_in(Arc::clone(&log) as _, agent, SessionOptions::default()).await;
    let sent = fixture.session.send("go").unwrap();
    log.reached().await;

    let stopping = fixture.session.stop(&StopTarget::Turn, user());
    let now = fixture.session.outcome_now(&sent, Some(&stopping));
    assert_eq!(now.stop_reason, StopReason::Error, "{now:?}");
    assert_eq!(now.cause, None, "no stop was requested");
    let error = now.error.as_ref().expect("why");
    assert_eq!(error.kind, TurnErrorKind::Store);
    assert_eq!(now.turn, Some(TurnNumber(1)));
    assert!(now.output.is_empty(), "an unconfirmed answer is not shown");
    let receipt = now.receipt.as_ref().expect("the stop's");
    assert_eq!(receipt.conversation(), ConversationEffect::Unknown);
    let account = stopping.account_now();
    assert_eq!(account.conversation(), ConversationEffect::Unknown);
    let stopped = |state: &ItemState| matches!(state, ItemState::Stopped { .. });
    let mut states = account.items().iter().map(|item| &item.state);
    assert!(!states.any(stopped), "{account:?}");
    assert!(sent.try_outcome().is_none());

    log.release().await;
    let outcome = sent.outcome().await;
    assert_eq!(outcome.stop_reason, StopReason::Completed, "{outcome:?}");
    assert_eq!(&*outcome.output, "done");
    let now = fixture.session.outcome_now(&sent, Some(&stopping));
    assert!(Arc::ptr_eq(&now, &outcome), "the outcome, once it is set");
    let receipt = stopping.receipt().await;
    assert_eq!(receipt.outcome(), Some(NothingToStop::AlreadyEnded));
    assert_eq!(fixture.said().await, ["user: go", "model: done"]);
    fixture.close().await;
}

/// A failure is reported before the turn's ending is written.
#[tokio::test(start_paused = true)]
async fn failed_turn_reports_its_error_while_the_store_hangs() {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    log.fail_at("turn_stopped", LogFault::Hold);
    let error = ModelError::new(ModelErrorKind::Unauthorized, "no key");
    let agent = agent(&in_order(vec![Reply::error(error)])).build();
    let fixture = fixture_in(Arc::clone(&log) as _, agent, SessionOptions::default()).await;
    let sent = fixture.session.send("go").unwrap();
    log.reached().await;

    let stopping = fixture.session.stop(&StopTarget::Turn, user());
    let now = fixture.session.outcome_now(&sent, Some(&stopping));
    assert_eq!(now.stop_reason, StopReason::Error, "{now:?}");
    assert_eq!(now.cause.as_ref().unwrap().kind, CauseKind::Failure);
    let error = now.error.as_ref().expect("what failed");
    assert_eq!(error.kind, TurnErrorKind::Unauthorized, "{error}");
    log.release().await;
    let outcome = sent.outcome().await;
    assert_eq!(outcome.error, now.error, "{outcome:?}");
    fixture.close().await;
}

/// A hook that ignores stops until it is released, like a command that ignores SIGTERM.
#[derive(Debug)]
struct Deaf {
    name: Arc<str>,
    on: &'static str,
    runs: Arc<Semaphore>,
    go_on: Arc<Semaphore>,
}

impl Hook for Deaf {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn wants(&self, event: &HookEvent) -> bool {
        event.name() == self.on
    }

    fn on(&self, cx: &HookCx, _event: HookEvent) -> BoxFuture<'static, HookVerdict> {
        let (cx, runs, go_on) = (cx.clone(), Arc::clone(&self.runs), Arc::clone(&self.go_on));
        Box::pin(async move {
            let work = WorkSpec::new(ItemKind::Process, "deaf");
            let work = cx.scope.spawn(work, move |_| async move {
                runs.add_permits(1);
                go_on.acquire().await.expect("never closed").forget();
            });
            let _ended = work.expect("nothing is stopped").await;
            HookVerdict::Continue
        })
    }
}

/// A committed turn stays committed while its hooks run; a stop then covers only the hooks.
#[tokio::test(start_paused = true)]
async fn turn_stays_completed_while_its_hook_is_stopped() {
    let (runs, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let hook = Deaf {
        name: "deaf".into(),
        on: "turn_end",
        runs: Arc::clone(&runs),
        go_on: Arc::clone(&go_on),
    };
    let agent = agent(&in_order(vec![Reply::text("done").usage(10, 5)]));
    let agent = agent.hook(Arc::new(hook)).build();
    let fixture = fixture(agent, SessionOptions::default()).await;
    let sent = fixture.session.send("go").unwrap();
    runs.acquire().await.expect("never closed").forget();

    let stopping = fixture.session.stop(&StopTarget::Turn, user());
    let now = fixture.session.outcome_now(&sent, Some(&stopping));
    assert_eq!(now.stop_reason, StopReason::Completed, "{now:?}");
    assert_eq!((&*now.output, now.usage.output_tokens), ("done", 5));
    assert!(now.is_ending_known && now.error.is_none());
    let receipt = now.receipt.as_ref().expect("the stop's");
    assert!(!receipt.quiet(), "the hook runs: {receipt:?}");
    assert_eq!(receipt.conversation(), ConversationEffect::Unchanged);
    assert!(sent.try_outcome().is_none());

    let receipt = stopping.receipt().await;
    assert!(receipt.quiet(), "{receipt:?}");
    let hook = receipt.items().iter().find(|item| &*item.name == "deaf");
    let state = &hook.expect("it is named").state;
    assert!(matches!(state, ItemState::Stopped { .. }), "{receipt:?}");
    let outcome = sent.outcome().await;
    assert_eq!(outcome.stop_reason, StopReason::Completed, "{outcome:?}");
    // The stop covered only the hooks, so the turn has no receipt.
    assert!(outcome.receipt.is_none());
    assert_eq!(fixture.state().await.last_receipt(), Some(&receipt));
    fixture.close().await;
}

/// A turn waits for the hooks of the session's start. A stop of the turn stops these hooks, and a dry run lists them.
#[tokio::test(start_paused = true)]
async fn dry_run_lists_the_hooks_that_a_waiting_turn_waits_for() {
    let (runs, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let hook = Deaf {
        name: "deaf".into(),
        on: "session_start",
        runs: Arc::clone(&runs),
        go_on: Arc::clone(&go_on),
    };
    let agent = agent(&in_order(vec![Reply::text("never asked for")]));
    let agent = agent.hook(Arc::new(hook)).build();
    let fixture = fixture(agent, SessionOptions::default()).await;
    runs.acquire().await.expect("never closed").forget();
    let sent = fixture.session.send("go").unwrap();
    for target in [StopTarget::Turn, StopTarget::Message(sent.id.clone())] {
        let preview = fixture.session.preview(&target);
        let names: Vec<_> = preview.items().iter().map(|item| &*item.name).collect();
        assert!(names.contains(&"deaf"), "{target:?}: {names:?}");
    }
    let preview = fixture.session.preview(&StopTarget::Turn);
    let stop = fixture.session.stop(&StopTarget::Turn, user());
    let receipt = stop.receipt().await;
    assert_eq!(receipt.items().len(), preview.items().len(), "{receipt:?}");
    assert!(!sent.outcome().await.is_completed());
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn usage_of_ended_steps_is_known_before_the_turn_ends() {
    let model = in_order(vec![
        Reply::text("first").call("look", json!({})).usage(10, 5),
        Reply::text("second").pause(Pause::Forever),
    ]);
    let look = ToolFn::new("look", |_| async { "seen".to_owned() });
    let agent = agent(&model).tools(tools(vec![look])).build();
    let options = SessionOptions::default().follow_up(FollowUp::Enqueue);
    let fixture = fixture(agent, options).await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("go").unwrap();
    let waits = fixture.session.send("next").unwrap();
    assert_eq!(text_delta(&mut events).await, "first");
    assert_eq!(text_delta(&mut events).await, "second");
    let first_step = Usage {
        input_tokens: 10,
        cached_input_tokens: 0,
        cache_write_input_tokens: 0,
        output_tokens: 5,
        estimated: true,
    };

    let stopping = fixture.session.stop(&StopTarget::Turn, user());
    let now = fixture.session.outcome_now(&sent, Some(&stopping));
    assert_eq!(now.stop_reason, StopReason::Cancelled, "{now:?}");
    assert_eq!(now.cause.as_ref().unwrap().kind, CauseKind::User);
    assert!(now.error.is_none());
    // A step counts from its beginning, as in the log.
    assert_eq!((now.usage, now.steps), (first_step, 2));
    let account = stopping.account_now();
    assert_eq!(account.usage(), first_step);
    // The turn engine has not acknowledged the stop yet.
    assert_eq!(account.conversation(), ConversationEffect::Unknown);
    let behind = fixture.session.outcome_now(&waits, None);
    assert_eq!((behind.turn, behind.usage.output_tokens), (None, 0));

    let receipt = stopping.receipt().await;
    let outcome = sent.outcome().await;
    assert_eq!(outcome.stop_reason, StopReason::Cancelled);
    assert_eq!(receipt.conversation(), ConversationEffect::Unchanged);
    assert_eq!(receipt.usage(), outcome.usage);
    assert!(outcome.usage.input_tokens > 10 && outcome.usage.output_tokens > 5);
    fixture.close().await;
}
