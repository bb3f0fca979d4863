//! The environment of a session, as described in its prompt.

use std::fmt;
use std::path::Path;

use allstop_core::Timestamp;
use allstop_core::terminal_text::{escape, is_unsafe};

use super::git::{GitHead, Repository};

/// Shell of the tool `shell`.
const SHELL: &str = "/bin/sh";
/// Length of `2026-11-25` in a timestamp.
const DATE_LEN: usize = 10;

/// Facts about the working environment of a session. The display form is a section of the prompt.
#[derive(Debug)]
pub(super) struct SessionEnvironment {
    folder: String,
    date: String,
    git: String,
}

impl SessionEnvironment {
    pub(super) fn of(folder: &Path, repository: Option<&Repository>, now: Timestamp) -> Self {
        let now = now.to_string();
        Self {
            folder: one_line(&folder.to_string_lossy()),
            date: now.get(..DATE_LEN).unwrap_or(&now).to_owned(),
            git: repository.map_or_else(|| "no repository".to_owned(), describe_git),
        }
    }
}

/// Describes the branch and an operation in progress. Does not report changed files: to find changed files, git may run
/// programs that the repository names, and no user has permitted these programs.
fn describe_git(repository: &Repository) -> String {
    let head = match repository.head() {
        Some(GitHead::Branch(name)) => format!("branch {}", one_line(&name)),
        Some(GitHead::Detached(commit)) => format!("no branch, at commit {commit}"),
        None => "a repository whose branch cannot be read".to_owned(),
    };
    match repository.operation() {
        Some(operation) => format!("{head}; {operation} is in progress"),
        None => head,
    }
}

fn one_line(text: &str) -> String {
    escape(text, is_unsafe).into_owned()
}

impl fmt::Display for SessionEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let system = std::env::consts::OS;
        let machine = std::env::consts::ARCH;
        writeln!(f, "Environment at the start of this session:")?;
        writeln!(f, "- Working directory: {}", self.folder)?;
        writeln!(f, "- System: {system} ({machine}); commands run in {SHELL}")?;
        writeln!(f, "- Date: {} (UTC)", self.date)?;
        writeln!(f, "- Git: {}", self.git)
    }
}
