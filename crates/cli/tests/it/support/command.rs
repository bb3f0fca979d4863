//! Builder for the command `allstop` in a test.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::processes::MARK;
use super::running::{Ended, Running};
use super::{FACT_MAX, Place};

/// Path of the built binary.
pub(crate) const COMMAND: &str = env!("CARGO_BIN_EXE_allstop");

/// Environment variable with the path of the file with the system prompt.
const SYSTEM_PROMPT: &str = "ALLSTOP_SYSTEM";

/// The command before its start, with an environment that the test defines.
#[derive(Debug)]
#[must_use = "it does not run yet"]
pub(crate) struct Allstop<'a> {
    place: &'a Place,
    program: Vec<OsString>,
    args: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    stdin: Stdio,
    stdout: Option<Stdio>,
    stderr: Option<Stdio>,
    uid: Option<u32>,
}

impl<'a> Allstop<'a> {
    pub(crate) fn new(place: &'a Place) -> Self {
        Self {
            place,
            program: vec![COMMAND.into()],
            args: Vec::new(),
            // The default system prompt contains the folder of the test, so token counts would differ between runs.
            environment: vec![(SYSTEM_PROMPT.into(), "/dev/null".into())],
            stdin: Stdio::null(),
            stdout: None,
            stderr: None,
            uid: None,
        }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds several arguments, separated by white space.
    pub(crate) fn args(mut self, args: &str) -> Self {
        self.args.extend(args.split_whitespace().map(Into::into));
        self
    }

    /// Adds the arguments for one turn per prompt.
    pub(crate) fn prompts(self, prompts: &[impl AsRef<OsStr>]) -> Self {
        prompts
            .iter()
            .enumerate()
            .fold(self, |run, (turn, prompt)| {
                let run = if turn == 0 { run } else { run.arg("--then") };
                run.arg(prompt)
            })
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment
            .push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Uses the default system prompt. Without this call, a test has an empty system prompt.
    pub(crate) fn with_default_prompt(mut self) -> Self {
        self.environment.retain(|(name, _)| name != SYSTEM_PROMPT);
        self
    }

    /// Runs the command through another program. This program must replace itself by the command (`exec`), so that the
    /// pid stays the same.
    pub(crate) fn by(mut self, program: &str) -> Self {
        let words = program.split_whitespace().map(OsString::from);
        self.program.splice(0..0, words);
        self
    }

    /// Redirects the streams with the syntax of a shell, for example `2>&-`.
    pub(crate) fn redirected(self, redirection: &str) -> Self {
        self.by_script(&format!("exec \"$0\" \"$@\" {redirection}"))
    }

    /// Runs the command in a shell, after another shell command.
    pub(crate) fn by_shell(self, before: &str) -> Self {
        self.by_script(&format!("{before} && exec \"$0\" \"$@\""))
    }

    /// Runs a shell script with the command as `$0` and its arguments as `$@`.
    pub(crate) fn by_script(mut self, script: &str) -> Self {
        self.program
            .splice(0..0, ["sh".into(), "-c".into(), script.into()]);
        self
    }

    pub(crate) fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = stdin.into();
        self
    }

    /// Redirects standard output, so the test cannot read it.
    pub(crate) fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.stdout = Some(stdout.into());
        self
    }

    /// Redirects standard error, so the test cannot read it.
    pub(crate) fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = Some(stderr.into());
        self
    }

    /// Sets a controlling terminal, as standard input and standard error.
    pub(crate) fn on_terminal(self, terminal: &OwnedFd) -> Self {
        let copy = || terminal.try_clone().expect("a terminal can be duplicated");
        self.by("setsid --ctty").stdin(copy()).stderr(copy())
    }

    /// Like [`Self::on_terminal`], but also for standard output.
    pub(crate) fn on_screen(self, terminal: &OwnedFd) -> Self {
        let copy = terminal.try_clone().expect("a terminal can be duplicated");
        self.on_terminal(terminal).stdout(copy)
    }

    /// Runs as a user without privileges, if the test runs as root.
    pub(crate) fn unprivileged(self) -> Self {
        self.by_user(65_534)
    }

    /// Runs as this user, if the test runs as root. For this, copies the binary into a folder that is open to all
    /// users: the build folder may be closed to them.
    pub(crate) fn by_user(mut self, uid: u32) -> Self {
        if rustix::process::geteuid().is_root() {
            self.uid = Some(uid);
            let copy = self.place.path("allstop");
            let open = || Permissions::from_mode(0o755);
            fs::copy(COMMAND, &copy).expect("a copy");
            fs::set_permissions(&copy, open()).expect("a mode");
            fs::set_permissions(self.place.path(""), open()).expect("a mode");
            for word in &mut self.program {
                if word == COMMAND {
                    *word = copy.clone().into();
                }
            }
        }
        self
    }

    /// Starts the command.
    pub(crate) fn start(self) -> Running {
        let (program, first_args) = self.program.split_first().expect("there is a program");
        #[expect(clippy::disallowed_methods, reason = "the binary finds shells by it")]
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command
            .args(first_args)
            .args(&self.args)
            .current_dir(self.place.work())
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.place.path("home"))
            .env("XDG_RUNTIME_DIR", self.place.path("run"))
            .env(MARK, self.place.mark())
            .envs(self.environment)
            .stdin(self.stdin)
            .stdout(self.stdout.unwrap_or_else(Stdio::piped))
            .stderr(self.stderr.unwrap_or_else(Stdio::piped));
        if let Some(uid) = self.uid {
            std::os::unix::process::CommandExt::uid(&mut command, uid);
        }
        let begin = Instant::now();
        let child = command.spawn().expect("the command starts");
        Running::new(child, begin)
    }

    /// Runs the command to its end.
    #[track_caller]
    pub(crate) fn end(self) -> Ended {
        self.start().end(FACT_MAX)
    }
}
