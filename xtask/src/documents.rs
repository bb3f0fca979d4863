//! The Markdown documents of the repository, and their code blocks.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::{exec, workspace};

/// Collects the complaints about all documents, and fails if there are any. `complaints` receives the text of a
/// document and the folder of the document.
pub(crate) fn report(complaints: impl Fn(&str, &Path) -> Vec<String>) -> anyhow::Result<()> {
    let root = workspace::root();
    let mut all = Vec::new();
    for document in list()? {
        let text = std::fs::read_to_string(&document)
            .with_context(|| format!("cannot read {}", document.display()))?;
        let shown = document.strip_prefix(root).unwrap_or(&document).display();
        let found = complaints(&text, document.parent().unwrap_or(root));
        all.extend(
            found
                .into_iter()
                .map(|complaint| format!("{shown}: {complaint}")),
        );
    }
    if all.is_empty() {
        return Ok(());
    }
    bail!("{}", all.join("\n"))
}

/// Returns the documents that git tracks or does not ignore. The build folder and an editor's temporary files are
/// ignored.
pub(crate) fn list() -> anyhow::Result<Vec<PathBuf>> {
    let root = workspace::root();
    let listed = exec::output(Command::new("git").current_dir(root).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "*.md",
    ]))?;
    let documents: Vec<PathBuf> = listed
        .lines()
        .map(|path| root.join(path))
        .filter(|path| path.exists())
        .collect();
    if documents.is_empty() {
        bail!("no document found, so nothing was checked");
    }
    Ok(documents)
}

/// Returns the lines outside of fenced code.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = &str> {
    numbered_prose(text).map(|(_, line)| line)
}

/// Returns the lines outside of fenced code, with their numbers.
pub(crate) fn numbered_prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    lines(text).filter_map(|(number, line, code)| (!code).then_some((number, line)))
}

/// Returns the lines of fenced code, without the fences.
pub(crate) fn code(text: &str) -> impl Iterator<Item = &str> {
    lines(text).filter_map(|(_, line, code)| code.then_some(line))
}

/// Returns each line with its number. The flag is true if the line is code. The lines of the fences are omitted.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fence).then_some((number, line, fenced))
    })
}
