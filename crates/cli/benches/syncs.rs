//! Number of disk syncs of a `run`, counted by strace: for a turn with a short answer, and for each further step (model
//! call with its tool calls).
//!
//! The disk determines the duration of each sync. A program can therefore change only the number of syncs.

#![expect(clippy::print_stdout, reason = "says why nothing was counted")]

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use allstop_bench::BenchSuite;
use tempfile::TempDir;

/// Two syncs for the turn, one for its session, and one for the folder of the store. With the last sync, SQLite makes
/// the directory entry of its write-ahead log durable.
const HELLO_MAX: f64 = 4.0;
/// Two more syncs for the first run: one for the store itself, and one for the header of its write-ahead log.
const FIRST_HELLO_MAX: f64 = 6.0;
/// One sync before a tool call runs, and one for two records together: the end of the call, and the start of the next
/// model call.
const STEP_MAX: f64 = 2.0;
/// Steps of the longer turn. They are enough to compute the number of syncs per step.
const STEPS: usize = 10;

fn main() -> ExitCode {
    let mut suite = BenchSuite::from_args();
    if Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        println!("strace is not installed: no sync is counted");
        return suite.finish();
    }
    let folder = TempDir::new_in(".").expect("the working directory can be written");
    // Each call has a different argument, because several equal calls would count as a loop and end the turn.
    let call =
        |n| format!("{{text: a, calls: [{{tool: list, arguments: {{path: folder_{n}}}}}]}}, ");
    let script = |name: &str, steps: usize| {
        let path = folder.path().join(name);
        let calls: String = (0..steps).map(call).collect();
        let replies = format!("replies: [{calls}{{text: b}}]");
        fs::write(&path, replies).expect("the folder is there");
        path
    };
    let (hello, long) = (script("hello.yaml", 0), script("long.yaml", STEPS));
    let first = syncs(folder.path(), &hello);
    suite.count(
        "syncs of a hello, with a new store",
        first,
        Some(FIRST_HELLO_MAX),
    );
    let second = syncs(folder.path(), &hello);
    suite.count("syncs of a hello", second, Some(HELLO_MAX));
    let step = (syncs(folder.path(), &long) - second) / STEPS as f64;
    suite.count("syncs of a step with a call", step, Some(STEP_MAX));
    suite.finish()
}

/// Number of syncs of a run of this script, in all its processes.
fn syncs(folder: &Path, script: &Path) -> f64 {
    let trace = folder.join("trace");
    let status = Command::new("strace")
        .args([
            "-f",
            "-qq",
            "-e",
            "trace=fsync,fdatasync,sync_file_range,msync",
            "-o",
        ])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_allstop"))
        .args(["run", "--yes", "--max-steps", "100", "--store"])
        .arg(folder.join("store.db"))
        .arg("--model")
        .arg(format!("script:{}", script.display()))
        .arg("hi")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(
        status.expect("strace starts").success(),
        "the run completes"
    );
    let trace = fs::read_to_string(trace).expect("strace wrote it");
    // strace prints an interrupted call in two lines. The second line contains `resumed`.
    trace
        .lines()
        .filter(|line| line.contains("sync") && !line.contains("resumed"))
        .count() as f64
}
