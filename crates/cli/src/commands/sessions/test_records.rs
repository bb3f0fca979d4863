//! Records of sessions, for tests.

use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{
    EndMethod, EndProof, Evidence, ItemKind, ItemState, ReceiptItem, StopFindings, StopInfo,
};
use allstop_core::record::{Attachment, CallOutcome, SessionRecord, StartedCall, StartedCallKind};
use allstop_core::{
    CallId, Cause, CauseKind, Effect, Extent, Message, Receipt, SessionId, StopId, StopReason,
    Timestamp, TurnNumber, Usage,
};
use allstop_log::{MemoryLog, SessionWriter};
use allstop_process::identity_of;

pub(super) const DAY_MS: i64 = 86_400_000;

pub(super) fn at(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(ms)
}

pub(super) fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage {
        input_tokens,
        cached_input_tokens: 0,
        cache_write_input_tokens: 0,
        output_tokens,
        estimated: false,
    }
}

pub(super) async fn open(log: &MemoryLog, id: &str) -> SessionWriter {
    let id = SessionId::from(id);
    let log = Arc::new(log.clone());
    SessionWriter::create(log, id, at(0), "/home/me/project\u{1b}[2J", None)
        .await
        .unwrap()
}

pub(super) fn started(turn: u32, ms: i64, input: &str) -> SessionRecord {
    SessionRecord::TurnStarted {
        turn: TurnNumber(turn),
        at: at(ms),
        input: input.into(),
        images: Vec::new(),
        owner: None,
        message: None,
        origin: allstop_core::record::TurnOrigin::User,
        reported: Vec::new(),
    }
}

pub(super) fn call(turn: u32, id: &str, name: &str, kind: StartedCallKind) -> SessionRecord {
    let (id, name) = (CallId::from(id), name.into());
    SessionRecord::CallStarted {
        turn: TurnNumber(turn),
        call: StartedCall { id, name, kind },
        at: at(0),
    }
}

pub(super) fn model_call(turn: u32) -> [SessionRecord; 2] {
    let kind = StartedCallKind::Model {
        reserved_tokens: 100,
    };
    let finished = SessionRecord::CallFinished {
        turn: TurnNumber(turn),
        id: CallId::from("step_1"),
        outcome: CallOutcome::Succeeded,
        usage: Some(usage(100, 20)),
        finish: None,
        exit_code: None,
        result: None,
    };
    [call(turn, "step_1", "gpt-x", kind), finished]
}

pub(super) fn tool_call(turn: u32, id: &str, command: &str, effect: Effect) -> SessionRecord {
    let arguments = serde_json::json!({ "command": command }).into();
    call(
        turn,
        id,
        "shell",
        StartedCallKind::Tool { arguments, effect },
    )
}

pub(super) fn committed(turn: u32) -> SessionRecord {
    let answer = Message::Assistant {
        text: "hello".into(),
        tool_calls: Vec::new(),
    };
    SessionRecord::TurnCommitted {
        turn: TurnNumber(turn),
        at: at(1_000),
        messages: vec![Arc::new(Message::user("hi")), Arc::new(answer)],
        usage: usage(100, 20),
    }
}

pub(super) fn cancelled(turn: u32) -> SessionRecord {
    let cause = Cause::new(CauseKind::User).detail("ctrl-c").by("cli");
    let request = StopInfo {
        stop_id: StopId::from("stop"),
        target: format!("session/s/turn/{turn}").into(),
        extent: Extent::Turn,
        cause: cause.clone(),
        requested_at: at(0),
    };
    let state = ItemState::Stopped {
        how: EndMethod::Sigterm,
        evidence: Evidence::verified(EndProof::ProcessTreeEmpty),
        after_ms: std::time::Duration::from_millis(11).into(),
    };
    let findings = StopFindings {
        items: [ReceiptItem::new(
            ItemKind::ToolCall,
            "call_1",
            "shell",
            state,
        )]
        .into(),
        elapsed: std::time::Duration::from_millis(14),
    };
    SessionRecord::TurnStopped {
        turn: TurnNumber(turn),
        at: at(2 * DAY_MS),
        reason: StopReason::Cancelled,
        cause,
        receipt: Some(Arc::new(Receipt::of_stop(request, findings))),
        kept: Vec::new(),
        usage: Usage::default(),
    }
}

pub(super) fn background(id: &str, turn: u32, process: Option<ProcessIdentity>) -> SessionRecord {
    SessionRecord::BackgroundStarted {
        id: id.into(),
        turn: TurnNumber(turn),
        call_id: CallId::from(id.replace("bg", "call")),
        name: "npm run dev".into(),
        kind: allstop_core::record::BackgroundKind::Shell,
        attachment: Attachment::Attached,
        keeper: process,
        process: None,
        marker: None,
        output: Some("/tmp/out.log".into()),
    }
}

pub(super) fn this_process() -> ProcessIdentity {
    identity_of(std::process::id()).unwrap()
}

pub(super) fn no_process() -> ProcessIdentity {
    ProcessIdentity {
        start_ticks: 1,
        ..this_process()
    }
}

/// Writes a session that contains every reported fact.
pub(super) async fn eventful(log: &MemoryLog) -> SessionWriter {
    let mut session = open(log, "01JEVENTFUL").await;
    let mut records = vec![started(1, 0, "hi")];
    records.extend(model_call(1));
    records.push(committed(1));
    records.push(started(2, DAY_MS, "deploy it,\nplease \u{1b}[31m"));
    records.extend(model_call(2));
    records.push(tool_call(2, "call_1", "make deploy", Effect::Irreversible));
    records.push(tool_call(2, "call_2", "cat log", Effect::ReadOnly));
    records.push(background("bg_1", 2, Some(this_process())));
    records.push(background("bg_2", 2, Some(no_process())));
    records.push(background("bg_3", 2, None));
    records.push(background("bg_4", 2, Some(this_process())));
    records.push(SessionRecord::BackgroundDetached { id: "bg_1".into() });
    records.push(SessionRecord::BackgroundEnded {
        id: "bg_4".into(),
        state: ItemState::Finished { after_ms: None },
        exit_code: Some(3),
        usage: None,
        answer: None,
    });
    for id in ["call_1", "call_2"] {
        records.push(SessionRecord::CallFinished {
            turn: TurnNumber(2),
            id: CallId::from(id),
            outcome: CallOutcome::Unknown,
            usage: None,
            finish: None,
            exit_code: None,
            result: None,
        });
    }
    records.push(cancelled(2));
    session.append(records).await.unwrap();
    session
}
