//! Days of sessions in seconds, in a process of their own: its memory is a part of what is tested.

use allstop_testkit::drive::soak::{Soak, SoakLength};

/// About 10 s of them; `cargo xtask explore --soak MINUTES` has more.
const ACTIONS: u64 = 6_000;

#[test]
fn days_of_sessions_leave_nothing_and_break_nothing() {
    let report = Soak::from_environment().run(SoakLength::Actions(ACTIONS));
    report.assert_clean();
    let rare = [
        "calls cancelled alone",
        "calls promoted",
        "commands detached",
        "messages for sub-agents",
    ];
    let has_happened = |what: &&str| report.figures.get(what).is_some_and(|often| *often > 0);
    assert!(rare.iter().all(has_happened), "{report}");
}
