//! The worker processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::options::WorkerOptions;

/// Interval of the checks for workers that have exited by themselves.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Time in which the workers must exit after the soak test.
const END_MAX: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct Fleet {
    options: WorkerOptions,
    folder: PathBuf,
    workers: Mutex<Vec<Child>>,
    counts: Mutex<FleetCounts>,
}

#[derive(Debug, Default)]
struct FleetCounts {
    started: usize,
    /// Number of workers that exited by themselves and were not killed.
    ended_alone: usize,
}

impl Fleet {
    pub(crate) fn new(options: WorkerOptions, folder: &Path, workers: usize) -> Self {
        let fleet = Self {
            options,
            folder: folder.to_owned(),
            workers: Mutex::default(),
            counts: Mutex::default(),
        };
        let started = (0..workers).map(|_| fleet.start()).collect();
        *fleet.workers.lock() = started;
        fleet
    }

    fn start(&self) -> Child {
        let mut counts = self.counts.lock();
        counts.started += 1;
        let errors = File::create(self.folder.join(format!("worker-{}.log", counts.started)));
        let mut command = Command::new("/proc/self/exe");
        command.args(["worker", "--servers", &self.options.servers]);
        command.args(["--ledger", &self.options.ledger.to_string()]);
        command.args(["--lease", &self.options.lease.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command.stderr(errors.expect("a file")).kill_on_drop(true);
        command.spawn().expect("a worker starts")
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.workers.lock().iter().filter_map(Child::id).collect()
    }

    /// Replaces each worker that exits, and never returns. A worker exits by itself if it must stop its work but cannot
    /// end the work.
    pub(crate) async fn keep_up(&self) -> ! {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            looks.tick().await;
            for worker in self.workers.lock().iter_mut() {
                if worker.try_wait().expect("a child").is_some() {
                    self.counts.lock().ended_alone += 1;
                    *worker = self.start();
                }
            }
        }
    }

    /// Kills a worker and starts another worker.
    pub(crate) async fn kill(&self, index: usize) {
        let mut killed = {
            let mut workers = self.workers.lock();
            std::mem::replace(&mut workers[index], self.start())
        };
        killed.kill().await.expect("it is a child");
    }

    /// Pauses a worker.
    pub(crate) async fn pause(&self, index: usize, time: Duration) {
        let pid = self.workers.lock()[index].id();
        pause(pid, time).await;
    }

    /// Ends the workers. Returns the number of workers that did not exit within [`END_MAX`].
    pub(crate) async fn end(self) -> usize {
        let counts = self.counts.into_inner();
        let (started, alone) = (counts.started, counts.ended_alone);
        println!("{started} workers were started; {alone} ended by themselves");
        let mut stuck = 0;
        for mut worker in self.workers.into_inner() {
            drop(worker.stdin.take());
            if tokio::time::timeout(END_MAX, worker.wait()).await.is_err() {
                stuck += 1;
            }
        }
        stuck
    }
}

/// Suspends a process with SIGSTOP for this time.
pub(crate) async fn pause(pid: Option<u32>, time: Duration) {
    let pid = pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let Some(pid) = pid else { return };
    kill_process(pid, Signal::STOP).expect("it is a child");
    tokio::time::sleep(time).await;
    kill_process(pid, Signal::CONT).expect("it is a child");
}
