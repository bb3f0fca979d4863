//! Limit in real time. If a tool blocks its thread, the paused clock never advances. Therefore another thread checks
//! the real time.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::report::CheckReport;

/// Limit of one run in real time. Without a real wait in the tool, a run takes one or two milliseconds.
const RUN_TAKES_MAX: Duration = Duration::from_secs(20);

/// Runs an exploration on a separate thread. `explore` gets a function that it must call at the beginning of each run.
///
/// # Panics
/// Panics if a run does not end, if the system provides no thread, or if `explore` panics.
#[track_caller]
pub(super) fn run_within_limit(
    explore: impl FnOnce(Box<dyn Fn() + Send + Sync>) -> CheckReport + Send + 'static,
) -> CheckReport {
    let (begins, began) = channel();
    let run_begins = Box::new(move || {
        // A closed channel means that the other thread no longer waits.
        let _ = begins.send(());
    });
    // The thread has the name of the test, so that the test harness shows the thread's output as output of the test.
    // This function joins the thread, unless the tool blocks the thread for ever.
    let name = std::thread::current()
        .name()
        .unwrap_or("explorer")
        .to_owned();
    let thread = std::thread::Builder::new().name(name);
    #[expect(
        clippy::disallowed_methods,
        reason = "it may hang in the tool under test"
    )]
    let exploring = thread
        .spawn(move || explore(run_begins))
        .expect("the system has a thread left");
    loop {
        match began.recv_timeout(RUN_TAKES_MAX) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!(
                "assert_stop_safe!: a run did not end within {RUN_TAKES_MAX:?} of real time. The tool holds its \
                 thread: it sleeps with std::thread::sleep, reads or locks something in the blocking way, or \
                 computes without an await. No stop can reach it there. Wait with tokio's functions, or hand the \
                 work to Scope::spawn_blocking"
            ),
        }
    }
    match exploring.join() {
        Ok(report) => report,
        Err(panicked) => std::panic::resume_unwind(panicked),
    }
}
