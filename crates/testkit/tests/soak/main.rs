//! Days of sessions in seconds, in a process of their own: its memory is a part of what is tested.

use allstop_testkit::drive::soak::{Soak, SoakLength};

/// About 10 s of them; `cargo xtask explore --soak MINUTES` has more.
const ACTIONS: u64 = 6_000;

#[test]
fn days_of_sessions_leave_nothing_and_break_nothing() {
    let report = Soak::from_environment().run(SoakLength::Actions(ACTIONS));
    report.checks.assert_clean();
    let rare = [
        report.cancelled_alone,
        report.promoted,
        report.let_go,
        report.divided,
    ];
    assert!(rare.iter().all(|often| *often > 0), "{}", report.checks);
}
