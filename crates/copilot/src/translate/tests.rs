//! Scripted events of a session, and the resulting events of the protocol.

use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::ids::QuestionId;
use allstop_core::message::Arguments;
use allstop_core::record::{CallOutcome, SessionRecord, StartedCall, StartedCallKind, TurnOrigin};
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
        facts: Arc::default(),
        context_window: 1_000,
        model: None,
        reasoning_effort: None,
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
        images: Vec::new(),
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

fn recorded(record: SessionRecord) -> SessionEvent {
    SessionEvent {
        turn: None,
        message: None,
        kind: SessionEventKind::Recorded {
            version: Version(3),
            record: Arc::new(record),
        },
    }
}

fn step_began() -> SessionEvent {
    recorded(SessionRecord::CallStarted {
        turn: TurnNumber(1),
        call: StartedCall {
            id: CallId::new("step_1"),
            name: "m".into(),
            kind: StartedCallKind::Model { reserved_tokens: 1 },
        },
        at: at(),
    })
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
        change: None,
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
        lost: None,
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

fn cancelled(id: &str) -> HostEvent {
    HostEvent::ExternalCompleted {
        request_id: format!("r-{id}").into(),
        is_cancelled: true,
    }
}

fn abort_requested(turn: u32) -> HostEvent {
    HostEvent::AbortRequested {
        turn: TurnNumber(turn),
        reason: "user_initiated".into(),
    }
}

fn turn_stopped() -> SessionEvent {
    recorded(SessionRecord::TurnStopped {
        turn: TurnNumber(1),
        at: at(),
        reason: StopReason::Cancelled,
        cause: Cause::new(CauseKind::User),
        kept: Vec::new(),
        receipt: None,
        usage: Usage::default(),
    })
}

/// Returns the events of a turn with these calls, from the start of the turn up to the starts of the calls.
fn begun(translator: &mut EventTranslator, ids: &[&str]) -> Vec<CopilotEvent> {
    let mut events = translator.session_event(&turn_started(), at());
    events.extend(translator.session_event(&step_began(), at()));
    let answer = AgentEvent::StepAnswered {
        step: 1,
        text: "I wait.".into(),
        finish: FinishReason::Done,
        calls: ids.iter().map(|id| call(id)).collect(),
    };
    let requests = ids.iter().map(|id| requested(id));
    let all = [answer].into_iter().chain(requests);
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
            "pending_messages.modified",
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
    let requests = &events[3].data["toolRequests"];
    assert_eq!(requests[0]["toolCallId"], "a");
    // The parent of each persisted event is the preceding persisted event.
    let persisted: Vec<_> = events.iter().filter(|event| !event.ephemeral).collect();
    for pair in persisted.windows(2) {
        assert_eq!(pair[1].parent_id, Some(pair[0].id), "{}", pair[1].kind);
    }
}

/// A request for a tool can arrive before the start of its call, through a different channel.
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
    events.extend(translator.host_event(&abort_requested(1), at()));
    events.extend(translator.host_event(&cancelled("a"), at()));
    let cause = Cause::new(CauseKind::User);
    let heard = AgentEvent::StopHeard {
        cause: cause.clone(),
    };
    events.extend(translator.session_event(&live(heard), at()));
    let stopped = ended(StopReason::Cancelled, Some(cause));
    events.extend(translator.session_event(&live(stopped), at()));
    // A result after the end of the turn is not sent.
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

/// After the request of an abort, the turn may still complete, or another turn may run.
#[test]
fn abort_is_sent_only_for_a_stopped_turn() {
    let mut translator = translator();
    let mut events = begun(&mut translator, &["a"]);
    events.extend(translator.host_event(&external("a"), at()));
    // An abort of a later turn, whose events this client has not received yet.
    events.extend(translator.host_event(&abort_requested(2), at()));
    events.extend(translator.host_event(&cancelled("a"), at()));
    events.extend(translator.session_event(&live(finished("a")), at()));
    events.extend(translator.host_event(&abort_requested(1), at()));
    events.extend(translator.session_event(&live(ended(StopReason::Completed, None)), at()));
    assert!(!kinds(&events).contains(&"abort"), "{:?}", kinds(&events));

    let mut translator = self::translator();
    let mut events = begun(&mut translator, &["a"]);
    events.extend(translator.host_event(&external("a"), at()));
    events.extend(translator.host_event(&abort_requested(1), at()));
    events.extend(translator.host_event(&cancelled("a"), at()));
    let last: Vec<_> = kinds(&events).into_iter().rev().take(2).collect();
    assert_eq!(last, ["external_tool.completed", "abort"]);
}

/// A turn that is stopped at its start has no live event. The expected events are the events of the history.
#[test]
fn turn_stopped_at_its_beginning_has_a_step_and_an_abort() {
    let mut translator = translator();
    let cause = Some(Cause::new(CauseKind::User));
    let mut events = Vec::new();
    for event in [
        turn_started(),
        step_began(),
        turn_stopped(),
        live(ended(StopReason::Cancelled, cause)),
    ] {
        events.extend(translator.session_event(&event, at()));
    }
    assert_eq!(
        kinds(&events),
        [
            "pending_messages.modified",
            "user.message",
            "assistant.turn_start",
            "abort",
            "assistant.turn_end"
        ]
    );
}

/// The request for a call of the next turn can arrive before the end of the running turn.
#[test]
fn request_of_the_next_turn_is_not_ended_with_this_one() {
    let mut translator = translator();
    let mut events = begun(&mut translator, &["a"]);
    events.extend(translator.session_event(&live(finished("a")), at()));
    // The next turn may have a call with an equal id, or with another id.
    for id in ["a", "b"] {
        events.extend(translator.host_event(&external(id), at()));
    }
    events.extend(translator.session_event(&live(ended(StopReason::Completed, None)), at()));
    assert!(!kinds(&events).contains(&"external_tool.requested"));
    let completions = kinds(&events).into_iter();
    assert_eq!(
        completions
            .filter(|kind| *kind == "tool.execution_complete")
            .count(),
        1
    );
    let events = begun(&mut translator, &["a", "b"]);
    let requests = kinds(&events).into_iter();
    assert_eq!(
        requests
            .filter(|kind| *kind == "external_tool.requested")
            .count(),
        2
    );
}

/// A client that was too slow has the records of later turns before live events of earlier turns.
#[test]
fn live_events_of_the_past_are_left_out() {
    let mut translator = translator();
    begun(&mut translator, &["a"]);
    let mut next = turn_started();
    if let SessionEventKind::Recorded { record, .. } = &mut next.kind
        && let SessionRecord::TurnStarted { turn, .. } = Arc::make_mut(record)
    {
        *turn = TurnNumber(2);
    }
    let events = translator.session_event(&next, at());
    assert_eq!(
        kinds(&events),
        [
            "tool.execution_complete",
            "assistant.turn_end",
            "pending_messages.modified",
            "user.message"
        ]
    );
    for late in [finished("a"), ended(StopReason::Completed, None)] {
        let event = SessionEvent {
            turn: Some(TurnNumber(1)),
            ..live(late)
        };
        assert!(translator.session_event(&event, at()).is_empty());
    }
}

#[test]
fn session_idle_is_sent_once_for_each_turn() {
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
fn permission_answers_name_the_answerer() {
    let mut translator = translator();
    for (answer, expected) in [
        (Some(PermissionAnswer::AllowOnce), "approved"),
        (Some(PermissionAnswer::AllowForSession), "approved"),
        (
            Some(PermissionAnswer::deny()),
            "denied-interactively-by-user",
        ),
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
