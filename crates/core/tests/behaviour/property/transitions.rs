//! Random sequences of events in the transition function of one turn.

use allstop_core::record::{CallOutcome, StartedCall, StartedCallKind};
use allstop_core::turn::{TurnEvent, TurnState};
use allstop_core::{CallId, Cause, CauseKind, Effect, StopReason, TurnNumber};
use proptest::prelude::*;
use serde_json::json;

use crate::driver::usage;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn transition_function_never_ends_a_turn_twice(
        events in prop::collection::vec((0..6_u8, 0..4_u8), 0..60),
    ) {
        let mut turn = TurnState::new(TurnNumber(1));
        let mut accepted_endings = 0;
        for (what, id) in events {
            let before = turn.clone();
            let id = CallId::from(format!("c{id}"));
            let model = StartedCallKind::Model { reserved_tokens: 0 };
            let tool = StartedCallKind::Tool {
                arguments: json!({}).into(),
                effect: Effect::ReadOnly,
            };
            let kind = if what == 0 { model } else { tool };
            let call = StartedCall { id: id.clone(), name: "x".into(), kind };
            let cause = Cause::new(CauseKind::User);
            let reason = cause.kind.stop_reason().unwrap_or(StopReason::Error);
            let outcome = if what == 2 { CallOutcome::Succeeded } else { CallOutcome::Unknown };
            let event = match what {
                0 | 1 => TurnEvent::CallStarted(&call),
                2 | 3 => TurnEvent::CallFinished { id: &id, outcome, usage: Some(usage(1, 0)), has_exited: false, result: None, },
                4 => TurnEvent::Committed,
                _ => TurnEvent::Stopped(reason),
            };
            if turn.apply(event).is_ok() {
                accepted_endings += u32::from(what >= 4);
            } else {
                prop_assert_eq!(&turn, &before, "a refused event changes nothing");
            }
            prop_assert!(turn.metered().total_tokens() >= before.metered().total_tokens());
        }
        prop_assert!(accepted_endings <= 1);
        prop_assert_eq!(turn.ending().is_some(), accepted_endings == 1);
        prop_assert!(turn.ending().is_none() || turn.open_calls().is_empty());
    }
}
