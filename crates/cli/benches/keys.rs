//! Time from a key to its letter on the screen, while a command of the chat prints 100 MB.
//!
//! The baseline is the same chat without output. Each time includes the terminal: the kernel's pseudo-terminal, and the
//! thread of this benchmark that reads it.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use allstop_bench::BenchSuite;
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tempfile::TempDir;

/// Keys of a measurement. The 99th percentile then has four samples above it.
const KEYS: usize = 400;
/// Pause between two keys, like a person who types fast.
const PAUSE: Duration = Duration::from_millis(10);
/// Bytes that the command prints.
const OUTPUT: u64 = 100_000_000;
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The goal: people notice a delay of 100 ms.
const P99_MAX_MS: f64 = 50.0;

const LETTERS: [&str; 8] = ["б", "г", "д", "ж", "ф", "ц", "ш", "я"];

const SCRIPT: &str = r#"
turns:
  - when: flood
    replies:
      - calls: [{tool: shell, arguments: {command: "while :; do yes 'a line of output with some words in it' | head -c BYTES; echo x >> floods; done"}}]
  - when: quiet
    replies:
      - calls: [{tool: shell, arguments: {command: "sleep 600"}}]
"#;

fn main() -> ExitCode {
    let mut suite = BenchSuite::from_args();
    for (name, prompt) in [
        ("key to screen without output, p99 in ms", "quiet"),
        ("key to screen beside 100 MB of output, p99 in ms", "flood"),
    ] {
        if suite.wants(name) {
            let mut times = measure(prompt);
            times.sort_unstable();
            let p99 = times[times.len() * 99 / 100];
            suite.count(name, p99.as_secs_f64() * 1000.0, Some(P99_MAX_MS));
        }
    }
    suite.finish()
}

fn measure(prompt: &str) -> Vec<Duration> {
    let folder = TempDir::new_in(".").expect("the working directory can be written");
    let terminal = Terminal::new();
    let mut chat = start(folder.path(), &terminal);
    terminal.wait("Shift-Tab");
    terminal.types(&format!("{prompt}\r"));
    terminal.wait("Enter adds");
    let mut times = Vec::with_capacity(KEYS);
    for number in 0..KEYS {
        // No letter of the output, and another letter than the last one.
        let key = LETTERS[number % LETTERS.len()];
        let before = terminal.len();
        let began = Instant::now();
        terminal.types(key);
        terminal.wait_after(before, key);
        times.push(began.elapsed());
        terminal.types("\x15");
        terminal.pause(PAUSE);
    }
    let floods = fs::read_to_string(folder.path().join("floods"));
    // Escape: the terminal is not the controlling one, so Ctrl-C would be no signal.
    terminal.types("\x1b");
    terminal.wait("stopped by you");
    terminal.types("\x04");
    let ended = chat.wait();
    assert!(ended.is_ok_and(|status| status.success()), "the chat ends");
    let has_flooded = floods.is_ok_and(|floods| !floods.is_empty());
    assert!(
        prompt == "quiet" || has_flooded,
        "less than 100 MB have arrived"
    );
    times
}

fn start(folder: &Path, terminal: &Terminal) -> Child {
    let script = folder.join("script.yaml");
    let text = SCRIPT.replace("BYTES", &OUTPUT.to_string());
    fs::write(&script, text).expect("the folder is there");
    let line = || terminal.line.try_clone().expect("it can be duplicated");
    Command::new(env!("CARGO_BIN_EXE_allstop"))
        .args(["chat", "--yes", "--policy", "steer", "--store"])
        .arg(folder.join("store.db"))
        .arg("--model")
        .arg(format!("script:{}", script.display()))
        .current_dir(folder)
        .env("TERM", "xterm-256color")
        .env("LANG", "C.UTF-8")
        .stdin(line())
        .stdout(line())
        .stderr(line())
        .spawn()
        .expect("it starts")
}

/// A pseudo-terminal, and a thread that reads everything that is written to it.
struct Terminal {
    keyboard: File,
    line: OwnedFd,
    shown: Arc<(Mutex<Vec<u8>>, Condvar)>,
}

impl Terminal {
    #[expect(
        clippy::disallowed_methods,
        reason = "a benchmark reads a terminal without a runtime"
    )]
    fn new() -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&person).expect("it can be used");
        unlockpt(&person).expect("it can be opened");
        let name = ptsname(&person, Vec::new()).expect("it has a name");
        let line = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("its other end");
        let keyboard = File::from(person);
        let mut reads = keyboard.try_clone().expect("it can be duplicated");
        let shown: Arc<(Mutex<Vec<u8>>, Condvar)> = Arc::default();
        let to = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(len @ 1..) = reads.read(&mut buffer) {
                let (shown, more) = &*to;
                let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
                shown.extend_from_slice(&buffer[..len]);
                more.notify_all();
            }
        });
        Self {
            keyboard,
            line,
            shown,
        }
    }

    fn types(&self, keys: &str) {
        (&self.keyboard)
            .write_all(keys.as_bytes())
            .expect("the terminal is open");
    }

    fn len(&self) -> usize {
        let (shown, _) = &*self.shown;
        shown.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn wait(&self, text: &str) {
        self.wait_after(0, text);
    }

    /// Waits until this text is shown after the first `start` bytes.
    fn wait_after(&self, start: usize, text: &str) {
        let (shown, more) = &*self.shown;
        let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing =
            |shown: &mut Vec<u8>| memchr::memmem::find(&shown[start..], text.as_bytes()).is_none();
        let (shown, waited) = more
            .wait_timeout_while(shown, WAIT_MAX, is_missing)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(
            !waited.timed_out(),
            "no {text:?}: {}",
            String::from_utf8_lossy(&shown)
        );
    }

    /// Waits for this time, during which more output may arrive.
    fn pause(&self, time: Duration) {
        let (shown, more) = &*self.shown;
        let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let _waited = more.wait_timeout_while(shown, time, |_| true);
    }
}
