//! Duration of an `allstop` process with little work, from its start to its end, compared with a process that does
//! nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use allstop_bench::{BenchSuite, Figure, timed};
use tempfile::TempDir;

const ROUNDS: usize = 300;

fn main() -> ExitCode {
    let mut suite = BenchSuite::from_args();
    let bare = || run(&mut Command::new("/bin/true"));
    suite.run(
        Figure::new("allstop --version", || run(allstop().arg("--version")))
            .rounds(ROUNDS)
            .median_at_most(Duration::from_millis(2))
            .against("/bin/true", bare),
    );
    let folder = TempDir::new_in(".").expect("the working directory can be written");
    let script = folder.path().join("hello.yaml");
    fs::write(&script, "replies: [{text: hello}]").expect("the folder is there");
    // The first run creates the store, so it is not measured.
    suite.run(
        Figure::new("a hello, with its session on disk", || {
            run(&mut hello(folder.path()))
        })
        .rounds(ROUNDS)
        .median_at_most(Duration::from_millis(10))
        .against("/bin/true", bare),
    );
    suite.finish()
}

fn allstop() -> Command {
    Command::new(env!("CARGO_BIN_EXE_allstop"))
}

/// A run with one prompt and a scripted answer.
fn hello(folder: &Path) -> Command {
    let mut hello = allstop();
    let script = folder.join("hello.yaml");
    hello
        .args(["run", "--yes", "--store"])
        .arg(folder.join("store.db"))
        .arg("--model")
        .arg(format!("script:{}", script.display()))
        .arg("hi");
    hello
}

fn run(command: &mut Command) -> Duration {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let (took, status) = timed(|| command.status());
    assert!(status.expect("it starts").success(), "{command:?}");
    took
}
