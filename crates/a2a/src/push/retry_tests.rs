//! Table of decisions after an attempt.

use std::time::Duration;

use tokio::time::Instant;

use super::options::PushOptions;
use super::retry::{AttemptResult, DeliveryStep, EventAttempts};

fn decide_first(result: &AttemptResult) -> DeliveryStep {
    let mut attempts = EventAttempts::default();
    attempts.decide(result, &PushOptions::default(), Instant::now(), 0)
}

#[test]
fn success_delivers_gone_deletes_and_all_else_repeats() {
    for status in 100..600 {
        let step = decide_first(&AttemptResult::Answered(status, None));
        let is_right = match status {
            200..=299 => step == DeliveryStep::Delivered,
            410 => step == DeliveryStep::Delete,
            _ => matches!(step, DeliveryStep::Repeat(_)),
        };
        assert!(is_right, "{status}: {step:?}");
    }
    let failed = decide_first(&AttemptResult::Failed("refused".into()));
    assert!(matches!(failed, DeliveryStep::Repeat(_)));
}

#[test]
fn pauses_grow_to_a_limit_and_are_spread() {
    let options = PushOptions::default();
    let now = Instant::now();
    let failed = AttemptResult::Failed(String::new());
    let pauses = |random: u64| {
        let mut attempts = EventAttempts::default();
        let mut pause = || match attempts.decide(&failed, &options, now, random) {
            DeliveryStep::Repeat(pause) => pause.as_millis(),
            other => panic!("{other:?}"),
        };
        std::array::from_fn::<_, 40, _>(|_| pause())
    };
    let shortest = pauses(0);
    assert_eq!(shortest[..4], [500, 1_000, 2_000, 4_000]);
    assert_eq!(shortest[6..], [30_000; 34]);
    for random in [1, 77, u64::MAX] {
        for (pause, shortest) in pauses(random).into_iter().zip(shortest) {
            assert!((shortest..=2 * shortest).contains(&pause), "{pause}");
        }
    }
}

#[test]
fn receiver_can_ask_for_a_longer_pause() {
    let asks = |seconds| AttemptResult::Answered(429, Some(Duration::from_secs(seconds)));
    assert_eq!(
        decide_first(&asks(20)),
        DeliveryStep::Repeat(Duration::from_secs(20))
    );
    // A receiver cannot request an unlimited pause.
    let longest = PushOptions::default().pause_max;
    assert_eq!(decide_first(&asks(u64::MAX)), DeliveryStep::Repeat(longest));
}

#[test]
fn event_that_fails_for_too_long_pauses_its_configuration() {
    let options = PushOptions::default();
    let begin = Instant::now();
    let failed = AttemptResult::Answered(404, None);
    let mut attempts = EventAttempts::default();
    for (after, is_over) in [
        (Duration::ZERO, false),
        (options.failing_max / 2, false),
        (options.failing_max, true),
    ] {
        let step = attempts.decide(&failed, &options, begin + after, 0);
        assert_eq!(step == DeliveryStep::Pause, is_over, "{after:?}");
    }
    let accepted = AttemptResult::Answered(204, None);
    let late = begin + 2 * options.failing_max;
    assert_eq!(
        attempts.decide(&accepted, &options, late, 0),
        DeliveryStep::Delivered
    );
}
