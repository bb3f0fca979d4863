//! The end of the process: its exit code, and the wait for the readers of its output.
//!
//! A stop or a deadline limits the wait for a slow reader. Otherwise the wait is unlimited, as with any other command:
//! users leave a pager open for minutes. A signal ends the wait. Lost output is reported on standard error and counts
//! as a failure.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use allstop_terminal::{FlushResult, OutputFlush};
use futures::FutureExt as _;

use crate::error::CliError;
use crate::host::ProcessHost;
use crate::telemetry;

/// Interval between two checks for a signal during the wait for a reader.
const READER_LOOK: Duration = Duration::from_millis(50);

/// Time to write the report about lost standard output to standard error.
const LAST_LINE_WAIT_MAX: Duration = Duration::from_millis(50);

/// End of the process: its exit code and the wait for output.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) code: u8,
    /// Limit of the wait for output, if a stop or a deadline sets one.
    pub(crate) output_wait: Option<Duration>,
}

impl From<u8> for Exit {
    fn from(code: u8) -> Self {
        Self {
            code,
            output_wait: None,
        }
    }
}

impl From<CliError> for Exit {
    fn from(error: CliError) -> Self {
        Self::from(error.code())
    }
}

impl Exit {
    /// Sends the last traces, waits for the readers of the output, and returns the exit code.
    pub(crate) fn flush(self, host: &ProcessHost) -> u8 {
        let output = &host.output;
        let until = self.output_wait.map(|wait| Instant::now() + wait);
        if let Some(traces) = &host.traces {
            telemetry::close(traces, self.output_wait.unwrap_or(Duration::MAX));
        }
        let flushed = host.block_on(flush_to_reader(host, until));
        let Some(lost) = lost_output(flushed.stdout, host) else {
            return self.code;
        };
        host.print_problem(&lost);
        output.flush_stderr(LAST_LINE_WAIT_MAX);
        self.code.max(lost.code())
    }
}

/// Waits until all output is read, a signal arrives, or the given time is reached.
async fn flush_to_reader(host: &ProcessHost, until: Option<Instant>) -> OutputFlush {
    let output = &host.output;
    let mut signals = host.signals().ok();
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let flushed = output.flush(left.map_or(READER_LOOK, |left| left.min(READER_LOOK)));
        let is_blocked = [flushed.stdout, flushed.stderr].contains(&FlushResult::Blocked);
        let is_signalled = signals
            .as_mut()
            .is_some_and(|signals| signals.next().now_or_never().is_some());
        if !is_blocked || is_signalled || left.is_some_and(|left| left <= READER_LOOK) {
            return flushed;
        }
        // Lets the runtime deliver signals.
        tokio::task::yield_now().await;
    }
}

/// The failure to report for lost output. A pipe that its reader has closed is no failure, because that reader wants no
/// more output.
fn lost_output(stdout: FlushResult, host: &ProcessHost) -> Option<CliError> {
    let name = match &host.output_file {
        Some(path) => format!("the output `{}`", path.display()),
        None => "standard output".to_owned(),
    };
    let message = match stdout {
        _ if host.is_result_lost => return Some(ProcessHost::lost_stdout()),
        FlushResult::Closed(ErrorKind::BrokenPipe) => return None,
        FlushResult::Closed(kind) => format!("{name} cannot be written: {kind}"),
        FlushResult::Blocked => {
            format!("the reader of {name} stopped reading: the rest of the output is lost")
        }
        FlushResult::Flushed if host.output.stdout().has_lost() => {
            format!("the reader of {name} was too slow: part of the output is missing")
        }
        FlushResult::Flushed => return None,
    };
    Some(CliError::failure(message))
}
