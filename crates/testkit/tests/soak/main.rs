//! Days of sessions in seconds. The test runs in a separate process, because it also checks the memory of the process.

use allstop_testkit::drive::soak::{Soak, SoakLength};

/// This number of actions takes about 10 s; `cargo xtask explore --soak MINUTES` runs more.
const ACTIONS: u64 = 6_000;

#[test]
fn days_of_sessions_leave_nothing_running() {
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
