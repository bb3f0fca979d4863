//! A running sub-agent that moves to the background: the turn and the sub-agent continue independently.

use allstop_core::receipt::{ItemState, NotStoppedReason, NothingToStop};
use allstop_core::record::{Attachment, BackgroundKind, SessionRecord};
use allstop_core::{CallId, StopReason};
use allstop_session::{
    OnBackgroundEnd, SessionEventKind, SessionOptions, StopTarget, Subscription,
};
use allstop_tools::NotPromotable;

use super::{COST, GuardrailStage, stage};
use crate::support::{Fixture, fixture, until, user};

/// Returns a session with a running sub-agent, three calls deep, and the message of its turn.
async fn running(options: SessionOptions) -> (Fixture, allstop_session::MessageHandle, Running) {
    let GuardrailStage {
        source,
        mut waiting,
        go_on,
    } = stage();
    let fixture = fixture(source, options).await;
    let events = fixture.session.subscribe(None);
    let sent = fixture.session.send("in front").expect("it is idle");
    waiting.recv().await.expect("it waits");
    let running = Running { go_on, events };
    (fixture, sent, running)
}

struct Running {
    go_on: std::sync::Arc<tokio::sync::Semaphore>,
    events: Subscription,
}

fn agent_call() -> CallId {
    "call_1_1".into()
}

/// Starts and ends of background work in the log.
async fn background_records(fixture: &Fixture) -> (Vec<SessionRecord>, Vec<SessionRecord>) {
    let records = fixture.records().await.into_iter();
    let background = records.filter(|record| {
        matches!(
            record,
            SessionRecord::BackgroundStarted { .. } | SessionRecord::BackgroundEnded { .. }
        )
    });
    background.partition(|record| matches!(record, SessionRecord::BackgroundStarted { .. }))
}

#[tokio::test(start_paused = true)]
async fn promoted_agent_answers_later_and_is_metered_once() {
    let (fixture, sent, mut running) = running(SessionOptions::default()).await;
    let session = &fixture.session;
    let nested = session.promote(&"call_1_1/call_1_1".into());
    assert_eq!(
        nested,
        Err(NotPromotable),
        "only the outermost call can be promoted"
    );
    session.promote(&agent_call()).expect("it listens");
    let outcome = sent.outcome().await;
    assert_eq!(&*outcome.output, "it goes on");
    assert_eq!(outcome.usage.total_tokens(), 4 * COST, "two of the agents'");
    let work = session.background().remove(0);
    assert!(work.is_running());
    assert_eq!(
        (work.kind(), work.attachment(), &*work.name),
        (BackgroundKind::Agent, Attachment::Attached, "research")
    );
    assert_eq!(work.call_id, agent_call());
    assert!(
        work.output().starts_with("I have it looked up."),
        "from its start"
    );
    assert_eq!(work.metered().total_tokens(), 0, "that was the call's");
    assert!(session.running_calls().is_empty());
    let late = session
        .stop(&StopTarget::Call(agent_call()), user())
        .receipt()
        .await;
    assert_eq!(late.outcome(), Some(NothingToStop::AlreadyEnded));
    assert!(work.is_running());

    running.go_on.add_permits(1);
    until(&mut running.events, |event| {
        matches!(event.kind, SessionEventKind::SessionIdle { .. }).then_some(())
    })
    .await;
    let (starts, ends) = background_records(&fixture).await;
    assert_eq!((starts.len(), ends.len()), (1, 1), "{ends:?}");
    let SessionRecord::BackgroundEnded { state, usage, .. } = &ends[0] else {
        panic!("an end");
    };
    assert_eq!(state.as_str(), "finished");
    assert_eq!(usage.expect("it used some").total_tokens(), 2 * COST);
    session.send("and?").unwrap().outcome().await;
    let said = fixture.said().await;
    let told = said.iter().filter(|said| said.contains("it is 42")).count();
    assert_eq!(told, 1, "{said:?}");
    assert_eq!(fixture.state().await.metered().total_tokens(), 7 * COST);
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn end_of_a_promoted_agent_wakes_the_model() {
    let options = SessionOptions::default().on_background_end(OnBackgroundEnd::Wake);
    let (fixture, sent, mut running) = running(options).await;
    fixture.session.promote(&agent_call()).expect("it listens");
    sent.outcome().await;
    running.go_on.add_permits(1);
    until(&mut running.events, |event| {
        matches!(event.kind, SessionEventKind::SessionIdle { .. }).then_some(())
    })
    .await;
    let said = fixture.said().await;
    assert_eq!(said.last().unwrap(), "model: it has come", "{said:?}");
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn turn_stop_spares_a_promoted_agent_and_full_stop_ends_it() {
    let (fixture, _sent, _running) = running(SessionOptions::default()).await;
    let session = &fixture.session;
    session.promote(&agent_call()).expect("it listens");
    let work = loop {
        match session.background().pop() {
            Some(work) => break work,
            None => tokio::task::yield_now().await,
        }
    };
    // The turn may still run, or may have just ended.
    let receipt = session.stop(&StopTarget::Turn, user()).receipt().await;
    for item in receipt
        .items()
        .iter()
        .filter(|item| item.id.starts_with("bg_1"))
    {
        let outside = ItemState::StillRunning {
            why: NotStoppedReason::OutsideExtent,
        };
        assert_eq!(item.state, outside);
    }
    assert!(work.is_running());
    let inner = "call_1_1/call_1_1/call_1_1".into();
    let receipt = session.preview(&StopTarget::Call(inner));
    assert_eq!(
        receipt.items().len(),
        1,
        "found by the name that it began with"
    );
    let receipt = session.stop(&StopTarget::TurnAndBackground, user());
    let receipt = receipt.receipt().await;
    assert!(receipt.quiet() && !work.is_running(), "{receipt:?}");
    let mut ids: Vec<_> = receipt.items().iter().map(|item| &*item.id).collect();
    ids.sort_unstable();
    ids.retain(|id| *id != "call_1_1");
    assert_eq!(
        ids,
        ["bg_1", "call_1_1/call_1_1", "call_1_1/call_1_1/call_1_1"]
    );
    let (starts, ends) = background_records(&fixture).await;
    assert_eq!((starts.len(), ends.len()), (1, 1), "{ends:?}");
    let SessionRecord::BackgroundEnded { answer, .. } = &ends[0] else {
        panic!("an end");
    };
    // Regression: the answer did not name the calls before the promotion.
    let answer = answer.as_deref().unwrap_or_default();
    assert!(answer.starts_with("the agent ended without"), "{answer}");
    assert!(answer.contains("\n- agent `look up`: "), "{answer}");
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn stopping_call_is_not_promoted() {
    let (fixture, sent, _running) = running(SessionOptions::default()).await;
    let session = &fixture.session;
    session.promote(&agent_call()).expect("it listens");
    let receipt = session
        .stop(&StopTarget::Call(agent_call()), user())
        .receipt()
        .await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(receipt.items().len(), 3, "{receipt:?}");
    assert!(
        receipt
            .items()
            .iter()
            .all(|item| item.state.as_str() == "stopped")
    );
    assert_eq!(sent.outcome().await.stop_reason, StopReason::Completed);
    assert!(session.background().is_empty());
    let (starts, ends) = background_records(&fixture).await;
    assert!(starts.is_empty() && ends.is_empty());
    fixture.close().await;
}

/// Rounds of a race with a random winner. Each order also has a separate test.
const ROUNDS: usize = 40;

/// Spins longer in each round, so that the race is decided at different points.
fn spin(round: usize) {
    for _ in 0..round * 400 {
        std::hint::spin_loop();
    }
}

/// Races a promotion against another action, on separate threads. Returns true if the promotion came first.
async fn promoted_against(
    round: usize,
    other: impl FnOnce(&Fixture, &Running),
) -> (Fixture, Running, bool) {
    let (fixture, sent, running) = running(SessionOptions::default()).await;
    let session = fixture.session.clone();
    let asking = std::thread::scope(|threads| {
        let asking = threads.spawn(|| {
            spin(ROUNDS / 2);
            session.promote(&agent_call())
        });
        spin(round);
        other(&fixture, &running);
        asking.join().expect("it does not panic")
    });
    sent.outcome().await;
    let works = fixture.session.background();
    assert!(works.len() <= 1 && (asking.is_ok() || works.is_empty()));
    let promoted = !works.is_empty();
    (fixture, running, promoted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promotion_against_a_stop_of_the_turn_has_one_winner() {
    let mut won = 0;
    for round in 0..ROUNDS {
        let stopping = std::sync::Mutex::new(None);
        let raced = promoted_against(round, |fixture, _| {
            let stop = fixture.session.stop(&StopTarget::Turn, user());
            *stopping.lock().expect("no panic") = Some(stop);
        });
        let (fixture, _running, promoted) = raced.await;
        let stop = stopping
            .into_inner()
            .expect("no panic")
            .expect("it was stopped");
        let receipt = stop.receipt().await;
        assert!(receipt.quiet(), "{receipt:?}");
        let inside = receipt
            .items()
            .iter()
            .filter(|item| item.state.as_str() != "still_running");
        let agents = inside.filter(|item| item.id.contains('/')).count();
        let everything = StopTarget::TurnAndBackground;
        let runs = fixture.session.preview(&everything).items().len();
        // Either the stop covers all of the work, or all of it is in the background.
        assert_eq!(
            (agents, runs),
            if promoted { (0, 3) } else { (2, 0) },
            "{receipt:?}"
        );
        let receipt = fixture.session.stop(&everything, user()).receipt().await;
        assert!(receipt.quiet(), "{receipt:?}");
        fixture.session.close().await;
        let (starts, ends) = background_records(&fixture).await;
        assert_eq!(
            (starts.len(), ends.len()),
            (usize::from(promoted), usize::from(promoted))
        );
        won += usize::from(promoted);
    }
    println!("the promotion was first in {won} of {ROUNDS}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promotion_against_the_end_has_one_winner_and_exact_usage() {
    let mut won = 0;
    for round in 0..ROUNDS {
        let raced = promoted_against(round, |_, running| running.go_on.add_permits(1));
        let (fixture, _running, promoted) = raced.await;
        for work in fixture.session.background() {
            let end = work.ended().await;
            assert_eq!(end.answer.as_deref(), Some("it is 42"));
        }
        let told = fixture
            .said()
            .await
            .iter()
            .filter(|said| said.contains("it is 42"))
            .count();
        assert_eq!(
            told,
            usize::from(!promoted),
            "the answer is in the call or in the next turn"
        );
        fixture.session.close().await;
        let (starts, ends) = background_records(&fixture).await;
        assert_eq!(
            (starts.len(), ends.len()),
            (usize::from(promoted), usize::from(promoted))
        );
        assert_eq!(fixture.state().await.metered().total_tokens(), 6 * COST);
        won += usize::from(promoted);
    }
    println!("the promotion was first in {won} of {ROUNDS}");
}

#[tokio::test(start_paused = true)]
async fn second_full_stop_joins_the_first() {
    let (fixture, sent, _running) = running(SessionOptions::default()).await;
    let session = &fixture.session;
    session.promote(&agent_call()).expect("it listens");
    sent.outcome().await;
    let inner: CallId = "call_1_1/call_1_1".into();
    let first = session.stop(&StopTarget::TurnAndBackground, user());
    // Nothing has been polled since, so all of the work still runs.
    let preview = session.preview(&StopTarget::TurnAndBackground);
    assert_eq!(preview.items().len(), 3, "{preview:?}");
    let second = session.stop(&StopTarget::TurnAndBackground, user());
    let alone = session.stop(&StopTarget::Call(inner.clone()), user());
    let (first, second) = (first.receipt().await, second.receipt().await);
    for receipt in [&first, &second, &alone.receipt().await] {
        assert_eq!(receipt.outcome(), None, "{receipt:?}");
        assert!(receipt.quiet() && !receipt.items().is_empty());
    }
    assert_eq!(first.items(), second.items());
    let third = session.stop(&StopTarget::TurnAndBackground, user());
    let third = third.receipt().await;
    assert_eq!(third.outcome(), Some(NothingToStop::AlreadyEnded));
    let target = &*third.request().target;
    assert!(target.ends_with("/turn/1"), "the session has not: {target}");
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_waits_for_background_work_and_records_its_end() {
    for _ in 0..100 {
        let (fixture, sent, _running) = running(SessionOptions::default()).await;
        let session = fixture.session.clone();
        session.promote(&agent_call()).expect("it listens");
        sent.outcome().await;
        session.send("and?").expect("it is idle");
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while session.is_busy() {
                    std::hint::spin_loop();
                }
                drop(session.stop(&StopTarget::Session, user()));
            });
        });
        fixture.session.close().await;
        let (starts, ends) = background_records(&fixture).await;
        assert_eq!((starts.len(), ends.len()), (1, 1));
    }
}
