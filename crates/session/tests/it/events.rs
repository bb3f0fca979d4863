//! Subscribers: every record exactly once and in order, for early, late and slow subscribers.

use std::time::Duration;

use allstop_core::MessageId;
use allstop_core::record::SessionRecord;
use allstop_log::Version;
use allstop_model::{Pause, Reply};
use allstop_session::{SessionEventKind, SessionOptions, Subscription};

use crate::support::{LONG, agent, fixture, in_order, text_delta};

/// Collects the records that a subscriber receives up to a version, each with the message that caused it.
async fn records(events: &mut Subscription, until: Version) -> Vec<(Version, Option<MessageId>)> {
    let mut got = Vec::new();
    while got.last().is_none_or(|(version, _)| *version < until) {
        let event = events.next().await.expect("memory").expect("it is open");
        if let SessionEventKind::Recorded { version, .. } = event.kind {
            got.push((version, event.message));
        }
    }
    got
}

#[tokio::test(start_paused = true)]
async fn early_late_and_slow_subscribers_see_equal_records() {
    // More pieces of text than the event hub keeps for a subscriber that does not read.
    let chatty = (0..3_000).fold(Reply::text("w"), |reply, _| reply.and_text("w"));
    let model = in_order(vec![chatty, Reply::text("two")]);
    let fixture = fixture(agent(&model).build(), SessionOptions::default()).await;
    let mut early = fixture.session.subscribe(Some(Version(1)));
    let mut slow = fixture.session.subscribe(Some(Version(1)));
    let first = fixture.session.send("one").unwrap();
    first.outcome().await;
    let second = fixture.session.send("two").unwrap();
    second.outcome().await;
    let last = Version(fixture.records().await.len() as u64);
    let mut late = fixture.session.subscribe(Some(Version(1)));
    let seen = records(&mut late, last).await;
    let versions: Vec<u64> = seen.iter().map(|(version, _)| version.0).collect();
    assert_eq!(
        versions,
        (1..=last.0).collect::<Vec<_>>(),
        "each once and in order"
    );
    for others in [&mut early, &mut slow] {
        let others = records(others, last).await;
        assert_eq!(
            others
                .iter()
                .map(|(version, _)| version.0)
                .collect::<Vec<_>>(),
            versions
        );
    }
    let of = |id: &MessageId| {
        seen.iter()
            .filter(|(_, message)| message.as_ref() == Some(id))
            .count()
    };
    assert!(
        of(&first.id) >= 4 && of(&second.id) >= 4,
        "each names its message: {seen:?}"
    );
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn subscription_from_the_end_gets_later_records() {
    let model = in_order(vec![Reply::text("one"), Reply::text("two")]);
    let fixture = fixture(agent(&model).build(), SessionOptions::default()).await;
    fixture.session.send("one").unwrap().outcome().await;
    let mut events = fixture.session.subscribe(None);
    fixture.session.send("two").unwrap().outcome().await;
    let first = crate::support::until(&mut events, |event| match &event.kind {
        SessionEventKind::Recorded { record, .. } => Some(SessionRecord::clone(record)),
        _ => None,
    })
    .await;
    assert!(
        matches!(first, SessionRecord::TurnStarted { turn, .. } if turn.0 == 2),
        "{first:?}"
    );
    fixture.close().await;
}

/// `session_idle` is sent once, after `assistant_idle`; both report whether the turn was stopped.
#[tokio::test(start_paused = true)]
async fn idle_events_come_in_order() {
    let model = in_order(vec![Reply::text("one")]);
    let options = SessionOptions::default().sleep_after(Duration::from_secs(5));
    let fixture = fixture(agent(&model).build(), options).await;
    let mut events = fixture.session.subscribe(None);
    fixture.session.send("one").unwrap().outcome().await;
    let mut idle = Vec::new();
    while idle.len() < 2 {
        let event = events.next().await.unwrap().unwrap();
        match event.kind {
            SessionEventKind::AssistantIdle { stopped, .. } => idle.push(("assistant", stopped)),
            SessionEventKind::SessionIdle { stopped, .. } => idle.push(("session", stopped)),
            _ => {}
        }
    }
    assert_eq!(idle, [("assistant", false), ("session", false)]);
    fixture.close().await;
}

/// A subscriber that arrives in the middle of a turn receives the rest of the turn.
#[tokio::test(start_paused = true)]
async fn subscriber_in_mid_turn_sees_the_rest_of_the_turn() {
    let reply = Reply::text("one").pause(Pause::For(LONG)).and_text("two");
    let model = in_order(vec![reply]);
    let fixture = fixture(agent(&model).build(), SessionOptions::default()).await;
    let sent = fixture.session.send("go").unwrap();
    while model.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    let mut events = fixture.session.subscribe(None);
    let seen = tokio::time::timeout(LONG * 2, text_delta(&mut events)).await;
    assert_eq!(seen.expect("it is shown"), "two");
    sent.outcome().await;
    fixture.close().await;
}
