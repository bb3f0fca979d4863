//! Patience: paused time never runs out for a tool that holds its thread, so somebody watches in real time.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::report::CheckReport;

/// Limit of one run in real time. A run of a tool that waits for nothing real takes a millisecond or two.
const RUN_TAKES_MAX: Duration = Duration::from_secs(20);

/// Explores on a thread of its own. `explore` gets what is to be called at the beginning of each run.
///
/// # Panics
/// If a run does not end, or the system gives no thread; and as `explore` does.
#[track_caller]
pub(super) fn with(
    explore: impl FnOnce(Box<dyn Fn() + Send + Sync>) -> CheckReport + Send + 'static,
) -> CheckReport {
    let (begins, began) = channel();
    let run_begins = Box::new(move || {
        // Nobody listens any more: then nobody waits either.
        let _ = begins.send(());
    });
    // Named as the test is, so that what it prints is found. It is joined, unless the tool holds it for ever.
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
