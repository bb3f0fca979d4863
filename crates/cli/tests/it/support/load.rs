//! Time that a measured process had to wait for a processor.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Time in which a process, or the thread that observes it, was ready to run but had no processor. Tests subtract this
/// time from measured times. So their limits also hold on a busy machine, and stay strict for a process that sleeps.
/// Zero if the kernel does not measure this time.
#[derive(Debug)]
pub(crate) struct ProcessorWait {
    pid: i32,
    /// Wait of each thread at the beginning of the measurement. Threads that started later are not in this map.
    first_ns: HashMap<String, u64>,
    /// Wait of each thread at the last reading.
    last_ns: HashMap<String, u64>,
}

/// Key of the observing thread.
const OBSERVER: &str = "observer";

impl ProcessorWait {
    /// Begins the measurement of a process.
    pub(crate) fn of(pid: i32) -> Self {
        let mut wait = Self {
            pid,
            first_ns: HashMap::new(),
            last_ns: HashMap::new(),
        };
        wait.look();
        wait.first_ns.clone_from(&wait.last_ns);
        wait
    }

    /// Reads the waits of the threads. If a thread has ended since the previous reading, its last wait is not counted.
    pub(crate) fn look(&mut self) {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid));
        for thread in threads.into_iter().flatten().flatten() {
            let name = thread.file_name().to_string_lossy().into_owned();
            self.note(name, &thread.path());
        }
        self.note(OBSERVER.to_owned(), Path::new("/proc/thread-self"));
    }

    fn note(&mut self, thread: String, folder: &Path) {
        let text = fs::read_to_string(folder.join("schedstat")).unwrap_or_default();
        // The fields are: time on a processor, time waited for a processor, number of time slices.
        let waited = text.split_whitespace().nth(1);
        if let Some(waited) = waited.and_then(|waited| waited.parse().ok()) {
            self.last_ns.insert(thread, waited);
        }
    }

    /// Total wait of all threads since the beginning of the measurement.
    pub(crate) fn total(&self) -> Duration {
        let since = |(thread, last): (&String, &u64)| {
            let first = self.first_ns.get(thread).copied().unwrap_or_default();
            last.saturating_sub(first)
        };
        Duration::from_nanos(self.last_ns.iter().map(since).sum())
    }
}
