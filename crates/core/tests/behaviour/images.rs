//! Images of a turn: committed once, rolled back with the turn, and never the reason why every later turn fails.

use std::sync::Arc;

use allstop_core::decision::CommitDecision;
use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::turn::{Draft, StopPolicy, TurnLimits};
use allstop_core::{Cause, CauseKind, Image, Images};
use serde_json::json;

use crate::driver::*;

fn images() -> Images {
    Image::new(*b"\x89PNG\r\n\x1a\n").expect("a PNG").into()
}

/// Begins a turn of a message with an image and an empty text.
fn begin(session: &mut Session) -> Draft {
    let mut start = session.start("");
    start.images = images();
    session.log.push(start.record());
    let base = Arc::clone(&session.conversation);
    Draft::begin(
        base,
        &start,
        &session.limits,
        Arc::new(CommitDecision::new()),
    )
    .expect("it begins")
}

fn image_count(session: &Session) -> usize {
    let messages = session.conversation.messages.iter();
    messages.map(|message| message.images().len()).sum()
}

#[test]
fn committed_turn_keeps_its_images() {
    let mut session = Session::new(TurnLimits::default());
    let mut draft = begin(&mut session);
    session.answer(&mut draft, "a dot", usage(10, 5));
    let record = draft
        .steer("m".into(), "and this?".into(), images(), at())
        .expect("no call is open");
    let SessionRecord::MessageSteered { images, .. } = &record else {
        panic!("{record:?}")
    };
    assert_eq!(images.len(), 1);
    session.log.push(record);
    session.answer(&mut draft, "a dot, too", usage(10, 5));
    assert_eq!(session.end(draft), Outcome::Committed);
    assert_eq!(image_count(&session), 2);
    assert_eq!(session.state().conversation(), &session.conversation);
}

#[test]
fn rolled_back_turn_leaves_no_image() {
    let mut session = Session::new(TurnLimits::default());
    let draft = begin(&mut session);
    session.stop(draft, user());
    assert_eq!(image_count(&session), 0);
    assert_eq!(session.turn("next", usage(1, 1)), Outcome::Committed);
}

#[test]
fn image_without_an_answer_is_left_out_after_a_failure() {
    for (cause, kept) in [(Cause::new(CauseKind::Failure), 1), (user(), 2)] {
        let mut session = Session::new(TurnLimits::default());
        session.policy = StopPolicy::Keep;
        let mut draft = begin(&mut session);
        let calls = session.ask(&mut draft, vec![call("call_1", "read", json!({}))]);
        session.begin_call(&mut draft, &calls[0].id);
        let mut read = result(&calls[0].id, "image/png, 1 kB");
        read.images = images();
        let record = draft.finish_call(read, CallOutcome::Succeeded);
        session.log.push(record.expect("the call is open"));
        session.stop(draft, cause);
        assert_eq!(image_count(&session), kept);
        assert_eq!(session.turn("next", usage(1, 1)), Outcome::Committed);
    }
}
