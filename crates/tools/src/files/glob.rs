//! `glob`: files by name.

use std::path::Path;

use allstop_core::Effect;
use globset::{GlobBuilder, GlobMatcher};
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::FileError;
use super::tool::{FileAnswer, FileTool, StopCheck};
use super::walk::{WalkItem, walk};
use super::workspace::{FolderAccess, Workspace};
use crate::file_state::FileState;
use crate::names;

/// Maximum number of paths in one answer. The walk ends at this number.
const PATHS_MAX: usize = 1_000;

/// Arguments of `glob`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GlobArguments {
    /// The pattern, relative to the working directory: `src/**/*.rs`.
    pattern: String,
}

impl FileTool for GlobArguments {
    const NAME: &'static str = names::GLOB;
    const DESCRIPTION: &'static str = "Finds files by a pattern: `*` within a name, `**` across folders, `?`, \
        `[a-z]`, `{a,b}`. Files that .gitignore excludes are skipped.";
    const EFFECT: Effect = Effect::ReadOnly;

    fn run(
        self,
        workspace: &Workspace,
        stop: &StopCheck,
        _: Option<FileState>,
    ) -> Result<FileAnswer, FileError> {
        let located = workspace.locate(".", FolderAccess::Read)?;
        let matcher = compile(&self.pattern, workspace.folder())?;
        let mut paths = Vec::new();
        walk(&located, stop, |item| {
            if let WalkItem::File(path) = item
                && let Ok(below) = path.strip_prefix(workspace.folder())
                && matcher.is_match(below)
            {
                paths.push(below.display().to_string());
            }
            Ok(paths.len() < PATHS_MAX)
        })?;
        let text = match paths.len() {
            0 => "[no file matches]".to_owned(),
            PATHS_MAX => format!(
                "{}\n[only the first {PATHS_MAX} are shown]",
                paths.join("\n")
            ),
            _ => paths.join("\n"),
        };
        Ok(text.into())
    }
}

fn compile(pattern: &str, folder: &Path) -> Result<GlobMatcher, FileError> {
    // Patterns match only paths below the working directory. A pattern that leads out of that directory is an error.
    let path = Path::new(pattern);
    let relative = if path.is_absolute() {
        path.strip_prefix(folder).ok()
    } else {
        Some(path)
    };
    let outside = || FileError::Outside {
        path: pattern.to_owned(),
        folder: folder.display().to_string(),
    };
    let relative = relative.and_then(Path::to_str).ok_or_else(outside)?;
    let relative = relative.strip_prefix("./").unwrap_or(relative);
    if relative.split('/').any(|name| name == "..") {
        return Err(outside());
    }
    let glob = GlobBuilder::new(relative).literal_separator(true).build();
    Ok(glob
        .map_err(|error| FileError::Pattern(error.kind().to_string()))?
        .compile_matcher())
}
