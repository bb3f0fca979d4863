//! A message that arrives while a turn runs.

use allstop_core::{CauseKind, Image, StopReason};
use allstop_model::{Pause, Reply};
use allstop_session::{
    Admission, FollowUp, MessageRefused, NewMessage, SendError, SessionOptions, StopTarget,
};

use crate::support::{agent, fixture, in_order, text_delta, user};

fn options(follow_up: FollowUp) -> SessionOptions {
    SessionOptions::default().follow_up(follow_up)
}

fn stalling(text: &str) -> Reply {
    Reply::text(text)
        .pause(Pause::Forever)
        .and_text("never shown")
}

/// Known bug of the recipe "a new message cancels the old run": the clean-up of the old run removes the handle of the
/// new run. A third message then cannot cancel the second run. Here only the third message is answered, in every round.
#[tokio::test(start_paused = true)]
async fn of_three_quick_messages_only_the_third_is_answered() {
    for (policy, kept) in [(FollowUp::Interrupt, true), (FollowUp::Replace, false)] {
        let model = in_order(vec![stalling("one"), Reply::text("three")]);
        let fixture = fixture(agent(&model).build(), options(policy)).await;
        let session = &fixture.session;
        let mut events = session.subscribe(None);
        let first = session.send("first").unwrap();
        assert_eq!(text_delta(&mut events).await, "one");
        let second = session.send("second").unwrap();
        let third = session.send("third").unwrap();
        assert_eq!(third.admission, Admission::Supersedes { turns: 2 });
        for superseded in [&first, &second] {
            let outcome = superseded.outcome().await;
            assert_eq!(outcome.stop_reason, StopReason::Cancelled, "{policy}");
            let cause = outcome.cause.as_ref().unwrap();
            assert_eq!(cause.kind, CauseKind::Superseded);
            let receipt = outcome.receipt.as_ref().expect("a receipt");
            assert!(receipt.quiet() && outcome.output.is_empty());
        }
        let outcome = third.outcome().await;
        assert_eq!(&*outcome.output, "three");
        assert_eq!(outcome.turn.unwrap().0, 3, "the epoch of the newest");
        let said = fixture.said().await;
        if kept {
            let expected = [
                "user: first",
                "stopped",
                "user: second",
                "stopped",
                "user: third",
                "model: three",
            ];
            assert_eq!(said, expected);
        } else {
            assert_eq!(said, ["user: third", "model: three"]);
        }
        fixture.close().await;
    }
}

/// The ABA bug occurs only if an old run ends between two new runs. This test sends a hundred messages. Each message
/// supersedes the turn of the preceding message in the middle of its answer.
#[tokio::test(start_paused = true)]
async fn each_message_supersedes_the_one_before() {
    let mut replies: Vec<Reply> = (0..100).map(|n| stalling(&format!("part {n}"))).collect();
    replies.push(Reply::text("the last"));
    let model = in_order(replies);
    let fixture = fixture(agent(&model).build(), options(FollowUp::Interrupt)).await;
    let mut events = fixture.session.subscribe(None);
    let mut sent = Vec::new();
    for n in 0..100 {
        sent.push(fixture.session.send(format!("message {n}")).unwrap());
        assert_eq!(text_delta(&mut events).await, format!("part {n}"));
    }
    let last = fixture.session.send("now").unwrap();
    assert_eq!(&*last.outcome().await.output, "the last");
    for sent in sent {
        let outcome = sent.outcome().await;
        assert_eq!(outcome.cause.as_ref().unwrap().kind, CauseKind::Superseded);
    }
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn reject_policy_refuses_with_busy() {
    let model = in_order(vec![stalling("one"), Reply::text("two")]);
    let fixture = fixture(agent(&model).build(), options(FollowUp::Reject)).await;
    let mut events = fixture.session.subscribe(None);
    let first = fixture.session.send("first").unwrap();
    text_delta(&mut events).await;
    let refused = fixture.session.send("second").unwrap_err();
    assert_eq!(refused, SendError::Refused(MessageRefused::Busy));
    let receipt = fixture
        .session
        .stop(&StopTarget::Turn, user())
        .receipt()
        .await;
    assert!(receipt.quiet() && receipt.cancel_observed());
    assert_eq!(first.outcome().await.stop_reason, StopReason::Cancelled);
    let second = fixture
        .session
        .send("second")
        .expect("whoever has the outcome finds the desk free");
    assert_eq!(&*second.outcome().await.output, "two");
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn enqueue_waits_and_keeps_the_order() {
    let model = in_order(vec![
        Reply::text("1").pause(Pause::For(std::time::Duration::from_secs(5))),
        Reply::text("2"),
        Reply::text("3"),
    ]);
    let fixture = fixture(agent(&model).build(), options(FollowUp::Enqueue)).await;
    let sent: Vec<_> = ["a", "b", "c"]
        .map(|text| fixture.session.send(text).unwrap())
        .into();
    assert_eq!(sent[2].admission, Admission::Waits { ahead: 2 });
    for (sent, answer) in sent.iter().zip(["1", "2", "3"]) {
        assert_eq!(&*sent.outcome().await.output, answer);
    }
    fixture.close().await;
}

/// If a message is handed to the running turn, the turn's next request contains the message. The message shares the
/// outcome of the turn.
#[tokio::test(start_paused = true)]
async fn steer_reaches_the_running_turn_at_its_next_step() {
    let model = in_order(vec![
        Reply::text("thinking").pause(Pause::For(std::time::Duration::from_secs(5))),
        Reply::text("both"),
    ]);
    let fixture = fixture(agent(&model).build(), options(FollowUp::Steer)).await;
    let mut events = fixture.session.subscribe(None);
    let first = fixture.session.send("first").unwrap();
    text_delta(&mut events).await;
    let second = fixture.session.send("and this").unwrap();
    assert_eq!(second.admission, Admission::Steers);
    let (one, two) = (first.outcome().await, second.outcome().await);
    assert_eq!((&*one.output, &*two.output), ("both", "both"));
    assert_eq!(one.turn, two.turn);
    assert_eq!(one.steps, 2);
    let said = fixture.said().await;
    assert_eq!(
        said,
        [
            "user: first",
            "model: thinking",
            "user: and this",
            "model: both"
        ]
    );
    fixture.close().await;
}

/// A message that the turn did not take before a stop is not lost, but becomes the next message.
#[tokio::test(start_paused = true)]
async fn message_not_taken_by_a_stopped_turn_comes_next() {
    let model = in_order(vec![stalling("one"), Reply::text("two")]);
    let fixture = fixture(agent(&model).build(), options(FollowUp::Steer)).await;
    let mut events = fixture.session.subscribe(None);
    let first = fixture.session.send("first").unwrap();
    text_delta(&mut events).await;
    let second = fixture.session.send("second").unwrap();
    assert_eq!(second.admission, Admission::Steers);
    fixture
        .session
        .stop(&StopTarget::Turn, user())
        .receipt()
        .await;
    assert_eq!(first.outcome().await.stop_reason, StopReason::Cancelled);
    assert_eq!(&*second.outcome().await.output, "two");
    assert_eq!(fixture.said().await, ["user: second", "model: two"]);
    fixture.close().await;
}

/// Regression test: the receipt contained the id of the message, which only the session can map to a turn.
#[tokio::test(start_paused = true)]
async fn turn_of_a_message_that_waited_has_its_number_in_receipts() {
    let model = in_order(vec![stalling("one"), stalling("two")]);
    let fixture = fixture(agent(&model).build(), options(FollowUp::Enqueue)).await;
    let session = &fixture.session;
    let mut events = session.subscribe(None);
    session.send("first").unwrap();
    text_delta(&mut events).await;
    session.send("second").unwrap();
    for (number, next) in [("1", Some("two")), ("2", None)] {
        let stopping = session.stop(&StopTarget::Turn, user());
        let receipt = stopping.receipt().await;
        let target = &receipt.request().target;
        assert!(target.ends_with(&format!("/turn/{number}")), "{target}");
        if let Some(next) = next {
            assert_eq!(text_delta(&mut events).await, next);
        }
    }
    fixture.close().await;
}

/// A stop before the owner has begun the turn is not lost.
#[tokio::test(start_paused = true)]
async fn stop_right_after_sending_is_not_lost() {
    let model = in_order(vec![Reply::text("one"), Reply::text("two")]);
    let fixture = fixture(agent(&model).build(), options(FollowUp::Reject)).await;
    for _ in 0..3 {
        let sent = fixture.session.send("go").unwrap();
        let stopping = fixture.session.stop(&StopTarget::Turn, user());
        let outcome = sent.outcome().await;
        assert_eq!(outcome.stop_reason, StopReason::Cancelled);
        let receipt = stopping.receipt().await;
        assert!(receipt.quiet() && receipt.outcome().is_none());
    }
    assert!(
        model.requests().is_empty(),
        "nothing was ever sent to the model"
    );
    assert!(fixture.said().await.is_empty());
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn message_policy_overrides_the_session_policy() {
    let model = in_order(vec![stalling("one"), Reply::text("two")]);
    let fixture = fixture(agent(&model).build(), options(FollowUp::Reject)).await;
    let mut events = fixture.session.subscribe(None);
    let first = fixture.session.send("first").unwrap();
    text_delta(&mut events).await;
    let second = NewMessage::from("second").policy(FollowUp::Replace);
    let second = fixture.session.send(second).unwrap();
    assert_eq!(&*second.outcome().await.output, "two");
    assert_eq!(
        first.outcome().await.cause.as_ref().unwrap().kind,
        CauseKind::Superseded
    );
    fixture.close().await;
}

/// Sends a message with an image and no text while a turn runs. Under each policy, exactly one image is in the last
/// request.
#[tokio::test(start_paused = true)]
async fn every_policy_keeps_the_images_of_a_message() {
    for policy in [
        FollowUp::Enqueue,
        FollowUp::Interrupt,
        FollowUp::Replace,
        FollowUp::Steer,
    ] {
        let first = Reply::text("one").pause(Pause::For(std::time::Duration::from_secs(5)));
        let model = in_order(vec![first, Reply::text("two")]);
        let fixture = fixture(agent(&model).build(), options(policy)).await;
        let mut events = fixture.session.subscribe(None);
        fixture.session.send("first").unwrap();
        text_delta(&mut events).await;
        let image = Image::new(*b"\x89PNG\r\n\x1a\n").unwrap();
        let message = NewMessage::from("").images(image.into());
        let second = fixture.session.send(message).unwrap();
        let outcome = second.outcome().await;
        assert_eq!(outcome.stop_reason, StopReason::Completed, "{policy}");
        let requests = model.requests();
        let messages = &requests.last().unwrap().messages;
        let images: Vec<_> = messages
            .iter()
            .map(|message| message.images().len())
            .collect();
        assert_eq!(images.iter().sum::<usize>(), 1, "{policy}: {images:?}");
        fixture.close().await;
    }
}

#[tokio::test]
async fn message_without_text_and_images_is_refused() {
    let model = in_order(vec![]);
    let fixture = fixture(agent(&model).build(), options(FollowUp::Reject)).await;
    let empty = fixture.session.send(" ").unwrap_err();
    assert_eq!(empty, SendError::Empty);
    fixture.close().await;
}
