//! `cargo xtask book`: the book, made by mdBook from the documents that docs/SUMMARY.md lists.
//!
//! The pages keep their places in the repository, so their links to each other stay valid. A link to a source file becomes
//! plain text, because sources are not in the book. The samples of the chapters for embedders are documentation tests of
//! the crates `allstop` and `allstop-testkit`.

mod index;
mod pages;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::{exec, parts, workspace};

/// Folders with files that the pages show or link: pictures and schemas.
const FILES: [(&str, &str); 2] = [("docs", "svg"), ("schemas", "json")];

pub(crate) fn run() -> anyhow::Result<()> {
    exec::check("lists of documents", index::check)?;
    let html = build()?;
    println!("{}", html.join("index.html").display());
    Ok(())
}

/// Checks the lists of documents, and builds the book.
pub(crate) fn check() -> anyhow::Result<()> {
    index::check()?;
    build()?;
    Ok(())
}

/// Builds the book, and returns its folder.
fn build() -> anyhow::Result<PathBuf> {
    let mdbook = parts::MDBOOK.fetch()?.join("bin/mdbook");
    let root = workspace::root();
    let book = workspace::target_dir()?.join("book");
    if book.exists() {
        fs::remove_dir_all(&book)?;
    }
    let sources = book.join("src");
    fs::create_dir_all(&sources)?;
    fs::copy(root.join("docs/book.toml"), book.join("book.toml"))?;
    let summary = fs::read_to_string(root.join("docs/SUMMARY.md"))?;
    let listed = pages::listed(&summary);
    let mut kept: Vec<PathBuf> = listed.iter().map(PathBuf::from).collect();
    for (folder, extension) in FILES {
        for entry in fs::read_dir(root.join(folder))? {
            let name = PathBuf::from(folder).join(entry?.file_name());
            if name.extension() == Some(extension.as_ref()) {
                write(&sources.join(&name), &fs::read(root.join(&name))?)?;
                kept.push(name);
            }
        }
    }
    for page in &listed {
        let text =
            fs::read_to_string(root.join(page)).with_context(|| format!("cannot read {page}"))?;
        let text = pages::without_other_links(&text, Path::new(page), &kept);
        write(&sources.join(page), text.as_bytes())?;
    }
    write(
        &sources.join("SUMMARY.md"),
        pages::from_root(&summary).as_bytes(),
    )?;
    let mut command = Command::new(mdbook);
    // mdBook reports each chapter; only problems are of interest.
    command.arg("build").arg(&book).env("MDBOOK_LOG", "warn");
    exec::output(&mut command)?;
    Ok(book.join("html"))
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::create_dir_all(path.parent().context("a path without folder")?)?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
