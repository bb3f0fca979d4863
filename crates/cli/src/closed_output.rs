//! Detects that standard output was closed when the process started, as with `>&-` in a shell.
//!
//! Before `main`, the standard library opens `/dev/null` in place of a closed stream. Later, a closed output looks like
//! `> /dev/null`, which is a valid choice. So the descriptor is checked earlier, by an initialiser of the program.

use std::sync::atomic::{AtomicBool, Ordering};

/// True if standard output was open at the start.
static WAS_OPEN: AtomicBool = AtomicBool::new(true);

/// Runs [`look`] before the standard library opens missing descriptors.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "only an initialiser of the program runs before the standard library"
)]
// SAFETY: the section contains pointers to functions of this type. `look` only makes a system call and stores a bool, so
// it needs nothing that the standard library initialises.
#[unsafe(link_section = ".init_array")]
#[used]
static BEFORE_MAIN: extern "C" fn() = look;

#[cfg(target_os = "linux")]
extern "C" fn look() {
    let is_open = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_ok();
    WAS_OPEN.store(is_open, Ordering::Relaxed);
}

/// True if standard output was closed at the start. Always false on systems without this check.
pub(crate) fn stdout_was_closed() -> bool {
    !WAS_OPEN.load(Ordering::Relaxed)
}
