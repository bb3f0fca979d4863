//! The running command, and its result.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

use super::processes::Process;
use super::wait::eventually;
use super::{FACT_MAX, Place};

/// Maximum time that an output may stay open after the end of the process. If the output stays open longer, a leftover
/// process holds it.
const OUTPUT_OPEN_MAX: Duration = Duration::from_secs(2);

/// The running command. Dropping this value kills the process.
#[derive(Debug)]
#[must_use = "dropping it kills it"]
pub(crate) struct Running {
    child: Child,
    pidfd: OwnedFd,
    begin: Instant,
    stdout: Option<Output>,
    stderr: Option<Output>,
    signalled: Option<Instant>,
}

/// Result of a finished command.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    /// Exit code; 128 plus the signal number if a signal killed the command.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Time of the end.
    pub(crate) at: Instant,
    /// Duration since the start.
    pub(crate) after: Duration,
    /// Duration since the last signal that was sent.
    pub(crate) after_signal: Option<Duration>,
}

impl Running {
    pub(crate) fn new(mut child: Child, begin: Instant) -> Self {
        let pid = Pid::from_child(&child);
        let stdout = child.stdout.take().map(Output::of);
        let stderr = child.stderr.take().map(Output::of);
        Self {
            pidfd: pidfd_open(pid, PidfdFlags::empty()).expect("the child is not waited for yet"),
            child,
            begin,
            stdout,
            stderr,
            signalled: None,
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_nonzero().get()
    }

    /// Time of the start.
    pub(crate) fn begin(&self) -> Instant {
        self.begin
    }

    /// Standard input, if it is a pipe.
    pub(crate) fn take_stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Sends a signal. If the process has already ended, the signal has no effect.
    pub(crate) fn signal(&mut self, signal: Signal) -> &mut Self {
        kill_process(Pid::from_child(&self.child), signal).expect("it has not been waited for");
        self.signalled = Some(Instant::now());
        self
    }

    /// Waits until this text is on standard output.
    #[track_caller]
    pub(crate) fn wait_stdout(&self, text: &str) -> &Self {
        self.wait_output(self.stdout.as_ref(), "standard output", text)
    }

    /// Waits until this text is on standard error.
    #[track_caller]
    pub(crate) fn wait_stderr(&self, text: &str) -> &Self {
        self.wait_output(self.stderr.as_ref(), "standard error", text)
    }

    /// Waits until `find` finds a value in standard output; `None` after the time limit.
    pub(crate) fn find_in_stdout<T>(&self, mut find: impl FnMut(&str) -> Option<T>) -> Option<T> {
        let output = self.stdout.as_ref().expect("it is read by the test");
        let mut found = None;
        output.wait(|so_far| {
            found = find(&String::from_utf8_lossy(so_far));
            found.is_some()
        });
        found
    }

    /// Waits for a line of standard output that begins with `begin`. Returns the rest of the line.
    #[track_caller]
    pub(crate) fn line_of_stdout(&self, begin: &str) -> String {
        let output = self.stdout.as_ref().expect("it is read by the test");
        let line = |text: &str| -> Option<String> {
            let (line, _) = text.split_once(begin)?.1.split_once('\n')?;
            Some(line.to_owned())
        };
        output.wait(|so_far| line(&String::from_utf8_lossy(so_far)).is_some());
        let text = output.text();
        line(&text).unwrap_or_else(|| panic!("no line begins with {begin:?}: {text:?}"))
    }

    #[track_caller]
    fn wait_output(&self, output: Option<&Output>, name: &str, text: &str) -> &Self {
        let output = output.expect("it is read by the test");
        assert!(
            output.wait(|so_far| String::from_utf8_lossy(so_far).contains(text)),
            "{text:?} never came to {name}: {:?}; standard error: {:?}",
            output.text(),
            self.stderr.as_ref().map(Output::text)
        );
        self
    }

    /// True if the process has a handler for this signal. The process must then react to the signal.
    pub(crate) fn catches(&self, signal: Signal) -> bool {
        super::processes::catches(self.pid(), signal)
    }

    /// True if the process ends without a signal within this time.
    pub(crate) fn ends_within(&self, time: Duration) -> bool {
        has_ended(&self.pidfd, time)
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    /// If the process does not end within the limit, or another process holds its output open after the end.
    #[track_caller]
    pub(crate) fn end(mut self, limit: Duration) -> Ended {
        let ended = has_ended(&self.pidfd, limit);
        let now = Instant::now();
        assert!(
            ended,
            "it has not ended after {limit:?}; standard error: {:?}",
            self.stderr.as_ref().map(Output::text)
        );
        let status = self.child.wait().expect("it is our child");
        let text = |output: Option<Output>| output.map(Output::finish).unwrap_or_default();
        Ended {
            code: code_of(status),
            stdout: text(self.stdout.take()),
            stderr: text(self.stderr.take()),
            at: now,
            after: now - self.begin,
            after_signal: self.signalled.map(|at| now.saturating_duration_since(at)),
        }
    }

    /// Sends a signal, and waits for the end of the process.
    #[track_caller]
    pub(crate) fn end_by(mut self, signal: Signal) -> Ended {
        self.signal(signal);
        self.end(FACT_MAX)
    }

    /// Kills the process and the only keeper of its place, so that neither reacts to the end of the other. The process
    /// is stopped first. A keeper that is stopped instead would continue: the kernel wakes the stopped processes of a
    /// group whose parent ends.
    #[track_caller]
    pub(crate) fn end_with_keeper(mut self, place: &Place) {
        let mut keepers = place.leftovers();
        keepers.retain(Process::is_keeper);
        assert_eq!(keepers.len(), 1, "{keepers:?}");
        let keeper = Pid::from_raw(keepers[0].pid).expect("a pid");
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        eventually("its threads are stopped", || {
            let mut tasks = std::fs::read_dir(&tasks).expect("it is there");
            let is_stopped = |stat: String| {
                stat.rsplit(") ")
                    .next()
                    .is_some_and(|rest| rest.starts_with('T'))
            };
            let all_stopped = tasks.all(|task| {
                let stat = task.map(|task| task.path().join("stat"));
                let stat = stat.and_then(std::fs::read_to_string);
                stat.is_ok_and(is_stopped)
            });
            all_stopped.then_some(())
        });
        kill_process(keeper, Signal::KILL).expect("it runs");
        self.end_by(Signal::KILL);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // These calls fail only if the process has ended and its exit status was already read.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Ended {
    /// The envelope (the JSON object with the result) of a run with `--json`. Asserts that it is the only line on
    /// standard output.
    #[track_caller]
    pub(crate) fn envelope(&self) -> Value {
        let lines: Vec<&str> = self.stdout.lines().collect();
        let [line] = lines[..] else {
            panic!("not one line: {self:#?}");
        };
        let envelope = serde_json::from_str(line).expect("JSON");
        super::schema::assert_valid("envelope", &envelope);
        assert_eq!(envelope["exit_code"], self.code, "{self:#?}");
        envelope
    }

    /// The lines of a run with `--stream-json`. The last line is the envelope.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        let lines: Vec<Value> = self
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert!(!lines.is_empty(), "{self:#?}");
        for line in &lines {
            super::schema::assert_valid("events", line);
        }
        lines
    }

    /// The session id in the envelope.
    #[track_caller]
    pub(crate) fn session(&self) -> String {
        let line = self.stdout.lines().last().expect("an envelope");
        let envelope: Value = serde_json::from_str(line).expect("JSON");
        envelope["session_id"].as_str().expect("a session").into()
    }

    /// Asserts that the exit code is 0.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// Duration from the last signal to the end of the process.
    #[track_caller]
    pub(crate) fn since_signal(&self) -> Duration {
        self.after_signal.expect("it was sent a signal")
    }
}

fn code_of(status: ExitStatus) -> i32 {
    let by_signal = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(by_signal).expect("one of the two")
}

/// Waits until the process has ended. True if it ended within the limit.
fn has_ended(pidfd: &OwnedFd, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).expect("a limit of seconds");
    let mut waited = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut waited, Some(&limit)).expect("a pidfd can be polled") > 0
}

/// Bytes from an output pipe, which a thread reads continuously.
#[derive(Debug)]
struct Output {
    shared: Arc<Shared>,
    ended: Receiver<()>,
}

#[derive(Debug, Default)]
struct Shared {
    bytes: Mutex<Vec<u8>>,
    more: Condvar,
}

impl Output {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test reads pipes without a runtime"
    )]
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let shared = Arc::new(Shared::default());
        let (ended_tx, ended) = mpsc::channel();
        let to = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(len @ 1..) = pipe.read(&mut buffer) {
                let mut bytes = to.bytes.lock().unwrap_or_else(PoisonError::into_inner);
                bytes.extend_from_slice(&buffer[..len]);
                to.more.notify_all();
            }
            drop(ended_tx);
        });
        Self { shared, ended }
    }

    /// Waits until the bytes meet the condition. True if they met it within the time limit.
    fn wait(&self, mut condition: impl FnMut(&[u8]) -> bool) -> bool {
        let bytes = self
            .shared
            .bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (_bytes, waited) = self
            .shared
            .more
            .wait_timeout_while(bytes, FACT_MAX, |bytes| !condition(bytes))
            .unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out()
    }

    fn text(&self) -> String {
        let bytes = self
            .shared
            .bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[track_caller]
    fn finish(self) -> String {
        let open = self.ended.recv_timeout(OUTPUT_OPEN_MAX) == Err(mpsc::RecvTimeoutError::Timeout);
        assert!(!open, "something holds the output open: {:?}", self.text());
        self.text()
    }
}
