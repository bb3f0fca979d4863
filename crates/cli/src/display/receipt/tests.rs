//! Tests of the text of receipts, for items in every state.

use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{
    Containment, ConversationEffect, EndMethod, EndProof, Evidence, ItemKind, ItemState,
    NotStoppedReason, NothingToStop, ReceiptItem, StopFindings, StopInfo,
};
use allstop_core::{Cause, CauseKind, Effect, Extent, Receipt, StopId, Timestamp, Usage};

use super::*;

const UNICODE: Style = Style::new(false, true);

fn drawn(receipt: &Receipt, style: Style, width: usize) -> String {
    render_receipt(receipt, style, width).shown().to_owned()
}

fn drawn_full(receipt: &Receipt, width: usize) -> String {
    render_full_receipt(receipt, UNICODE, width)
        .shown()
        .to_owned()
}

fn request() -> StopInfo {
    StopInfo {
        stop_id: StopId::from("01JSTOP"),
        target: "session/01JSESSION/turn/7".into(),
        extent: Extent::Turn,
        cause: Cause::new(CauseKind::User).detail("ctrl-c").by("cli"),
        requested_at: Timestamp::from_unix_ms(0),
    }
}

fn after(ms: f64) -> allstop_core::receipt::Millis {
    Duration::from_secs_f64(ms / 1_000.0).into()
}

fn process(pid: u32) -> ProcessIdentity {
    ProcessIdentity {
        pid,
        start_ticks: 1,
        boot_id: "boot".into(),
        pid_namespace: None,
    }
}

fn stopped(how: EndMethod, evidence: Evidence, ms: f64) -> ItemState {
    let after_ms = after(ms);
    ItemState::Stopped {
        how,
        evidence,
        after_ms,
    }
}

fn well_stopped() -> Vec<ReceiptItem> {
    let item = ReceiptItem::new;
    let closed = Evidence::verified(EndProof::SocketClosed).and_observed_at("stream_chunk");
    let tree = Evidence::verified(EndProof::ProcessTreeEmpty);
    let lost = ItemState::Unknown {
        how: EndMethod::Dropped,
        after_ms: Some(after(0.2)),
    };
    let ended = ItemState::Finished {
        after_ms: Some(after(0.1)),
    };
    let model = stopped(EndMethod::ConnectionClosed, closed, 0.4);
    let hook = stopped(
        EndMethod::Acknowledged,
        Evidence::observed_at("hook_end"),
        1.0,
    );
    vec![
        ReceiptItem {
            tokens_received_after_stop: Some(0),
            ..item(ItemKind::ModelCall, "step_2", "openai::gpt-x", model)
        },
        ReceiptItem {
            containment: Some(Containment::Keeper),
            effect: Some(Effect::Irreversible),
            ..item(
                ItemKind::ToolCall,
                "call_3",
                "shell",
                stopped(EndMethod::Sigterm, tree, 11.0),
            )
        },
        ReceiptItem {
            effect: Some(Effect::Irreversible),
            note: Some("may have completed; check before repeating".into()),
            ..item(ItemKind::ToolCall, "call_4", "http_post", lost)
        },
        item(ItemKind::ToolCall, "call_5", "read", ended),
        item(ItemKind::Hook, "hook", "hook", hook),
        item(
            ItemKind::Background,
            "bg_1",
            "npm run dev",
            ItemState::StillRunning {
                why: NotStoppedReason::OutsideExtent,
            },
        ),
    ]
}

fn badly_stopped() -> Vec<ReceiptItem> {
    let item = ReceiptItem::new;
    vec![
        ReceiptItem {
            processes: vec![process(4711), process(4712)],
            containment: Some(Containment::GroupAndMarker),
            ..item(
                ItemKind::ToolCall,
                "call_1",
                "shell",
                ItemState::StillRunning {
                    why: NotStoppedReason::ProcessesLeft,
                },
            )
        },
        ReceiptItem {
            note: Some("a thread cannot be forced; it never delays the exit".into()),
            ..item(
                ItemKind::Thread,
                "thread_2",
                "index the whole repository, thoroughly and twice",
                ItemState::StillRunning {
                    why: NotStoppedReason::BlockingThread,
                },
            )
        },
        item(
            ItemKind::Remote,
            "task_9",
            "worker at\n\u{1b}[2Jelsewhere",
            ItemState::Unreachable {
                why: NotStoppedReason::NotConfirmed,
            },
        ),
        item(
            ItemKind::Remote,
            "task_10",
            "billing",
            ItemState::Refused {
                why: NotStoppedReason::NotConfirmed,
            },
        ),
        item(
            ItemKind::Future,
            "f",
            "你好",
            stopped(
                EndMethod::Dropped,
                Evidence::verified(EndProof::FutureDropped),
                2_000.0,
            ),
        ),
    ]
}

fn receipt(items: Vec<ReceiptItem>) -> Receipt {
    let findings = StopFindings {
        items: items.into(),
        elapsed: Duration::from_micros(14_200),
    };
    Receipt::of_stop(request(), findings).with_usage(Usage {
        input_tokens: 812,
        cached_input_tokens: 0,
        cache_write_input_tokens: 0,
        output_tokens: 64,
        estimated: true,
    })
}

#[test]
fn a_quiet_receipt() {
    let receipt = receipt(well_stopped()).with_conversation(ConversationEffect::KeptCompletedSteps);
    insta::assert_snapshot!(drawn(&receipt, UNICODE, 150));
}

#[test]
fn a_receipt_that_is_not_quiet() {
    insta::assert_snapshot!(drawn(&receipt(badly_stopped()), UNICODE, 150));
}

#[test]
fn in_ascii() {
    insta::assert_snapshot!(drawn(&receipt(badly_stopped()), Style::default(), 150));
}

#[test]
fn on_terminals_of_many_sizes() {
    let receipt = receipt(well_stopped());
    let all = [38, 60, 80, 120].map(|width| {
        let drawn = drawn(&receipt, UNICODE, width);
        let widest = drawn.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(width), "{width}:\n{drawn}");
        drawn
    });
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn in_full() {
    let all = [
        drawn_full(&receipt(well_stopped()), 150),
        drawn_full(&receipt(badly_stopped()), 60),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn equal_items_are_one_line() {
    let shell = |number: u32, command: &str, ms| {
        let tree = Evidence::verified(EndProof::ProcessTreeEmpty);
        ReceiptItem {
            label: Some(command.into()),
            ..ReceiptItem::new(
                ItemKind::ToolCall,
                format!("call_{number}"),
                "shell",
                stopped(EndMethod::Sigterm, tree, ms),
            )
        }
    };
    let same = (0..30).map(|number| shell(number, "sleep 100", 49.2 + f64::from(number % 12)));
    let differ = (0..30).map(|number| shell(number, &format!("sleep {number}"), 5.0));
    let mut left = shell(31, "sleep 100", 1.0);
    left.state = ItemState::StillRunning {
        why: NotStoppedReason::ProcessesLeft,
    };
    let lefts = [1, 2].map(|pid| ReceiptItem {
        processes: vec![process(pid)],
        ..left.clone()
    });
    let all = [same.collect(), differ.collect(), lefts.to_vec()];
    let all = all.map(|items| drawn(&receipt(items), UNICODE, 100));
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn each_cause_and_target_is_a_sentence() {
    let causes = [
        Cause::new(CauseKind::User),
        Cause::new(CauseKind::User).detail("/stop").by("cli"),
        Cause::new(CauseKind::User)
            .detail("tasks/cancel")
            .by("alice"),
        Cause::new(CauseKind::Superseded).detail("by message 01M"),
        Cause::new(CauseKind::Deadline).detail("run deadline of 1s"),
        Cause::new(CauseKind::Inactivity),
        Cause::new(CauseKind::Budget),
        Cause::new(CauseKind::Guardrail).detail("no secrets"),
        Cause::new(CauseKind::Parent).detail("the run has ended"),
        Cause::new(CauseKind::Shutdown).detail("sigterm"),
        Cause::new(CauseKind::Shutdown).detail("the session was closed"),
        Cause::new(CauseKind::LeaseLost),
        Cause::new(CauseKind::Disconnect),
        Cause::new(CauseKind::Failure).detail("crash"),
    ];
    let targets = [
        ("session/s/turn/7", Extent::Turn),
        ("session/s/turn/7", Extent::TurnAndBackground),
        ("session/s", Extent::TurnAndBackground),
        ("session/s", Extent::Session),
        ("session/s/call/call_1/call_2", Extent::Call),
        ("session/s/bg_1", Extent::Subtree),
        ("session/s/message/01M", Extent::Turn),
        ("task/t1", Extent::Session),
        ("process", Extent::Process),
    ];
    let first = causes[0].clone();
    let of_causes = causes.map(|cause| ("session/s/turn/1", Extent::Turn, cause));
    let of_targets = targets.map(|(target, extent)| (target, extent, first.clone()));
    let mut said = String::new();
    for (target, extent, cause) in of_causes.into_iter().chain(of_targets) {
        let request = StopInfo {
            target: target.into(),
            extent,
            cause,
            ..request()
        };
        let findings = StopFindings {
            items: Vec::new().into(),
            elapsed: Duration::from_millis(20),
        };
        let receipt = Receipt::of_stop(request, findings);
        said += &receipt.to_string();
        said.push('\n');
    }
    insta::assert_snapshot!(said);
}

#[test]
fn in_colour() {
    let receipt = receipt(badly_stopped());
    let drawn = self::drawn(&receipt, Style::new(true, true), 150);
    insta::assert_snapshot!(drawn.replace('\u{1b}', "ESC"));
}

#[test]
fn nothing_to_stop() {
    let ended = Receipt::empty(request(), NothingToStop::AlreadyEnded);
    let unknown = Receipt::empty(request(), NothingToStop::NotFound);
    let empty = receipt(Vec::new());
    let all = [ended, unknown, empty];
    let all = all.map(|receipt| drawn(&receipt, UNICODE, 100));
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_preview_says_what_runs() {
    let running = |why| ItemState::StillRunning { why };
    let items = vec![
        ReceiptItem {
            processes: vec![process(17)],
            ..ReceiptItem::new(
                ItemKind::ToolCall,
                "call_1",
                "shell",
                running(NotStoppedReason::ProcessesLeft),
            )
        },
        ReceiptItem::new(
            ItemKind::ModelCall,
            "step_1",
            "m",
            running(NotStoppedReason::NotConfirmed),
        ),
    ];
    let preview = Receipt::of_preview(request(), items);
    insta::assert_snapshot!(drawn(&preview, UNICODE, 100));
}

#[test]
fn no_width_is_too_small_and_nothing_is_left_out() {
    for width in [0, 1, 20, 79, 80, 81, 500] {
        let drawn = self::drawn(&receipt(badly_stopped()), UNICODE, width);
        for said in ["4711", "4712", "STILL", "billing", "cannot"] {
            assert!(drawn.contains(said), "{said} at {width}:\n{drawn}");
        }
        assert!(!drawn.contains('\u{1b}'), "the name of a remote is escaped");
    }
}

#[test]
fn question_shows_its_name_once() {
    let state = stopped(EndMethod::Dropped, Evidence::observed_at("x"), 5.0);
    let name = |kind, name: &str| {
        let item = ReceiptItem::new(kind, "id", name, state.clone());
        work_line(&item)
    };
    assert_eq!(
        name(ItemKind::Permission, "permission question"),
        "permission question"
    );
    assert_eq!(name(ItemKind::Permission, "other"), "question other");
    assert_eq!(name(ItemKind::Thread, "thread"), "thread");
}

#[test]
fn stop_between_turns_does_not_name_the_turn_before() {
    let request = StopInfo {
        extent: Extent::TurnAndBackground,
        ..request()
    };
    let tree = Evidence::verified(EndProof::ProcessTreeEmpty);
    let state = stopped(EndMethod::Sigterm, tree, 3.0);
    let work = ReceiptItem::new(ItemKind::Background, "bg_1", "sleep 60", state.clone());
    let call = ReceiptItem::new(ItemKind::ToolCall, "call_1", "shell", state);
    for (items, target) in [
        (vec![work.clone()], "The background work stopped by you"),
        (vec![work, call], "Turn 7 and the background work stopped"),
    ] {
        let findings = StopFindings {
            items: items.into(),
            ..StopFindings::default()
        };
        let shown = drawn(&Receipt::of_stop(request.clone(), findings), UNICODE, 100);
        assert!(shown.contains(target), "{shown}");
    }
}
