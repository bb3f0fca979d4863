//! Scripted events of a session, and the events of the protocol that they become.

use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::ids::QuestionId;
use allstop_core::message::Arguments;
use allstop_core::record::{CallOutcome, SessionRecord, TurnOrigin};
use allstop_core::{
    CallId, Cause, CauseKind, Effect, FinishReason, MessageId, SessionId, StopReason, Timestamp,
    ToolCall, TurnNumber, Usage,
};
use allstop_log::Version;
use allstop_session::{SessionEvent, SessionEventKind};
use allstop_tools::PermissionAnswer;
use serde_json::json;

use super::*;

fn translator() -> EventTranslator {
    EventTranslator::new(TranslatorOptions {
        session: SessionId::new("s"),
        streaming: true,
        version: "1".into(),
        model: None,
        nonce: "n".into(),
    })
}

fn at() -> Timestamp {
    Timestamp::from_unix_ms(1)
}

fn live(event: AgentEvent) -> SessionEvent {
    SessionEvent {
        turn: None,
        message: None,
        kind: SessionEventKind::Live(event),
    }
}

fn turn_started() -> SessionEvent {
    let record = SessionRecord::TurnStarted {
        turn: TurnNumber(1),
        at: at(),
        input: "go".into(),
        owner: None,
        message: Some(MessageId::new("m")),
        origin: TurnOrigin::User,
        reported: Vec::new(),
    };
    SessionEvent {
        turn: None,
        message: None,
        kind: SessionEventKind::Recorded {
            version: Version(2),
            record: Arc::new(record),
        },
    }
}

fn call(id: &str) -> ToolCall {
    ToolCall {
        id: CallId::new(id),
        name: "wait".into(),
        arguments: Arguments::Json(Arc::new(json!({ "for": id }))),
    }
}

fn requested(id: &str) -> AgentEvent {
    let ToolCall {
        id: call_id,
        name,
        arguments,
    } = call(id);
    AgentEvent::ToolRequested {
        call_id,
        name,
        arguments,
    }
}

fn started(id: &str) -> AgentEvent {
    AgentEvent::ToolStarted {
        call_id: CallId::new(id),
        name: "wait".into(),
        effect: Effect::Irreversible,
    }
}

fn finished(id: &str) -> AgentEvent {
    AgentEvent::ToolFinished {
        call_id: CallId::new(id),
        name: "wait".into(),
        outcome: CallOutcome::Succeeded,
        after_ms: 1,
        content: "waited".into(),
        exit_code: None,
        left: None,
    }
}

fn ended(stop_reason: StopReason, cause: Option<Cause>) -> AgentEvent {
    AgentEvent::TurnEnded {
        turn: TurnNumber(1),
        stop_reason,
        cause,
        usage: Usage::default(),
        unfinished: Vec::new(),
    }
}

fn external(id: &str) -> HostEvent {
    HostEvent::ExternalRequested(ExternalCall {
        request_id: format!("r-{id}").into(),
        call_id: id.into(),
        tool: "wait".into(),
        arguments: Arc::new(json!({})),
        trace: None,
    })
}

/// The events of a turn with these calls, up to their starts.
fn begun(translator: &mut EventTranslator, ids: &[&str]) -> Vec<CopilotEvent> {
    let mut events = translator.session_event(&turn_started(), at());
    let step = AgentEvent::StepStarted {
        step: 1,
        model: "m".into(),
    };
    let answer = AgentEvent::StepAnswered {
        step: 1,
        text: "I wait.".into(),
        finish: FinishReason::Done,
        calls: ids.iter().map(|id| call(id)).collect(),
    };
    let requests = ids.iter().map(|id| requested(id));
    let all = [step, answer].into_iter().chain(requests);
    for event in all.chain(ids.iter().map(|id| started(id))) {
        events.extend(translator.session_event(&live(event), at()));
    }
    events
}

fn kinds(events: &[CopilotEvent]) -> Vec<&str> {
    events.iter().map(|event| event.kind).collect()
}

#[test]
fn events_of_a_call_have_the_order_that_the_sdks_know() {
    let mut translator = translator();
    let mut events = begun(&mut translator, &["a"]);
    events.extend(translator.host_event(&external("a"), at()));
    events.extend(translator.session_event(&live(finished("a")), at()));
    let completed = ended(StopReason::Completed, None);
    events.extend(translator.session_event(&live(completed), at()));
    assert_eq!(
        kinds(&events),
        [
            "user.message",
            "assistant.turn_start",
            "assistant.message",
            "tool.execution_start",
            "external_tool.requested",
            "external_tool.completed",
            "tool.execution_complete",
            "assistant.turn_end",
        ]
    );
    let requests = &events[2].data["toolRequests"];
    assert_eq!(requests[0]["toolCallId"], "a");
    // Each persisted event names the one before it.
    let persisted: Vec<_> = events.iter().filter(|event| !event.ephemeral).collect();
    for pair in persisted.windows(2) {
        assert_eq!(pair[1].parent_id, Some(pair[0].id), "{}", pair[1].kind);
    }
}

/// Requests and starts come on two ways.
#[test]
fn request_for_a_tool_waits_for_the_start_of_its_call() {
    let mut translator = translator();
    begun(&mut translator, &[]);
    translator.session_event(&live(requested("a")), at());
    assert!(translator.host_event(&external("a"), at()).is_empty());
    let events = translator.session_event(&live(started("a")), at());
    assert_eq!(kinds(&events), ["external_tool.requested"]);
}

#[test]
fn stop_completes_each_call_and_each_request_once() {
    let mut translator = translator();
    let mut events = begun(&mut translator, &["a", "b", "c"]);
    for id in ["a", "b"] {
        events.extend(translator.host_event(&external(id), at()));
    }
    events.extend(translator.session_event(&live(finished("b")), at()));
    let reason = "user_initiated".into();
    events.extend(translator.host_event(&HostEvent::AbortRequested { reason }, at()));
    let request_id = "r-a".into();
    events.extend(translator.host_event(&HostEvent::ExternalCompleted { request_id }, at()));
    let cause = Cause::new(CauseKind::User);
    let heard = AgentEvent::StopHeard {
        cause: cause.clone(),
    };
    events.extend(translator.session_event(&live(heard), at()));
    let stopped = ended(StopReason::Cancelled, Some(cause));
    events.extend(translator.session_event(&live(stopped), at()));
    // A result that comes behind the end of the turn is not told.
    events.extend(translator.session_event(&live(finished("a")), at()));
    let ids_of = |kind: &str, name: &str| -> Vec<String> {
        let of_kind = events.iter().filter(|event| event.kind == kind);
        of_kind
            .map(|event| event.data[name].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(
        ids_of("tool.execution_start", "toolCallId"),
        ["a", "b", "c"]
    );
    assert_eq!(
        ids_of("tool.execution_complete", "toolCallId"),
        ["b", "a", "c"]
    );
    assert_eq!(
        ids_of("external_tool.requested", "requestId"),
        ["r-a", "r-b"]
    );
    assert_eq!(
        ids_of("external_tool.completed", "requestId"),
        ["r-b", "r-a"]
    );
    assert_eq!(
        kinds(&events)
            .iter()
            .filter(|kind| **kind == "abort")
            .count(),
        1
    );
    assert_eq!(kinds(&events).last(), Some(&"assistant.turn_end"));
    let idle = SessionEvent {
        turn: None,
        message: None,
        kind: SessionEventKind::SessionIdle {
            stopped: true,
            detached: Vec::new(),
        },
    };
    let idle = translator.session_event(&idle, at());
    assert_eq!(idle[0].data, json!({ "aborted": true }));
}

#[test]
fn failure_is_an_error_and_no_abort() {
    let mut translator = translator();
    begun(&mut translator, &[]);
    let cause = Cause::new(CauseKind::Deadline).detail("turn deadline of 2s");
    let events = translator.session_event(&live(ended(StopReason::Timeout, Some(cause))), at());
    assert_eq!(kinds(&events), ["assistant.turn_end", "session.error"]);
    assert_eq!(events[1].data["errorType"], "timeout");
    assert_eq!(events[1].data["originatingMessageId"], "m");
}

/// It may be asked for before its turn has begun, or without one.
#[test]
fn abort_is_told_once_and_only_of_a_turn_that_runs() {
    let mut translator = translator();
    let abort = || HostEvent::AbortRequested {
        reason: "user_initiated".into(),
    };
    assert!(translator.host_event(&abort(), at()).is_empty());
    begun(&mut translator, &[]);
    assert_eq!(kinds(&translator.host_event(&abort(), at())), ["abort"]);
    assert!(translator.host_event(&abort(), at()).is_empty());
    let cause = Some(Cause::new(CauseKind::User));
    translator.session_event(&live(ended(StopReason::Cancelled, cause)), at());
    assert!(translator.host_event(&abort(), at()).is_empty());
}

#[test]
fn session_idle_is_told_once_for_each_turn() {
    let mut translator = translator();
    let idle = SessionEvent {
        turn: None,
        message: None,
        kind: SessionEventKind::SessionIdle {
            stopped: false,
            detached: Vec::new(),
        },
    };
    let mut events = Vec::new();
    for _turn in 0..2 {
        for event in [turn_started(), idle.clone(), idle.clone()] {
            events.extend(translator.session_event(&event, at()));
        }
    }
    let idles = kinds(&events)
        .into_iter()
        .filter(|kind| *kind == "session.idle");
    assert_eq!(idles.count(), 2);
}

#[test]
fn answers_to_permission_questions_say_who_gave_them() {
    let mut translator = translator();
    for (answer, expected) in [
        (Some(PermissionAnswer::AllowOnce), "approved"),
        (Some(PermissionAnswer::AllowForSession), "approved"),
        (Some(PermissionAnswer::Deny), "denied-interactively-by-user"),
        (
            Some(PermissionAnswer::Unanswered),
            "denied-no-approval-rule-and-could-not-request-from-user",
        ),
        (None, "cancelled"),
    ] {
        let event = SessionEvent {
            turn: None,
            message: None,
            kind: SessionEventKind::PermissionAnswered {
                id: QuestionId::new("q_1"),
                answer,
            },
        };
        let events = translator.session_event(&event, at());
        let data: Vec<_> = events.iter().map(|event| &event.data).collect();
        let expected = json!({ "requestId": "q_1", "result": { "kind": expected } });
        assert_eq!(data, [&expected]);
    }
}
