//! `write`: a whole file.

use allstop_core::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::FileError;
use super::open::{self, Missing};
use super::replace::replace;
use super::tool::{FileTool, StopCheck};
use super::workspace::{FolderAccess, Workspace};

/// Arguments of `write`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Write {
    /// The file, relative to the working directory. Missing folders are created.
    path: String,
    /// The whole content.
    content: String,
}

impl FileTool for Write {
    const NAME: &'static str = "write";
    const DESCRIPTION: &'static str = "Writes a whole file, in one step: it replaces what was there. To change a part of a file use `edit`.";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, workspace: &Workspace, stop: &StopCheck) -> Result<String, FileError> {
        let located = workspace.locate(&self.path, FolderAccess::ReadWrite)?;
        let (folder, name) = open::parent(&located, Missing::Create)?;
        let before = open::regular(&folder, name, &located)?;
        replace(
            &folder,
            name,
            self.content.as_bytes(),
            before.as_ref(),
            &located,
            stop,
        )?;
        let did = if before.is_some() { "replaced" } else { "made" };
        Ok(format!(
            "{did} `{}`, {} bytes",
            located.shown,
            self.content.len()
        ))
    }
}
