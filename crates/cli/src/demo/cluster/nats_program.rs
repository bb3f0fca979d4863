//! Search for the program of the NATS servers, and check of its version.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::CliError;
use crate::host::variable;

use super::process::DemoLauncher;

/// Oldest version of the server that supports a time to live for each message, which the store needs.
const VERSION_MIN: (u32, u32) = (2, 11);

/// Maximum wait for the output of `nats-server --version`.
const VERSION_WAIT_MAX: Duration = Duration::from_secs(5);

/// The `nats-server` of the demo.
#[derive(Debug)]
pub(super) struct NatsProgram(PathBuf);

impl NatsProgram {
    /// Finds the named program, or else the first `nats-server` in `PATH`.
    pub(super) fn find(named: Option<&Path>) -> Result<Self, CliError> {
        let hint = "get it from https://nats.io/download, or name it: --nats-server PATH";
        if let Some(named) = named {
            // The path must be absolute, because the servers have another working directory.
            let path = std::path::absolute(named).unwrap_or_else(|_| named.to_owned());
            if path.is_file() {
                return Ok(Self(path));
            }
            let text = format!("program {:?} not found", named.display().to_string());
            return Err(CliError::failure(text).hint(hint));
        }
        let folders = variable("PATH").unwrap_or_default();
        let mut candidates =
            std::env::split_paths(&folders).map(|folder| folder.join("nats-server"));
        candidates
            .find(|path| path.is_file())
            .map(Self)
            .ok_or_else(|| {
                CliError::failure("the cluster demo needs nats-server, which is not in PATH")
                    .hint(hint)
            })
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the version of the program, if it is new enough.
    pub(super) async fn check(&self, launcher: &DemoLauncher) -> Result<String, CliError> {
        let shown = self.0.display();
        let mut process = launcher.start("nats-server --version", &self.0, ["--version"])?;
        let said = process.line("nats-server: v", VERSION_WAIT_MAX).await;
        let version = said.map_err(|_| {
            CliError::failure(format!("{shown} prints no version"))
                .hint("name the program nats-server, from https://nats.io/download")
        })?;
        process.gone(VERSION_WAIT_MAX).await?;
        if parts_of(&version).is_none_or(|found| found < VERSION_MIN) {
            let (major, minor) = VERSION_MIN;
            let text =
                format!("{shown} has version {version}; the demo needs {major}.{minor} or later");
            return Err(CliError::failure(text).hint(
                "get it from https://nats.io/download, or name another: --nats-server PATH",
            ));
        }
        Ok(version)
    }
}

fn parts_of(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    let major = parts.next()?.parse().ok()?;
    Some((major, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(parts_of("2.9.25") < Some(VERSION_MIN));
        assert!(parts_of("2.11.0-RC.1") >= Some(VERSION_MIN));
        assert!(parts_of("10.0.0") >= Some(VERSION_MIN));
        assert_eq!(parts_of("two"), None);
    }
}
