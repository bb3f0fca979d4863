//! Runs the scripts of the clients as processes. The scripts start the binary in the same way as a user's program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::command::COMMAND;
use crate::support::parts::part;
use crate::support::processes::MARK;
use crate::support::{Place, Running};

/// Time limit for all scenarios of a script, within the limit of a test.
const SCRIPT_TIME_MAX: Duration = Duration::from_secs(50);

/// Official SDK of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sdk {
    Python,
    JavaScript,
    Rust,
}

impl Sdk {
    /// Command that runs the script of the SDK and finds the downloaded SDK; `None` if this SDK is excluded on this
    /// machine.
    fn command(self) -> Option<Command> {
        Some(match self {
            Self::Python => {
                let mut command = Command::new("python3");
                let part = part("copilot_python")?;
                // The flag `-B` prevents Python from writing compiled files next to the scripts.
                command.arg("-B").arg(script("python"));
                command.env("PYTHONPATH", part);
                command
            }
            Self::JavaScript => {
                let mut command = Command::new("node");
                let part = part("copilot_js")?;
                command
                    .arg(script("javascript/main.mjs"))
                    .env("COPILOT_PART", part);
                command
            }
            Self::Rust => Command::new(part("copilot_rust")?.join("bin/copilot_rust")),
        })
    }
}

fn script(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join("copilot_clients").join(name)
}

/// Name of the scripted model. Its script contains a long command that is unique to this test.
fn model(place: &Place) -> String {
    let yaml = std::fs::read_to_string(script("script.yaml")).expect("the script");
    assert!(yaml.contains("LONG_SLEEP"), "{yaml}");
    place.script(&yaml.replace("LONG_SLEEP", place.sleeper()))
}

/// Runs the scenarios. The client passes the subcommand, the store and the model to the binary as arguments.
#[track_caller]
pub(super) fn run_scenarios(sdk: Sdk, scenarios: &[&str]) {
    let place = Place::new();
    let Some(mut command) = sdk.command() else {
        return;
    };
    command.args(["copilot", "--store"]).arg(place.store());
    command.args(["--model", &model(&place)]);
    run(&place, command, scenarios);
}

/// Runs the scenarios with a binary that gets only the arguments of the SDK. The environment contains the store and the
/// model.
#[track_caller]
pub(super) fn run_without_arguments(sdk: Sdk, scenarios: &[&str]) {
    let place = Place::new();
    let Some(mut command) = sdk.command() else {
        return;
    };
    command
        .env("ALLSTOP_STORE", place.store())
        .env("ALLSTOP_MODEL", model(&place));
    run(&place, command, scenarios);
    assert!(place.store().is_file(), "another store was used");
}

/// Runs the scenarios in one process, in order. Asserts that each scenario passed, that the SDK could read every event,
/// and that no process is left.
#[track_caller]
fn run(place: &Place, mut command: Command, scenarios: &[&str]) {
    let begin = Instant::now();
    let child = command
        .arg("--")
        .args(scenarios)
        .current_dir(place.work())
        .env("HOME", place.path("home"))
        .env("COPILOT_CLI_PATH", COMMAND)
        .env("LONG_SLEEP", place.sleeper())
        .env(MARK, place.mark())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let ended = Running::new(child.expect("the script starts"), begin).end(SCRIPT_TIME_MAX);
    let passed: Vec<&str> = ended
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("passed "))
        .collect();
    assert_eq!(passed, scenarios, "{}{}", ended.stdout, ended.stderr);
    // Standard error must be empty: there, the SDKs print exceptions about unreadable events, and the output of the
    // binary.
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    place.assert_nothing_runs();
}
