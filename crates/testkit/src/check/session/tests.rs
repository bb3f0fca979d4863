//! It can fail: what real runs left, with one thing in it made wrong by hand. Each checker has to see its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::receipt::ItemKind;
use allstop_core::record::SessionRecord as R;
use allstop_core::{Message, StopReason, Timestamp, TurnNumber};
use allstop_session::{MessageOutcome, SessionEventKind};

use super::SESSION_CHECKERS;
use crate::explore::{Aftermath, Lived, Scenario, Way, disturbed, undisturbed};
use crate::scenarios;

/// The checker, the scenario, where and how it is disturbed, and what is made wrong in what it left.
type Row = (
    &'static str,
    &'static str,
    Option<(u32, Way)>,
    fn(&mut Aftermath),
);

const ROWS: [Row; 12] = [
    ("one_outcome", "queue", None, |left| {
        let first = sent(left, 0).outcome.clone();
        sent(left, 1).outcome = first;
    }),
    ("one_outcome", "queue", None, |left| {
        sent(left, 1).outcome = None;
    }),
    ("superseded", "interrupt_in_mid_stream", None, |left| {
        *kept(left) = Vec::new();
    }),
    ("superseded", "replace_in_a_tool", None, |left| {
        let text = "work".into();
        *kept(left) = vec![Arc::new(Message::User { text })];
    }),
    ("superseded", "replace_in_a_tool", None, |left| {
        outcome(left, 0).stop_reason = StopReason::Completed;
        left.points.clear();
    }),
    ("stale_reply", "interrupt_in_mid_stream", None, |left| {
        let events = &mut left.session.as_mut().expect("a session").events;
        let is_text = |kind: &SessionEventKind| {
            matches!(kind, SessionEventKind::Live(AgentEvent::TextDelta { .. }))
        };
        let early = events.iter().find(|(_, event)| is_text(&event.kind));
        let early = early.cloned().expect("something was said");
        events.push((left.over, early.1));
    }),
    ("stopped_message", "queue", Some((30, Way::USER)), |left| {
        outcome(left, 0).stop_reason = StopReason::Completed;
    }),
    ("closed_barrier", "queue", Some((30, Way::Close)), |left| {
        let accepted = left.asked[0].accepted;
        left.over = left.over.max(accepted + 2);
        live(left, ItemKind::ModelCall, accepted + 1);
    }),
    ("background_once", "background_note", None, |left| {
        let records = &mut left.records_after_next;
        let ended = records
            .iter()
            .find(|record| matches!(record, R::BackgroundEnded { .. }));
        let again = ended.cloned().expect("it has ended");
        records.push(again);
    }),
    ("true_idle", "background_note", None, |left| {
        live(left, ItemKind::Background, 0);
    }),
    ("undone", "queue", None, |left| {
        left.records.push(R::TurnUndone {
            turn: TurnNumber(3),
            at: Timestamp::from_unix_ms(0),
        });
    }),
    (
        "waiter_gone",
        "wait_for_background",
        Some((30, Way::Drop)),
        |left| {
            left.records.remove(2);
        },
    ),
];

fn sent(left: &mut Aftermath, number: usize) -> &mut crate::explore::SentMessage {
    &mut left.session.as_mut().expect("a session").sent[number]
}

fn outcome(left: &mut Aftermath, number: usize) -> &mut MessageOutcome {
    let (_, outcome) = sent(left, number).outcome.as_mut().expect("it has one");
    Arc::make_mut(outcome)
}

/// What the first turn that was stopped left.
fn kept(left: &mut Aftermath) -> &mut Vec<Arc<Message>> {
    let stopped = left.records.iter_mut().find_map(|record| match record {
        R::TurnStopped { kept, .. } => Some(kept),
        _ => None,
    });
    stopped.expect("a turn was stopped")
}

/// Something begins then, and never ends.
fn live(left: &mut Aftermath, kind: ItemKind, began: u64) {
    left.lived.push(Lived {
        kind,
        id: "seeded".into(),
        began,
        ended: None,
    });
}

fn scenario(name: &str) -> Scenario {
    let name = format!("session/{name}");
    let mut all = scenarios::sessions().into_iter();
    all.find(|scenario| **scenario.name() == *name)
        .expect("there is such a scenario")
}

#[test]
fn each_checker_sees_what_is_made_wrong_and_nothing_else() {
    for (number, (name, of, disturbance, make_wrong)) in ROWS.into_iter().enumerate() {
        let scenario = scenario(of);
        let whole = undisturbed(&scenario);
        let mut left = match disturbance {
            Some((point, way)) => disturbed(&scenario, point, way),
            None => whole.clone(),
        };
        let checker = SESSION_CHECKERS.iter().find(|checker| checker.name == name);
        let checker = checker.expect("a checker of this name");
        assert_eq!(
            (checker.check)(&left, &whole),
            Ok(()),
            "row {number}, {name} of {of}"
        );
        make_wrong(&mut left);
        let seen = (checker.check)(&left, &whole);
        assert!(seen.is_err(), "row {number}: {name} sees nothing in {of}");
    }
}

#[test]
fn each_checker_has_a_row() {
    let with_rows: BTreeSet<_> = ROWS.iter().map(|(name, ..)| *name).collect();
    let all: BTreeSet<_> = SESSION_CHECKERS
        .iter()
        .map(|checker| checker.name)
        .collect();
    assert_eq!(with_rows, all);
}
