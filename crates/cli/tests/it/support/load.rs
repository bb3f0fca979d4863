//! Share of the machine in a measured time.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// For how long a process, and the thread that looks at it, wanted to run and got no processor. A limit of time that leaves
/// this out holds on a busy machine too, and is as tight for whoever sleeps. Nothing where the kernel does not count it.
#[derive(Debug)]
pub(crate) struct ProcessorWait {
    pid: i32,
    /// By thread, when the count began: none yet for a thread that came later.
    first_ns: HashMap<String, u64>,
    /// By thread, when it was last seen.
    last_ns: HashMap<String, u64>,
}

/// The name that the thread which looks is counted by.
const OBSERVER: &str = "observer";

impl ProcessorWait {
    /// Begins to count.
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

    /// Looks at the threads: what has waited since the last look and has ended before this one is missed.
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
        // Time on a processor, time waited for one, how often.
        let waited = text.split_whitespace().nth(1);
        if let Some(waited) = waited.and_then(|waited| waited.parse().ok()) {
            self.last_ns.insert(thread, waited);
        }
    }

    /// All threads together.
    pub(crate) fn total(&self) -> Duration {
        let since = |(thread, last): (&String, &u64)| {
            let first = self.first_ns.get(thread).copied().unwrap_or_default();
            last.saturating_sub(first)
        };
        Duration::from_nanos(self.last_ns.iter().map(since).sum())
    }
}
