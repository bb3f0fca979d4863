//! Work of the tasks: a script of model answers. The shell commands in these answers are really run.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Files that the shells of the tasks write.
#[derive(Debug, Clone)]
pub(super) struct DemoFiles(PathBuf);

impl DemoFiles {
    pub(super) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// File with the pid of a task's shell.
    pub(super) fn pid(&self, task: &str) -> PathBuf {
        self.0.join(format!("{task}.pid"))
    }

    /// File into which the shell of a stubborn task (a task whose shell ignores SIGTERM) writes the time again and
    /// again, as a sign of life.
    pub(super) fn alive(&self, task: &str) -> PathBuf {
        self.0.join(format!("{task}.alive"))
    }

    /// The ledger: a file with a line for each task that has done its work.
    pub(super) fn ledger(&self) -> PathBuf {
        self.0.join("ledger")
    }

    /// Text that identifies a stubborn task in the command lines of its processes.
    pub(super) fn mark(&self, task: &str) -> String {
        self.alive(task).display().to_string()
    }

    pub(super) fn script(&self) -> PathBuf {
        self.0.join("script.yaml")
    }
}

/// Tasks whose shell ignores SIGTERM and shows signs of life until it is killed.
pub(super) const STUBBORN: [&str; 3] = ["stubborn-1", "stubborn-2", "stubborn-3"];

/// Tasks that write a line into the ledger. The demo sends them at the start, while the lease of a killed worker runs
/// out, before the loss of a server, and after this loss.
pub(super) const FIRST_ENTRIES: [&str; 4] = ["entry-1", "entry-2", "entry-3", "entry-4"];
pub(super) const LEASE_ENTRIES: [&str; 2] = ["entry-5", "entry-6"];
pub(super) const SERVER_ENTRIES: [&str; 2] = ["entry-7", "entry-8"];
pub(super) const LAST_ENTRY: &str = "entry-9";

/// The script, as YAML.
pub(super) fn script(files: &DemoFiles) -> String {
    let stubborn = STUBBORN.map(|task| {
        let (pid, alive) = (files.pid(task), files.alive(task));
        let command = format!(
            "trap '' TERM; echo $$ > '{}'; while :; do date +%s%N > '{}'; sleep 0.05; done",
            pid.display(),
            alive.display()
        );
        turn(task, &command)
    });
    let entry = |seconds: &'static str| {
        move |task: &&str| {
            let command = format!(
                "echo $$ > '{}'; sleep {seconds}; echo {task} >> '{}'",
                files.pid(task).display(),
                files.ledger().display()
            );
            turn(task, &command)
        }
    };
    let turns: Vec<Value> = stubborn
        .into_iter()
        .chain(FIRST_ENTRIES.iter().map(entry("2")))
        .chain(LEASE_ENTRIES.iter().map(entry("1")))
        .chain(SERVER_ENTRIES.iter().map(entry("3")))
        .chain([LAST_ENTRY].iter().map(entry("1")))
        .collect();
    // JSON is valid YAML.
    json!({"turns": turns}).to_string()
}

fn turn(task: &str, command: &str) -> Value {
    json!({
        "when": task,
        "replies": [
            {"calls": [{"tool": "shell", "arguments": {"command": command}}]},
            {"text": "Done."},
        ],
    })
}
