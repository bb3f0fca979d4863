//! Arguments of `cargo xtask copilot-suite`.

use std::path::{self, PathBuf};

use anyhow::{Context as _, bail};

use crate::workspace;

pub(super) const HELP: &str = "\
cargo xtask copilot-suite --sdk CHECKOUT [options]

Runs the end-to-end tests of the official Copilot SDKs with the debug binary of this workspace, and compares the results
with the list in xtask/copilot_suite.txt. Prepare the checkout of the SDKs by their own instructions: install the packages
of test/harness with npm, and those of the languages that you test (nodejs with npm; python with pip, and pytest,
pytest-asyncio, pytest-timeout, pytest-xdist, websockets and opentelemetry-sdk; go with its modules).

    --sdk CHECKOUT     the folder of the SDKs
    --only LANGUAGE    python, node or go; may be repeated; all if absent
    --test PATTERN     only tests whose name contains the text; the list is then not checked for unknown names.
                       Go compares the names of functions, and after a `/` those of their subtests
    --python PROGRAM   the Python with the packages; CHECKOUT/python/.venv/bin/python if absent
    --go PROGRAM       the Go program; go if absent
    --binary FILE      the binary; target/debug/allstop if absent
    --jobs N           test files that run at a time; 2 if absent
";

/// Language of an SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SdkLanguage {
    Python,
    Node,
    Go,
}

impl SdkLanguage {
    pub(super) const ALL: [Self; 3] = [Self::Python, Self::Node, Self::Go];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Go => "go",
        }
    }
}

#[derive(Debug)]
pub(super) struct SuiteOptions {
    pub(super) sdk: PathBuf,
    pub(super) languages: Vec<SdkLanguage>,
    pub(super) test: Option<String>,
    pub(super) python: PathBuf,
    pub(super) go: PathBuf,
    pub(super) binary: PathBuf,
    pub(super) jobs: String,
}

impl SuiteOptions {
    /// Parses the arguments. Returns `None` if they ask for the help text.
    pub(super) fn parse(args: &[String]) -> anyhow::Result<Option<Self>> {
        let (mut sdk, mut python, mut binary, mut test) = (None, None, None, None);
        let (mut languages, mut jobs) = (Vec::new(), "2".to_owned());
        let mut go = PathBuf::from("go");
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            if flag == "--help" || flag == "-h" {
                return Ok(None);
            }
            let value = args
                .next()
                .with_context(|| format!("`{flag}` needs a value"))?;
            match flag.as_str() {
                "--sdk" => sdk = Some(PathBuf::from(value)),
                "--python" => python = Some(PathBuf::from(value)),
                "--go" => go = PathBuf::from(value),
                // The tests run in other folders.
                "--binary" => binary = Some(path::absolute(value)?),
                "--test" => test = Some(value.clone()),
                "--jobs" => jobs.clone_from(value),
                "--only" => {
                    let mut all = SdkLanguage::ALL.into_iter();
                    let found = all.find(|language| language.name() == value);
                    languages.push(found.with_context(|| format!("unknown language `{value}`"))?);
                }
                unknown => bail!("unknown option `{unknown}`\n\n{HELP}"),
            }
        }
        let sdk = sdk.context("`--sdk` is missing: name a checkout of the SDKs")?;
        let sdk = sdk
            .canonicalize()
            .with_context(|| format!("cannot find {}", sdk.display()))?;
        let default_python = sdk.join("python/.venv/bin/python");
        let default_binary = workspace::target_dir()?.join("debug/allstop");
        if languages.is_empty() {
            languages.extend(SdkLanguage::ALL);
        }
        Ok(Some(Self {
            python: python.unwrap_or(default_python),
            go,
            binary: binary.unwrap_or(default_binary),
            sdk,
            languages,
            test,
            jobs,
        }))
    }
}
