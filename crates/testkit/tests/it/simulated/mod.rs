//! Simulated processes in scopes and with the real shell tool.

mod shell;
mod system;

use std::time::Duration;

/// Runs a test that uses only paused time. The runtime watches no descriptor, so no real event can happen.
fn on_paused_time<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(test)
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}
