//! Arguments of `cargo xtask mutants`.

use std::time::Duration;

/// Files that contain access checks. In these files, no mutant may survive.
const ACCESS: [&str; 25] = [
    "crates/a2a/src/access/*.rs",
    "crates/a2a/src/localhost.rs",
    "crates/a2a/src/push/guard.rs",
    "crates/a2a/src/service.rs",
    "crates/a2a/src/task_actions.rs",
    "crates/agent/src/turn/calls/admission.rs",
    "crates/cli/src/project_trust.rs",
    "crates/remote/src/connection.rs",
    "crates/remote/src/folder.rs",
    "crates/remote/src/listener.rs",
    "crates/remote/src/peer.rs",
    "crates/cli/src/serve/access.rs",
    "crates/cli/src/serve/endpoint.rs",
    "crates/cli/src/start/project.rs",
    "crates/copilot/src/connection/mod.rs",
    "crates/copilot/src/hosted/mod.rs",
    "crates/copilot/src/hosted/attached_clients.rs",
    "crates/copilot/src/methods/answers.rs",
    "crates/runtime/src/config/project.rs",
    "crates/runtime/src/system/hidden.rs",
    "crates/task/src/cluster/accept.rs",
    "crates/task/src/manager/list.rs",
    "crates/tools/src/files/reserved.rs",
    "crates/tools/src/files/workspace.rs",
    "crates/tools/src/permission/**/*.rs",
];

pub(super) const USAGE: &str = "\
Builds small mistakes (mutants) into the code, one at a time, and names the mutants that no test catches.

    cargo xtask mutants REVISION        in the lines that differ from this commit
    cargo xtask mutants --access        in the files with access checks
    cargo xtask mutants --file GLOB     in these files, for example 'crates/core/src/turn/*.rs'

    --minutes N     time limit; the report counts the mutants that it leaves out (default: 30)

REVISION covers crates/*/src; name new files to git first (git add -N). The first run also compiles cargo-mutants, before the
time counts, and the tests. Exit code 1: a mutant survived, or was not tried.";

/// Selection of the lines to mutate.
pub(super) enum Lines {
    ChangedSince(String),
    Files(Vec<String>),
}

pub(super) struct MutantsOptions {
    pub(super) lines: Lines,
    pub(super) limit: Duration,
}

impl MutantsOptions {
    /// Parses the arguments; `None` if an argument is wrong.
    pub(super) fn parse(args: &[String]) -> Option<Self> {
        let (mut files, mut since, mut minutes) = (Vec::new(), None, 30);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--access" => files.extend(ACCESS.map(str::to_owned)),
                "--file" => files.push(args.next()?.clone()),
                "--minutes" => minutes = args.next()?.parse().ok()?,
                flag if flag.starts_with('-') => return None,
                _ if since.is_some() => return None,
                revision => since = Some(revision.to_owned()),
            }
        }
        let lines = match (since, files.is_empty()) {
            (Some(revision), true) => Lines::ChangedSince(revision),
            (None, false) => Lines::Files(files),
            _ => return None,
        };
        let limit = Duration::from_secs(60 * minutes);
        Some(Self { lines, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn parse(text: &str) -> Option<MutantsOptions> {
        let args: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        MutantsOptions::parse(&args)
    }

    #[test]
    fn lines_are_chosen_in_one_way() {
        for wrong in [
            "",
            "--minutes 5",
            "HEAD~1 --access",
            "--file",
            "--nonsense",
            "HEAD --minutes x",
            "HEAD HEAD~1",
        ] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
        let options = parse("HEAD~3 --minutes 5").unwrap();
        assert_eq!(options.limit, Duration::from_mins(5));
        assert!(matches!(options.lines, Lines::ChangedSince(revision) if revision == "HEAD~3"));
        let options = parse("--file a --access").unwrap();
        assert!(matches!(options.lines, Lines::Files(files) if files.len() == 1 + ACCESS.len()));
    }

    #[test]
    fn every_file_with_access_checks_exists() {
        for glob in ACCESS {
            let fixed = glob.split('*').next().unwrap_or_default();
            assert!(workspace::root().join(fixed).exists(), "{glob}");
        }
    }
}
