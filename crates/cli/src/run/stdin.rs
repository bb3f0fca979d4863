//! Standard input, read on a thread that ends the wait for input at a stop.

use std::cell::OnceCell;
use std::io::{self, Read as _};
use std::time::{Duration, Instant};

use allstop_scope::WorkCx;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::CliError;

/// Interval between two checks for a stop during a wait for input. It is a tenth of the delay that a user notices.
const LOOK_NS: i64 = 10_000_000;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Wait for the first byte after which the user learns that this process waits.
const QUIET_WAIT: Duration = Duration::from_secs(1);

/// Reads standard input to its end, or up to `bytes_max` bytes. A stop ends the wait. Calls `waits` once if nothing arrives
/// for a second.
pub(crate) fn read_stdin(
    bytes_max: u64,
    cx: &WorkCx,
    waits: &dyn Fn(),
) -> Result<Vec<u8>, CliError> {
    let failed =
        |error: io::Error| CliError::failure(format!("standard input cannot be read: {error}"));
    let mut stdin = io::stdin().lock();
    let mut bytes = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let said = OnceCell::new();
    while (bytes.len() as u64) < bytes_max {
        wait_for_input(cx, || said.get_or_init(waits))?;
        // The chunk is larger than the buffer of the standard library, so this read bypasses the buffer. Otherwise
        // bytes could wait in the buffer, and the poll of the file descriptor would not report them.
        match stdin.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => bytes.extend(chunk.iter().take(len)),
            Err(error) if is_nothing_yet(&error) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    bytes.truncate(usize::try_from(bytes_max).unwrap_or(usize::MAX));
    Ok(bytes)
}

fn is_nothing_yet(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock)
}

/// Waits until a read does not block, or until a stop. A regular file is always ready. Calls `waits` if this takes longer
/// than [`QUIET_WAIT`].
fn wait_for_input<'a>(cx: &WorkCx, waits: impl Fn() -> &'a ()) -> Result<(), CliError> {
    let begun = Instant::now();
    let look = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK_NS,
    };
    loop {
        if let Err(cause) = cx.checkpoint("standard input") {
            return Err(CliError::failure(format!("stopped: {cause}")));
        }
        let stdin = std::io::stdin();
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut ready, Some(&look)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {
                if begun.elapsed() > QUIET_WAIT {
                    waits();
                }
            }
            // For any other condition, return: the following read reports the condition more precisely.
            Ok(_) | Err(_) => return Ok(()),
        }
    }
}
