//! Any records as the log of a session. The engine applies each record, or refuses it and does not change the state.
//! The invariants of the engine must hold after each record.
#![no_main]

use std::sync::Arc;

use allstop_core::receipt::{EndMethod, ItemState};
use allstop_core::record::{Attachment, CallOutcome, SessionRecord, StartedCall, StartedCallKind};
use allstop_core::turn::SessionState;
use allstop_core::{
    Cause, CauseKind, Effect, Images, Message, StopReason, Timestamp, ToolCall, ToolResult,
    TurnNumber, Usage,
};
use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

/// Maximum number of records of a session. This is enough for a few turns, and few enough for a quick run.
const RECORDS_MAX: usize = 64;

/// A record that needs only a few bytes of input. Numbers and ids are small, so that they often match.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Event {
    Opened,
    TurnStarted {
        turn: Turn,
    },
    ModelStarted {
        turn: Turn,
        id: u8,
    },
    ToolStarted {
        turn: Turn,
        id: u8,
        malformed: bool,
    },
    Finished {
        turn: Turn,
        id: u8,
        how: u8,
        cost: Option<u64>,
    },
    Committed {
        turn: Turn,
        messages: [Said; 4],
        cost: u64,
    },
    Stopped {
        turn: Turn,
        reason: u8,
        kept: Option<[Said; 3]>,
        cost: u64,
    },
    Background {
        id: u8,
        what: Background,
    },
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Background {
    Started,
    Detached,
    Ended,
}

/// Number of a turn. Most values stand for the legal number.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Turn {
    Current,
    NextAction,
    Any(u32),
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Said {
    User,
    Answer,
    Asks { first: u8, second: Option<u8> },
    Result { id: u8 },
    Marker,
}

fuzz_target!(|events: Vec<Event>| {
    let mut state = SessionState::new();
    let mut taken = Vec::new();
    for event in events.into_iter().take(RECORDS_MAX) {
        let record = record(event, state.turns().len());
        let before = state.clone();
        let checked = state.check([&record]);
        let applied = state.apply(&record);
        assert_eq!(checked, applied, "the check differs from the result");
        if applied.is_err() {
            assert_eq!(state, before, "a refused record changed the state");
            continue;
        }
        taken.push(record);
        check_step(&before, &state);
        check_recovery(&state);
    }
    assert_eq!(SessionState::new().check(&taken), Ok(()));
    assert_eq!(SessionState::fold(&taken).as_ref(), Ok(&state));
});

/// Checks the invariants between two consecutive states.
fn check_step(before: &SessionState, now: &SessionState) {
    now.conversation().check().expect("the history is valid");
    assert!(now.metered().total_tokens() >= before.metered().total_tokens());
    assert!(
        now.conversation()
            .messages
            .starts_with(&before.conversation().messages)
    );
    let (open, ended) = now
        .turns()
        .split_last()
        .map_or((None, now.turns()), |(last, rest)| (Some(last), rest));
    assert!(
        ended.iter().all(|turn| turn.ending.is_some()),
        "two turns are open"
    );
    let is_open = open.is_some_and(|last| last.ending.is_none());
    assert_eq!(now.open_turn().is_some(), is_open);
    for (turn, number) in now.turns().iter().zip(1..) {
        assert_eq!(turn.turn, TurnNumber(number));
    }
    // A turn that has ended never changes again.
    let old = before
        .turns()
        .iter()
        .filter(|turn| turn.ending.is_some())
        .count();
    assert_eq!(now.turns()[..old], before.turns()[..old]);
    if now.conversation() != before.conversation() {
        assert!(
            now.open_turn().is_none(),
            "a running turn changed the conversation"
        );
    }
}

/// Checks a crash in this state: it must be recovered, and only once.
fn check_recovery(state: &SessionState) {
    let at = Timestamp::from_unix_ms(1);
    let records = state.recovery_records(at);
    assert_eq!(records.is_empty(), state.open_turn().is_none());
    let mut recovered = state.clone();
    for record in &records {
        recovered.apply(record).expect("recovery is legal");
    }
    assert_eq!(recovered.conversation(), state.conversation());
    assert!(recovered.open_turn().is_none());
    assert_eq!(recovered.recovery_records(at), []);
}

fn record(event: Event, turns: usize) -> SessionRecord {
    let at = Timestamp::from_unix_ms(0);
    let turns = u32::try_from(turns).expect("they are few");
    let number = |turn| {
        TurnNumber(match turn {
            Turn::Current => turns,
            Turn::NextAction => turns + 1,
            Turn::Any(number) => number,
        })
    };
    match event {
        Event::Opened => SessionRecord::SessionOpened {
            session_id: "s".into(),
            at,
            folder: "/".into(),
        },
        Event::TurnStarted { turn } => SessionRecord::TurnStarted {
            turn: number(turn),
            at,
            input: "go".into(),
            images: Vec::new(),
            owner: None,
            message: None,
            origin: allstop_core::record::TurnOrigin::User,
            reported: Vec::new(),
        },
        Event::ModelStarted { turn, id } => {
            let kind = StartedCallKind::Model {
                reserved_tokens: u64::MAX,
            };
            SessionRecord::CallStarted {
                turn: number(turn),
                call: started(id, kind),
                at,
            }
        }
        Event::ToolStarted {
            turn,
            id,
            malformed,
        } => {
            let arguments = if malformed {
                allstop_core::message::Arguments::Malformed("{".into())
            } else {
                json!({}).into()
            };
            let kind = StartedCallKind::Tool {
                arguments,
                effect: Effect::Irreversible,
            };
            SessionRecord::CallStarted {
                turn: number(turn),
                call: started(id, kind),
                at,
            }
        }
        Event::Finished {
            turn,
            id,
            how,
            cost,
        } => SessionRecord::CallFinished {
            turn: number(turn),
            id: call_id(id),
            outcome: pick(how, &OUTCOMES),
            usage: cost.map(usage),
            finish: None,
            exit_code: None,
            result: None,
        },
        Event::Committed {
            turn,
            messages,
            cost,
        } => SessionRecord::TurnCommitted {
            turn: number(turn),
            at,
            messages: messages.into_iter().map(said).collect(),
            usage: usage(cost),
        },
        Event::Stopped {
            turn,
            reason,
            kept,
            cost,
        } => SessionRecord::TurnStopped {
            turn: number(turn),
            at,
            reason: pick(reason, &REASONS),
            cause: Cause::new(CauseKind::User),
            receipt: None,
            kept: kept.into_iter().flatten().map(said).collect(),
            usage: usage(cost),
        },
        Event::Background { id, what } => background(what, id, TurnNumber(turns)),
    }
}

fn background(what: Background, id: u8, turn: TurnNumber) -> SessionRecord {
    let (call_id, id) = (call_id(id), format!("bg_{id}").into());
    match what {
        Background::Started => SessionRecord::BackgroundStarted {
            id,
            turn,
            call_id,
            name: "server".into(),
            kind: allstop_core::record::BackgroundKind::Shell,
            attachment: Attachment::Attached,
            process: None,
            keeper: None,
            marker: None,
            output: None,
        },
        Background::Detached => SessionRecord::BackgroundDetached { id },
        Background::Ended => SessionRecord::BackgroundEnded {
            id,
            state: ItemState::Unknown {
                how: EndMethod::Dropped,
                after_ms: None,
            },
            exit_code: None,
            usage: None,
            answer: None,
        },
    }
}

const OUTCOMES: [CallOutcome; 6] = [
    CallOutcome::Succeeded,
    CallOutcome::Failed,
    CallOutcome::Denied,
    CallOutcome::Stopped,
    CallOutcome::TimedOut,
    CallOutcome::Unknown,
];

const REASONS: [StopReason; 3] = [
    StopReason::Cancelled,
    StopReason::Error,
    StopReason::Completed,
];

fn pick<T: Copy>(at: u8, all: &[T]) -> T {
    all[usize::from(at) % all.len()]
}

fn call_id(id: u8) -> allstop_core::CallId {
    format!("c{}", id % 8).into()
}

fn started(id: u8, kind: StartedCallKind) -> StartedCall {
    StartedCall {
        id: call_id(id),
        name: "x".into(),
        kind,
    }
}

fn usage(tokens: u64) -> Usage {
    Usage {
        input_tokens: tokens,
        cached_input_tokens: 0,
        cache_write_input_tokens: 0,
        output_tokens: tokens / 2,
        estimated: false,
    }
}

fn said(said: Said) -> Arc<Message> {
    let call = |id| ToolCall {
        id: call_id(id),
        name: "x".into(),
        arguments: json!({}).into(),
    };
    Arc::new(match said {
        Said::User => Message::user("go"),
        Said::Answer => Message::Assistant {
            text: "done".into(),
            tool_calls: Vec::new(),
        },
        Said::Asks { first, second } => Message::Assistant {
            text: "".into(),
            tool_calls: [first].into_iter().chain(second).map(call).collect(),
        },
        Said::Result { id } => Message::Tool(ToolResult {
            call_id: call_id(id),
            content: "done".into(),
            is_error: false,
            images: Images::default(),
        }),
        Said::Marker => Message::StopMarker {
            text: "stopped".into(),
        },
    })
}
