//! Observations of real runs in which a test has falsified one fact. Each checker must find the fact that was falsified
//! for this checker.

use std::collections::BTreeSet;
use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::message::ToolResult;
use allstop_core::receipt::ItemKind;
use allstop_core::record::SessionRecord as R;
use allstop_core::turn::SessionState;
use allstop_core::{Message, StopReason, Timestamp, TurnNumber};
use allstop_log::MemoryLog;
use allstop_session::{MessageOutcome, SessionEventKind};

use super::CHECKERS;
use super::records::appended;
use crate::drive::by_point::{Case, play, undisturbed};
use crate::observe::{
    APPEND, DeliveredFacts, MachineSnapshot, Moment, ObservedKill, ObservedWork, RunObservation,
    SentMessage,
};
use crate::scenarios;
use crate::stage::Scenario;
use crate::stop_method::StopMethod;

/// Run whose observation is falsified.
enum FalsifiedRun {
    Whole(&'static str),
    /// Run of this scenario that is stopped at the point with this number, by this method.
    Disturbed(&'static str, u32, StopMethod),
    /// Run of this scenario that its user stops at the point with this number. The observation also has a snapshot of a
    /// machine on which no process runs.
    WithSnapshot(&'static str, u32),
    /// Run that is killed in the middle.
    Killed(&'static str),
}

use FalsifiedRun::{Disturbed, Killed, Whole, WithSnapshot};

/// A checker, a run, and the change that falsifies the observation of the run.
type Row = (&'static str, FalsifiedRun, fn(&mut RunObservation));

const ROWS: [Row; 27] = [
    ("processes", WithSnapshot("parallel_tools", 60), |left| {
        left.snapshots[0].running.push("sleep 600".to_owned());
    }),
    ("connections", WithSnapshot("parallel_tools", 60), |left| {
        left.snapshots[0].connections = 1;
    }),
    ("killed", Killed("session/queue"), |left| {
        kill(left).failure = Some("it lives".to_owned());
    }),
    (
        "repeatable",
        Disturbed("session/queue", 30, StopMethod::USER),
        |left| {
            left.points[3].event = "another";
        },
    ),
    ("appended", Killed("session/queue"), |left| {
        left.records.pop();
    }),
    ("recovery", Killed("parallel_tools"), |left| {
        left.records_after_next.truncate(2);
    }),
    ("conversation", Killed("session/queue"), |left| {
        left.records
            .retain(|record| !matches!(record, R::TurnCommitted { .. }));
    }),
    ("durable_start", Killed("parallel_tools"), |left| {
        left.records
            .retain(|record| !matches!(record, R::CallStarted { .. }));
    }),
    ("usage", Killed("session/queue"), |left| {
        left.records
            .retain(|record| !matches!(record, R::CallFinished { .. }));
    }),
    ("endings", Killed("session/queue"), |left| {
        let again = left.records_after_next.last().cloned();
        left.records_after_next.extend(again);
    }),
    ("history", Killed("session/steer_between_steps"), |left| {
        let result = Message::Tool(ToolResult {
            call_id: "call_nobody_asked".into(),
            content: "done".into(),
            is_error: false,
            images: allstop_core::Images::default(),
        });
        left.notes.requests.push(vec![Arc::new(result)]);
    }),
    ("next_message", Killed("session/queue"), |left| {
        left.next = None;
    }),
    ("delivered_facts", Killed("session/queue"), |left| {
        left.delivered_facts.get_or_insert_default().newest_record = 1_000;
    }),
    ("delivered_facts", Whole("session/queue"), |left| {
        left.delivered_facts.as_mut().expect("a session").outcomes[0].reason = "error".to_owned();
    }),
    ("one_outcome", Killed("session/queue"), |left| {
        let again = left
            .records_after_next
            .iter()
            .find(|record| matches!(record, R::TurnStarted { .. }));
        let again = again.cloned().expect("a turn has started");
        left.records_after_next.push(again);
    }),
    ("one_outcome", Whole("session/queue"), |left| {
        let first = sent(left, 0).outcome.clone();
        sent(left, 1).outcome = first;
    }),
    ("one_outcome", Whole("session/queue"), |left| {
        sent(left, 1).outcome = None;
    }),
    (
        "superseded",
        Whole("session/interrupt_in_mid_stream"),
        |left| {
            *kept(left) = Vec::new();
        },
    ),
    ("superseded", Whole("session/replace_in_a_tool"), |left| {
        *kept(left) = vec![Arc::new(Message::user("work"))];
    }),
    ("superseded", Whole("session/replace_in_a_tool"), |left| {
        outcome(left, 0).stop_reason = StopReason::Completed;
        left.points.clear();
    }),
    (
        "stale_reply",
        Whole("session/interrupt_in_mid_stream"),
        |left| {
            let events = &mut left.session.as_mut().expect("a session").events;
            let is_text = |kind: &SessionEventKind| {
                matches!(kind, SessionEventKind::Live(AgentEvent::TextDelta { .. }))
            };
            let early = events.iter().find(|(_, event)| is_text(&event.kind));
            let early = early.cloned().expect("something was said");
            events.push((left.over, early.1));
        },
    ),
    (
        "stopped_message",
        Disturbed("session/queue", 30, StopMethod::USER),
        |left| {
            outcome(left, 0).stop_reason = StopReason::Completed;
        },
    ),
    (
        "closed_barrier",
        Disturbed("session/queue", 30, StopMethod::Close),
        |left| {
            let accepted = left.stops[0].accepted;
            left.over = left.over.max(accepted + 2);
            live(left, ItemKind::ModelCall, accepted + 1);
        },
    ),
    (
        "background_once",
        Whole("session/background_note"),
        |left| {
            let records = &mut left.records_after_next;
            let ended = records
                .iter()
                .find(|record| matches!(record, R::BackgroundEnded { .. }));
            let again = ended.cloned().expect("it has ended");
            records.push(again);
        },
    ),
    ("true_idle", Whole("session/background_note"), |left| {
        live(left, ItemKind::Background, 0);
    }),
    ("undone", Whole("session/queue"), |left| {
        left.records.push(R::TurnUndone {
            turn: TurnNumber(3),
            at: Timestamp::from_unix_ms(0),
        });
    }),
    (
        "waiter_gone",
        Disturbed("session/wait_for_background", 30, StopMethod::Drop),
        |left| {
            left.records.remove(2);
        },
    ),
];

fn kill(left: &mut RunObservation) -> &mut ObservedKill {
    left.kill.as_mut().expect("a killed process")
}

fn sent(left: &mut RunObservation, number: usize) -> &mut SentMessage {
    &mut left.session.as_mut().expect("a session").sent[number]
}

fn outcome(left: &mut RunObservation, number: usize) -> &mut MessageOutcome {
    let (_, outcome) = sent(left, number).outcome.as_mut().expect("it has one");
    Arc::make_mut(outcome)
}

/// Messages that the first stopped turn kept in the conversation.
fn kept(left: &mut RunObservation) -> &mut Vec<Arc<Message>> {
    let stopped = left.records.iter_mut().find_map(|record| match record {
        R::TurnStopped { kept, .. } => Some(kept),
        _ => None,
    });
    stopped.expect("a turn was stopped")
}

/// Adds work that begins at this position in the order of the notes, and never ends.
fn live(left: &mut RunObservation, kind: ItemKind, began: u64) {
    left.notes.work.push(ObservedWork {
        kind,
        id: "seeded".into(),
        began,
        ended: None,
    });
}

fn scenario(name: &str) -> Scenario {
    let mut all = scenarios::everything().into_iter();
    all.find(|scenario| **scenario.name() == *name)
        .expect("there is such a scenario")
}

impl FalsifiedRun {
    fn observe(&self) -> RunObservation {
        match *self {
            Self::Whole(name) => undisturbed(&scenario(name)),
            Self::Disturbed(name, point, method) => disturbed(&scenario(name), point, method),
            Self::WithSnapshot(name, point) => {
                let mut left = disturbed(&scenario(name), point, StopMethod::USER);
                let stop = left.stops.first().expect("it was stopped");
                left.snapshots.push(MachineSnapshot {
                    extent: stop.extent,
                    receipt: stop.answer.clone().map(|answer| answer.receipt),
                    running: Vec::new(),
                    background: Vec::new(),
                    connections: 0,
                });
                left
            }
            Self::Killed(name) => killed(undisturbed(&scenario(name))),
        }
    }
}

fn disturbed(scenario: &Scenario, point: u32, method: StopMethod) -> RunObservation {
    let whole = Arc::new(undisturbed(scenario));
    let played = play(&Case {
        scenario,
        log: Arc::new(MemoryLog::new()),
        stop: Some((point, method)),
        journal: None,
        undisturbed: Some(Arc::clone(&whole)),
    });
    played.expect("it can be done there")
}

/// Returns the observation as if the process had been killed just after the start of its last tool, or of its last
/// turn.
fn killed(whole: RunObservation) -> RunObservation {
    let is_start = |record: &R| matches!(record, R::TurnStarted { .. });
    let last = whole.points.iter().rposition(|point| match point.moment {
        Moment::Inside => point.event == "tool",
        Moment::After => point.event == APPEND && point.subject.contains("turn_started"),
        Moment::Before => false,
    });
    let points = whole.points[..=last.expect("a turn began")].to_vec();
    let len = whole.records_before + appended(&points);
    let records = whole.records[..len].to_vec();
    assert!(records.iter().any(is_start), "a turn is open");
    let mut state = SessionState::fold(&records).expect("records that fit");
    let recovered = state.recovery_records(Timestamp::from_unix_ms(1));
    for record in &recovered {
        state.apply(record).expect("a recovery that fits");
    }
    RunObservation {
        settings: whole.settings.clone(),
        records_before: whole.records_before,
        points,
        records_after_next: [records.as_slice(), &recovered].concat(),
        records,
        state: Some(state),
        next: whole.next,
        next_must: whole.next_must,
        delivered_facts: Some(DeliveredFacts::default()),
        undisturbed: Some(Arc::new(whole)),
        kill: Some(ObservedKill {
            recovered,
            failure: None,
        }),
        ..RunObservation::default()
    }
}

#[test]
fn each_checker_finds_its_falsified_fact() {
    for (number, (name, run, falsify)) in ROWS.into_iter().enumerate() {
        let mut left = run.observe();
        let checker = CHECKERS.iter().find(|checker| checker.name == name);
        let checker = checker.expect("a checker of this name");
        assert!(
            checker.applies(&left),
            "row {number}: {name} does not apply"
        );
        let seen = checker.check(&left);
        assert!(seen.is_none(), "row {number}: {seen:?} before the change");
        falsify(&mut left);
        let seen = checker.check(&left);
        assert!(seen.is_some(), "row {number}: {name} sees nothing");
    }
}

/// Source of the bugs that are seeded into an engine.
const BUGS: &str = include_str!("../../tests/seeded/bug.rs");

#[test]
fn each_checker_has_a_test() {
    let falsified: BTreeSet<_> = ROWS.iter().map(|(name, ..)| *name).collect();
    for checker in &CHECKERS {
        let name = checker.name;
        let has_bug = BUGS.contains(&format!("\"{name}\""));
        assert!(has_bug || falsified.contains(name), "{name}");
    }
}
