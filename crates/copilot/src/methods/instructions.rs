//! Instructions for the model from folders that a client names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_runtime::SystemPrompt;

use crate::hosted::SessionChoice;

/// Maximum number of files with instructions of a session. Each of them is in every request to the model.
const FILES_MAX: usize = 32;

/// Maximum size of all instructions in bytes, about 16,000 tokens.
const BYTES_MAX: usize = 64 * 1_024;

/// Files with instructions in a folder.
const FILES: [&str; 2] = ["AGENTS.md", ".github/copilot-instructions.md"];

/// Folder with further files whose names end with [`SUFFIX`].
const FOLDER: &str = ".github/instructions";
const SUFFIX: &str = ".instructions.md";

/// Adds the instructions of the requested folders to the system prompt. Missing and unreadable files are left out.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn add(choice: &mut SessionChoice) {
    let folders = choice.requested.instruction_directories.as_deref();
    let mut files = Vec::new();
    for folder in folders.unwrap_or_default() {
        files.extend(FILES.iter().map(|name| folder.join(name)));
        files.extend(listed(&folder.join(FOLDER)).await);
    }
    let mut text = String::new();
    for file in files.iter().take(FILES_MAX) {
        let read = tokio::fs::read_to_string(file).await.unwrap_or_default();
        if !read.trim().is_empty() && text.len() + read.len() <= BYTES_MAX {
            text.push_str("\n\n");
            text.push_str(&read);
        }
    }
    if text.is_empty() {
        return;
    }
    let with = |before: &str| Arc::from(format!("{before}{text}").trim_start());
    choice.system_prompt = match &choice.system_prompt {
        SystemPrompt::Replaced(before) => SystemPrompt::Replaced(with(before)),
        SystemPrompt::Appended(before) => SystemPrompt::Appended(with(before)),
        _ => SystemPrompt::Appended(with("")),
    };
}

/// Files with instructions in a folder, in the order of their names.
async fn listed(folder: &Path) -> Vec<PathBuf> {
    let Ok(mut entries) = tokio::fs::read_dir(folder).await else {
        return Vec::new();
    };
    let mut files = Vec::new();
    while let Ok(Some(entry)) = entries.next_entry().await {
        if entry.file_name().to_string_lossy().ends_with(SUFFIX) {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}
