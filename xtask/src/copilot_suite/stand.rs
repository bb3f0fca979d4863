//! Temporary folder with the programs that replace those of the tests.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::options::SuiteOptions;
use crate::workspace;

const RECORDED_MODEL: &str = include_str!("recorded_model.mjs");

/// Certificates of the system. The tests want a file with certificates, and no test uses its content.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Programs for a run of a suite: the binary with the address of the recorded model, and the recorded model in place of the
/// tests' model server. Dropping it removes the folder with the programs and the stores of the sessions.
#[derive(Debug)]
pub(super) struct Stand {
    folder: PathBuf,
}

impl Stand {
    pub(super) fn create(options: &SuiteOptions) -> anyhow::Result<Self> {
        let name = format!("copilot-suite-{}", std::process::id());
        let folder = workspace::target_dir()?.join(name);
        let stand = Self { folder };
        fs::create_dir_all(stand.folder.join("stores"))?;
        let model = stand.folder.join("recorded_model.mjs");
        fs::write(&model, RECORDED_MODEL)?;
        // The tests start their model server by `npx tsx SERVER`.
        let npx = format!(
            "#!/bin/sh\nexec node '{}' \"$2\" {CERTIFICATES}\n",
            model.display()
        );
        stand.script("npx", &npx)?;
        // The tests of limits need a price.
        let config = stand.folder.join("allstop.toml");
        fs::write(&config, "[model]\nprice = { input = 3.0, output = 15.0 }\n")?;
        // The tests delete the files of their home folder while servers run, so the store and the settings are in another
        // folder. All servers of a home folder share them.
        let binary = format!(
            "#!/bin/sh\n\
             export ALLSTOP_BASE_URL=\"${{COPILOT_API_URL:-http://127.0.0.1:1}}\" OPENAI_API_KEY=recorded\n\
             export ALLSTOP_MODEL=\"${{ALLSTOP_MODEL:-claude-sonnet-4.5}}\"\n\
             export ALLSTOP_AUTO_MODEL=auto ALLSTOP_CONFIG='{}'\n\
             export ALLSTOP_STORE=\"{}/stores/$(basename \"${{COPILOT_HOME:-none}}\").db\"\n\
             export XDG_DATA_HOME=\"{}/settings/$(basename \"${{COPILOT_HOME:-none}}\")\"\n\
             exec '{}' \"$@\"\n",
            config.display(),
            stand.folder.display(),
            stand.folder.display(),
            options.binary.display()
        );
        stand.script("allstop", &binary)?;
        Ok(stand)
    }

    fn script(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// Returns a path for a file of this run, such as the report of a test program.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns a command with the programs of this folder, which runs in a folder of the checkout.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
        let mut command = Command::new(program);
        #[expect(
            clippy::disallowed_methods,
            reason = "the search path of the test programs begins with this folder"
        )]
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .current_dir(folder)
            .env("PATH", format!("{}:{path}", self.folder.display()))
            .env("COPILOT_CLI_PATH", self.folder.join("allstop"))
            // The tests then never write their recordings.
            .env("GITHUB_ACTIONS", "true");
        command
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _removed_or_left = fs::remove_dir_all(&self.folder);
    }
}
