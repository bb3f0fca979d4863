//! `write`: a whole file.

use allstop_core::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::FileError;
use super::open::{self, MissingFolders};
use super::replace::replace;
use super::tool::{FileTool, StopCheck};
use super::workspace::{FolderAccess, Workspace};

/// Arguments of `write`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArguments {
    /// The file, relative to the working directory. Missing folders are created.
    path: String,
    /// The whole content.
    content: String,
}

impl FileTool for WriteArguments {
    const NAME: &'static str = "write";
    const DESCRIPTION: &'static str = "Writes a whole file in one step and replaces existing content. Use `edit` to change a part of a file.";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, workspace: &Workspace, stop: &StopCheck) -> Result<String, FileError> {
        let located = workspace.locate(&self.path, FolderAccess::ReadWrite)?;
        let (folder, name) = open::parent(&located, MissingFolders::Create)?;
        let before = open::regular(&folder, name, &located)?;
        replace(
            &folder,
            name,
            self.content.as_bytes(),
            before.as_ref(),
            &located,
            stop,
        )?;
        let action = if before.is_some() {
            "replaced"
        } else {
            "created"
        };
        Ok(format!(
            "{action} `{}`, {} bytes",
            located.shown,
            self.content.len()
        ))
    }
}
