//! The envelope, which is the JSON result of a run for scripts: every key is always present.

use std::sync::Arc;

use allstop_agent::{AgentEvent, TurnError, TurnErrorKind};
use allstop_core::receipt::{
    ItemKind, ItemState, NotStoppedReason, NothingToStop, Receipt, ReceiptItem, StopFindings,
    StopInfo,
};
use allstop_core::{Cause, CauseKind, Extent, StopReason, Timestamp, Usage};
use allstop_model::{Pause, Reply};
use allstop_runtime::{Envelope, SessionSetup};
use allstop_session::{SessionEventKind, StopTarget};
use insta::{assert_json_snapshot, assert_snapshot};
use serde_json::json;

use crate::schemas::assert_valid;
use crate::{Place, user, within};

#[tokio::test(flavor = "multi_thread")]
async fn completed_run_of_two_turns() {
    let place = Place::new();
    let replies = vec![
        Reply::text("First.")
            .call("write", json!({"path": "a", "content": "b"}))
            .usage(10, 5),
        Reply::text("One.").usage(20, 5),
        Reply::text("Two.").usage(30, 5),
    ];
    let system = place
        .system("[permissions]\ndeny = [\"write\"]", replies)
        .await;
    let open = system
        .new_session(Some("s1".into()), SessionSetup::default())
        .await;
    let session = open.unwrap().session;
    let mut outcomes = Vec::new();
    for prompt in ["one", "two"] {
        outcomes.push(within(session.send(prompt).unwrap().outcome()).await);
    }
    let envelope = Envelope::of_run(session.id(), &outcomes).unwrap();
    assert_valid("envelope", &envelope);
    assert_json_snapshot!(envelope, @r#"
    {
      "schema": "allstop.run/1",
      "session_id": "s1",
      "turn": 2,
      "stop_reason": "completed",
      "cause": null,
      "cancel_observed": false,
      "output": "Two.",
      "output_json": null,
      "finish": "done",
      "steps": 3,
      "usage": {
        "input_tokens": 60,
        "output_tokens": 15,
        "estimated": false
      },
      "cost": null,
      "turns": [
        {
          "turn": 1,
          "stop_reason": "completed",
          "cause": null,
          "output": "One.",
          "finish": "done",
          "steps": 2,
          "usage": {
            "input_tokens": 30,
            "output_tokens": 10,
            "estimated": false
          },
          "denials": [
            {
              "call_id": "call_1_1",
              "tool": "write",
              "reason": "denied by the permission rule `write`"
            }
          ],
          "receipt": null,
          "error": null
        },
        {
          "turn": 2,
          "stop_reason": "completed",
          "cause": null,
          "output": "Two.",
          "finish": "done",
          "steps": 1,
          "usage": {
            "input_tokens": 30,
            "output_tokens": 5,
            "estimated": false
          },
          "denials": [],
          "receipt": null,
          "error": null
        }
      ],
      "denials": [
        {
          "call_id": "call_1_1",
          "tool": "write",
          "reason": "denied by the permission rule `write`"
        }
      ],
      "lost_calls": [],
      "reported_calls": [],
      "receipt": null,
      "receipts": [],
      "background": [],
      "error": null,
      "exit_code": 0
    }
    "#);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_run() {
    let place = Place::new();
    let replies = vec![Reply::text("I think").pause(Pause::Forever)];
    let system = place.system("", replies).await;
    let open = system
        .new_session(Some("s1".into()), SessionSetup::default())
        .await;
    let session = open.unwrap().session;
    let mut events = session.watch();
    let sent = session.send("go").unwrap();
    within(async {
        while !matches!(
            events.next().await.expect("the session is open").kind,
            SessionEventKind::Live(AgentEvent::TextDelta { .. })
        ) {}
    })
    .await;
    drop(session.stop(&StopTarget::Turn, user().detail("ctrl-c").by("cli")));
    let outcome = within(sent.outcome()).await;
    let envelope = Envelope::of_run(session.id(), &[outcome])
        .unwrap()
        .with_exit_code(129);
    assert_valid("envelope", &envelope);
    assert!(envelope.cancel_observed);
    assert_eq!(envelope.receipts, Vec::from_iter(envelope.receipt.clone()));
    let mut shown = envelope.clone();
    assert_eq!(shown.turns.remove(0).receipt, envelope.receipt);
    shown.receipts.clear();
    assert_snapshot!(without_chance(&shown), @r#"
    {
      "schema": "allstop.run/1",
      "session_id": "s1",
      "turn": 1,
      "stop_reason": "cancelled",
      "cause": {
        "kind": "user",
        "detail": "ctrl-c",
        "by": "cli"
      },
      "cancel_observed": true,
      "output": "",
      "output_json": null,
      "finish": null,
      "steps": 1,
      "usage": {
        "input_tokens": 1,
        "output_tokens": 2,
        "estimated": true
      },
      "cost": null,
      "turns": [],
      "denials": [],
      "lost_calls": [],
      "reported_calls": [],
      "receipt": {
        "schema": "allstop.receipt/1",
        "stop_id": "[id]",
        "target": "session/s1/turn/1",
        "extent": "turn",
        "cause": {
          "kind": "user",
          "detail": "ctrl-c",
          "by": "cli"
        },
        "requested_at": "[time]",
        "quiet": true,
        "quiet_after_ms": "[ms]",
        "cancel_observed": true,
        "items": [
          {
            "kind": "model_call",
            "id": "step_1",
            "name": "script",
            "state": "stopped",
            "how": "dropped",
            "verified": "future_dropped",
            "observed_at": "stream_chunk",
            "after_ms": "[ms]",
            "tokens_received_after_stop": 0
          }
        ],
        "conversation": "unchanged",
        "usage": {
          "input_tokens": 1,
          "output_tokens": 2,
          "estimated": true
        }
      },
      "receipts": [],
      "background": [],
      "error": null,
      "exit_code": 129
    }
    "#);

    let mut more = envelope.clone();
    more.add_receipt(Arc::new(receipt(NotStoppedReason::BlockingThread)));
    assert!(!more.cancel_observed);
    assert_eq!(more.receipts.len(), 2);
    let mut more = envelope;
    more.add_receipt(Arc::new(receipt(NotStoppedReason::OutsideExtent)));
    assert!(more.cancel_observed);
}

#[test]
fn run_that_did_not_start() {
    let error = TurnError {
        kind: TurnErrorKind::Store,
        message: "no space is left for the store: x.db".to_owned(),
        hint: Some("free some room".to_owned()),
    };
    let envelope = Envelope::of_no_run(None, StopReason::Error, Some(error));
    assert_valid("envelope", &envelope);
    assert_json_snapshot!(envelope, @r#"
    {
      "schema": "allstop.run/1",
      "session_id": null,
      "turn": null,
      "stop_reason": "error",
      "cause": null,
      "cancel_observed": false,
      "output": "",
      "output_json": null,
      "finish": null,
      "steps": 0,
      "usage": {
        "input_tokens": 0,
        "output_tokens": 0,
        "estimated": false
      },
      "cost": null,
      "turns": [],
      "denials": [],
      "lost_calls": [],
      "reported_calls": [],
      "receipt": null,
      "receipts": [],
      "background": [],
      "error": {
        "kind": "store",
        "message": "no space is left for the store: x.db",
        "hint": "free some room"
      },
      "exit_code": 1
    }
    "#);
}

#[test]
fn receipt_of_a_wider_stop_replaces_that_of_its_turn() {
    let mut envelope = Envelope::of_no_run(None, StopReason::Cancelled, None);
    let part = Arc::new(receipt(NotStoppedReason::OutsideExtent));
    let whole = Arc::new(Receipt::clone(&part).with_usage(Usage::default()));
    envelope.add_receipt(part);
    envelope.add_receipt(Arc::clone(&whole));
    assert!(Arc::ptr_eq(&envelope.receipts[0], &whole) && envelope.receipts.len() == 1);
    let nothing = Receipt::empty(whole.request().clone(), NothingToStop::AlreadyEnded);
    envelope.add_receipt(Arc::new(nothing));
    assert_eq!(envelope.receipt, Some(whole));
    assert_valid("envelope", &envelope);
}

/// Regression test: with two stops in one millisecond, the envelope and the log named different stops as the last one.
#[test]
fn stops_of_one_millisecond_have_a_fixed_order() {
    let of = |id: &str| Arc::new(receipt_of(id, NotStoppedReason::OutsideExtent));
    for ids in [["a", "b"], ["b", "a"]] {
        let mut envelope = Envelope::of_no_run(None, StopReason::Cancelled, None);
        for id in ids {
            envelope.add_receipt(of(id));
        }
        assert_eq!(envelope.receipt, Some(of("b")), "{ids:?}");
    }
}

/// Formats the envelope as JSON, without the values that differ in each run.
fn without_chance(envelope: &Envelope) -> String {
    let text = serde_json::to_string_pretty(envelope).expect("it is JSON");
    let lines = text.lines().map(|line| {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        let name = match key.trim().trim_matches('"') {
            "stop_id" => "[id]",
            "requested_at" => "[time]",
            "quiet_after_ms" | "after_ms" => "[ms]",
            _ => return line.to_owned(),
        };
        let comma = if value.ends_with(',') { "," } else { "" };
        format!("{key}: \"{name}\"{comma}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn receipt(why: NotStoppedReason) -> Receipt {
    receipt_of("stop", why)
}

fn receipt_of(id: &str, why: NotStoppedReason) -> Receipt {
    let request = StopInfo {
        stop_id: id.into(),
        target: "process".into(),
        extent: Extent::Process,
        cause: Cause::new(CauseKind::User),
        requested_at: Timestamp::from_unix_ms(0),
    };
    let state = ItemState::StillRunning { why };
    let findings = StopFindings {
        items: [ReceiptItem::new(ItemKind::Thread, "t", "t", state)].into(),
        ..StopFindings::default()
    };
    Receipt::of_stop(request, findings)
}
