//! Process containment, checked from outside: after the actions, every test reads `/proc` itself and does not use the
//! records of the library.
//!
//! This binary also starts itself as a keeper (the helper process of the library), and as an owner (a process that
//! launches commands). Therefore the binary has a separate `main`, which selects the role before the test harness
//! starts.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a started owner answers on its output, and measured times go to the error output"
)]

use std::process::ExitCode;

#[cfg(target_os = "linux")]
mod detaching;
#[cfg(target_os = "linux")]
mod entering;
#[cfg(target_os = "linux")]
mod failing;
#[cfg(target_os = "linux")]
mod hostile;
#[cfg(target_os = "linux")]
mod keepers;
#[cfg(target_os = "linux")]
mod losing;
#[cfg(target_os = "linux")]
mod printing;
#[cfg(target_os = "linux")]
mod stopping;
#[cfg(target_os = "linux")]
mod support;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("keep-call") => return allstop_process::keeper_main(),
        #[cfg(target_os = "linux")]
        Some("own-call") => return losing::own(args),
        #[cfg(target_os = "linux")]
        Some("let-go-call") => return detaching::detach_and_end(args),
        _ => {}
    }
    #[cfg(target_os = "linux")]
    {
        let arguments = libtest_mimic::Arguments::from_args();
        let trials = [
            stopping::trials(),
            printing::trials(),
            hostile::trials(),
            losing::trials(),
            keepers::trials(),
            detaching::trials(),
            entering::trials(),
            failing::trials(),
        ];
        libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
    }
    #[cfg(not(target_os = "linux"))]
    ExitCode::SUCCESS
}
