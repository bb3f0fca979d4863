//! `cargo xtask mutants`: adds small mistakes (mutants) to the code, and lists the mutants that no test detects.
//!
//! The program cargo-mutants creates the mutants, in a copy of the sources (`target/mutants/tree`). The copy keeps its
//! build folder, so only a few crates must be compiled for each mutant. For each mutant, the tests of its crate run
//! first. If these tests do not detect the mutant, the tests of all dependent crates run too.

mod options;
mod outcomes;
mod packages;
mod tree;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};

use crate::{exec, parts, workspace};
use options::{Lines, MutantsOptions, USAGE};
use outcomes::Outcomes;
use packages::Packages;

const VERSION: &str = "27.1.0";

/// Minimum time limit of one test run. With a shorter limit, a slow test run would count as a detected mutant.
const TESTS_MIN_S: u32 = 120;

/// Number of seeds for each simulation of a cluster. The usual number of seeds would take a minute for each mutant.
const SEEDS: &str = "500";

pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    if matches!(args, [arg] if arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return Ok(());
    }
    let Some(options) = MutantsOptions::parse(args) else {
        bail!("{USAGE}");
    };
    let folder = workspace::target_dir()?.join("mutants");
    std::fs::create_dir_all(&folder).context("cannot create the folder of the mutants")?;
    // A second run at the same time would undo the mutants of the first run.
    let lock = File::create(folder.join(".lock")).context("cannot create the lock file")?;
    lock.try_lock()
        .context("another `cargo xtask mutants` runs in this build folder")?;
    let chosen = match &options.lines {
        Lines::ChangedSince(revision) => {
            let diff = exec::output(
                Command::new("git")
                    .current_dir(workspace::root())
                    .args(["diff", "--no-ext-diff", "--no-color"])
                    .args(["--src-prefix=a/", "--dst-prefix=b/"])
                    .args([revision, "--", "crates/*/src/*.rs"]),
            )?;
            let file = folder.join("changes.diff");
            std::fs::write(&file, diff).context("cannot write the difference")?;
            vec!["--in-diff".to_owned(), file.display().to_string()]
        }
        Lines::Files(globs) => {
            let files = globs.iter();
            files
                .flat_map(|glob| ["--file".to_owned(), glob.clone()])
                .collect()
        }
    };
    let program = install()?;
    let sources = tree::copy_to(&folder.join("tree"))?;
    parts::fetch_for_tests()?;
    let tool = MutantsTool {
        program,
        lock,
        sources,
        folder,
        chosen,
        end: Instant::now() + options.limit,
    };
    let packages = Packages::read()?;
    let mut all = Outcomes::default();
    let counts = tool.count_mutants()?;
    if counts.is_empty() && matches!(options.lines, Lines::Files(_)) {
        bail!("no code to mutate in these files; paths begin at the root of the repository");
    }
    for (package, count) in counts {
        if tool.is_late() {
            all.leave_out(count);
            continue;
        }
        println!("── {package}: {count} mutants");
        let output = tool.folder.join(&package);
        if output.exists() {
            std::fs::remove_dir_all(&output).context("cannot remove the previous result")?;
        }
        tool.try_out(&package, &packages.tests_of(&package), &output, false)?;
        let mut outcomes = Outcomes::read(&output, count)?;
        let others = packages.tests_of_dependents(&package);
        let survived = outcomes.survived.len();
        if survived > 0 && tool.is_late() {
            outcomes.catch_more(Outcomes::default());
        } else if survived > 0 && !others.is_empty() {
            println!("── {package}: tests of the dependents, for {survived} mutants");
            tool.try_out(&package, &others, &output, true)?;
            outcomes.catch_more(Outcomes::read(&output, survived)?);
        }
        all.add(outcomes);
    }
    println!("\n{all}");
    match (all.survived.len(), all.untried) {
        (0, 0) => Ok(()),
        (0, untried) => bail!("not tried: {untried} (`--minutes N` gives more time)"),
        (survived, _) => bail!("mutants survived: {survived}"),
    }
}

struct MutantsTool {
    program: PathBuf,
    /// Lock of the folder with the copy.
    lock: File,
    sources: PathBuf,
    folder: PathBuf,
    /// Arguments that select the lines to mutate.
    chosen: Vec<String>,
    end: Instant,
}

impl MutantsTool {
    #[expect(
        clippy::disallowed_methods,
        reason = "cargo-mutants starts `cargo nextest` from the path"
    )]
    fn command(&self) -> anyhow::Result<Command> {
        // At the time limit, `timeout` sends SIGINT. cargo-mutants then ends its tests and restores the changed file.
        let left = self.end.saturating_duration_since(Instant::now());
        let mut command = Command::new("timeout");
        command
            .args(["--foreground", "--signal=INT", "--kill-after=60s"])
            .arg(format!("{}s", left.as_secs() + 1))
            .arg(&self.program);
        let nextest = parts::TOOLS.fetch()?.join("bin");
        let path = std::env::join_paths(std::iter::once(nextest).chain(std::env::split_paths(
            &std::env::var_os("PATH").unwrap_or_default(),
        )))?;
        command
            .current_dir(&self.sources)
            .env("PATH", path)
            // The copy has a separate build folder, so no mutant gets into the programs of the user.
            .env("CARGO_TARGET_DIR", self.sources.join("target"))
            .env("ALLSTOP_CLUSTER_SEEDS", SEEDS)
            // Otherwise cargo-mutants would print a backtrace when the time limit is reached.
            .env("RUST_BACKTRACE", "0")
            // Without debug information, each mutant is linked faster. The missing backtraces are not needed.
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .args(["mutants", "--workspace"])
            .args(&self.chosen);
        Ok(command)
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Returns the packages, each with its number of mutants.
    fn count_mutants(&self) -> anyhow::Result<Vec<(String, usize)>> {
        let list = exec::output(self.command()?.args(["--list", "--json"]))?;
        packages::count(&list)
    }

    /// Runs the tests of these packages for each mutant of a package, until the time limit is reached.
    ///
    /// With `only_survivors`, skips mutants that the previous round has detected or could not compile.
    fn try_out(
        &self,
        package: &str,
        tests: &[String],
        output: &Path,
        only_survivors: bool,
    ) -> anyhow::Result<()> {
        std::fs::create_dir_all(output).context("cannot create the folder of the result")?;
        let mut command = self.command()?;
        command
            .arg("--in-place")
            .args(["--package", package, "--output"])
            .arg(output)
            .args(["--test-tool", "nextest", "--minimum-test-timeout"])
            .arg(TESTS_MIN_S.to_string())
            .args(tests.iter().flat_map(|test| ["--test-package", test]));
        if only_survivors {
            command.arg("--iterate");
        }
        let status = command
            // The child process inherits the lock. Therefore the lock is held until cargo-mutants ends, even if this
            // program is killed.
            .stdin(self.lock.try_clone().context("cannot share the lock")?)
            .status()
            .context("cannot start cargo-mutants")?;
        // Exit codes: 2 if some mutants survived, 3 if some test runs timed out, 124 if the time limit of the run was
        // reached.
        if matches!(status.code(), Some(0 | 2 | 3 | 124)) {
            return Ok(());
        }
        bail!("cargo-mutants ended with {status}");
    }
}

/// Installs cargo-mutants into the build folder, unless it is already installed.
fn install() -> anyhow::Result<PathBuf> {
    let root = workspace::target_dir()?.join("parts/cargo-mutants");
    exec::step(
        "cargo-mutants",
        workspace::cargo()
            .args(["install", "--quiet", "--locked", "--root"])
            .arg(&root)
            .arg(format!("cargo-mutants@{VERSION}")),
    )?;
    Ok(root.join("bin/cargo-mutants"))
}
