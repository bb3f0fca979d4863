//! A folder in which a real shell runs a command line, with detection of the denied program.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::line::DENIED;

/// Programs that a line can start. The generated lines pass only arguments with which these programs change nothing
/// outside the sandbox.
const HARMLESS: &[&str] = &[
    "awk", "bash", "basename", "cat", "echo", "env", "expr", "false", "find", "head", "ls", "make",
    "nice", "nohup", "printf", "sed", "seq", "sh", "sort", "split", "tar", "tee", "test",
    "timeout", "true", "wc", "xargs",
];

/// A folder with the programs, and one subfolder for each run.
pub(crate) struct Sandbox {
    folder: PathBuf,
    runs: u64,
}

impl Sandbox {
    /// Creates a sandbox in an empty folder.
    pub(crate) fn new(folder: &Path) -> Self {
        let programs = folder.join("programs");
        fs::create_dir(&programs).expect("the folder is empty");
        for program in HARMLESS {
            let found = ["/usr/bin", "/bin"].map(|at| Path::new(at).join(program));
            if let Some(found) = found.iter().find(|at| at.exists()) {
                symlink(found, programs.join(program)).expect("the folder is empty");
            }
        }
        // Both scripts create the file `ran` in their working directory when they run; `tool` creates the file only
        // with its subcommand `push`.
        write_script(&programs.join(DENIED), ": > ran");
        let options =
            "while :; do case $1 in -C|-c) shift 2;; -*) shift;; *) break;; esac || exit; done";
        let tool = format!("{options}\n[ \"$1\" = push ] && : > ran");
        write_script(&programs.join("tool"), &tool);
        Self {
            folder: folder.to_owned(),
            runs: 0,
        }
    }

    /// True if a shell runs the denied program when it runs the line.
    pub(crate) fn runs_denied(&mut self, line: &str) -> bool {
        // Both shells are common implementations of `sh`.
        ["sh -c", "bash --posix -c"]
            .iter()
            .any(|shell| self.runs_denied_by(shell, line))
    }

    /// Runs the line, waits for all of its processes, and returns true if the denied program ran.
    fn runs_denied_by(&mut self, shell: &str, line: &str) -> bool {
        self.runs += 1;
        let work = self.folder.join(format!("run-{}", self.runs));
        let programs = self.folder.join("programs");
        fs::create_dir(&work).expect("each run has its own");
        symlink(&programs, work.join("bin")).expect("the folder is new");
        fs::write(work.join("f"), "a\n").expect("the folder is new");
        // Limits for lines that do not end by themselves. `timeout` kills the whole process group of the shell.
        let limits = format!("ulimit -t 2; ulimit -f 100; exec timeout -s KILL 5 {shell} \"$1\"");
        let mut shell = Command::new("/bin/sh")
            .args(["-c", &limits, "sh", line])
            .current_dir(&work)
            .env_clear()
            .env("PATH", &programs)
            .env("HOME", &work)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("there is a shell");
        // The read ends after the last process of the line has closed the pipe.
        let mut output = Vec::new();
        let stdout = shell.stdout.take().expect("it is piped");
        stdout
            .take(1 << 20)
            .read_to_end(&mut output)
            .expect("a pipe can be read");
        shell.wait().expect("it is our child");
        let ran = work.join("ran").exists();
        fs::remove_dir_all(&work).expect("it is ours");
        ran
    }
}

fn write_script(path: &Path, body: &str) {
    fs::write(path, format!("#!/bin/sh\n{body}\n")).expect("the folder is there");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}
