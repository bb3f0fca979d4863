//! Checks of the Rust sources: type names, doc lines, import cycles and structs that will grow.
//!
//! Each check reads only files that git tracks or does not ignore, and never build results.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::{exec, workspace};

mod doc_lines;
mod growing_structs;
mod import_cycles;
mod imports;
mod type_names;

/// Runs all checks, even if one of them fails, so that one run reports all complaints.
pub(crate) fn run() -> anyhow::Result<()> {
    let checks = [
        (
            "type names",
            type_names::check as fn() -> anyhow::Result<()>,
        ),
        ("doc lines", doc_lines::check),
        ("import cycles", import_cycles::check),
        ("structs that will grow", growing_structs::check),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        if let Err(error) = exec::check(name, check) {
            println!("{error:#}");
            failed.push(name);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    bail!("failed: {}", failed.join(", "))
}

/// A file of the repository. Its path begins at the root of the repository.
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// Reads every file that matches a pathspec of git and that git tracks or does not ignore.
pub(crate) fn read(pathspec: &str) -> anyhow::Result<Vec<SourceFile>> {
    let root = workspace::root();
    let listed = exec::output(Command::new("git").current_dir(root).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        pathspec,
    ]))?;
    let mut files = Vec::new();
    for path in listed.lines().map(PathBuf::from) {
        let whole = root.join(&path);
        // The index of git still contains a file that was deleted, until the deletion is committed.
        if whole.exists() {
            let text = std::fs::read_to_string(&whole)
                .with_context(|| format!("cannot read {}", whole.display()))?;
            files.push(SourceFile { path, text });
        }
    }
    if files.is_empty() {
        bail!("no file matches {pathspec}, so nothing was checked");
    }
    Ok(files)
}

/// Parses the text of a file.
pub(crate) fn parse(path: &Path, text: &str) -> anyhow::Result<syn::File> {
    syn::parse_file(text).with_context(|| format!("cannot parse {}", path.display()))
}

/// True for the attributes of an item that is compiled only for tests.
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|condition| condition.is_ident("test"))
    })
}
