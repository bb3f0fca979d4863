//! A process that is detached (left running without a scope) while a stop covers it.
//!
//! This binary also starts itself as the keeper of the process. Therefore the binary has a separate `main`, which selects
//! the role before the test harness starts.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
mod stopped;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    {
        if std::env::args().nth(1).as_deref() == Some(stopped::KEEPER) {
            return allstop_process::keeper_main();
        }
        let arguments = libtest_mimic::Arguments::from_args();
        libtest_mimic::run(&arguments, stopped::trials()).exit_code()
    }
    #[cfg(not(target_os = "linux"))]
    ExitCode::SUCCESS
}
