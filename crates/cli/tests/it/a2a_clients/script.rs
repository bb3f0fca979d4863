//! Runs the clients' scripts as processes.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::Running;
use crate::support::parts::part;

/// Time limit for all scenarios of a script, within the limit of a test.
const SCRIPT_TIME_MAX: Duration = Duration::from_secs(50);

/// Official client of a language, for version 1 or 0.3 of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    Python,
    JavaScript,
    PythonV03,
    JavaScriptV03,
}

impl Client {
    pub(super) fn part(self) -> &'static str {
        match self {
            Self::Python => "a2a_python",
            Self::JavaScript => "a2a_js",
            Self::PythonV03 => "a2a_python_v0_3",
            Self::JavaScriptV03 => "a2a_js_v0_3",
        }
    }

    fn script(self) -> PathBuf {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        tests.join("a2a_clients").join(match self {
            Self::Python => "client.py",
            Self::JavaScript => "client.mjs",
            Self::PythonV03 => "client_v0_3.py",
            Self::JavaScriptV03 => "client_v0_3.mjs",
        })
    }

    /// Command that runs the script of the client and finds the downloaded client library; `None` if this library is
    /// excluded on this machine.
    fn command(self) -> Option<Command> {
        let part = part(self.part())?;
        let (program, variable) = match self {
            Self::Python | Self::PythonV03 => ("python3", "PYTHONPATH"),
            Self::JavaScript | Self::JavaScriptV03 => ("node", "A2A_PART"),
        };
        let mut command = Command::new(program);
        command.arg(self.script()).env(variable, part);
        Some(command)
    }
}

/// Name of a scenario, and the address of its server.
pub(super) type Scenario<'a> = (&'a str, &'a str);

/// Runs the scenarios in one process, in order, and asserts that each scenario passed. `input` is the script's standard
/// input.
#[track_caller]
pub(super) fn run_scenarios(
    client: Client,
    binding: &str,
    scenarios: &[Scenario<'_>],
    input: &str,
) {
    let Some(mut command) = client.command() else {
        return;
    };
    let begin = Instant::now();
    let child = command
        .arg(binding)
        .args(scenarios.iter().map(|(name, url)| format!("{name}@{url}")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut running = Running::new(child.expect("the script starts"), begin);
    let mut stdin = running.take_stdin().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let ended = running.end(SCRIPT_TIME_MAX);
    let passed: Vec<&str> = ended
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("passed "))
        .collect();
    let expected: Vec<&str> = scenarios.iter().map(|(name, _url)| *name).collect();
    assert_eq!(passed, expected, "{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}
