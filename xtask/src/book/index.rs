//! The two lists of documents, docs/SUMMARY.md and llms.txt. Each must list every page of `docs`, and no missing file.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, bail};

use super::pages;
use crate::{documents, workspace};

pub(super) fn check() -> anyhow::Result<()> {
    let root = workspace::root();
    let mut documents = BTreeSet::new();
    for path in documents::list()? {
        let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
        if name.starts_with("docs/") && name != "docs/SUMMARY.md" {
            documents.insert(name);
        }
    }
    let read = |name: &str| {
        fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))
    };
    let llms = read("llms.txt")?;
    let mut wrong = wrong_form(&llms);
    let lists = [
        ("docs/SUMMARY.md", pages::listed(&read("docs/SUMMARY.md")?)),
        ("llms.txt", links(&llms).map(str::to_owned).collect()),
    ];
    for (list, entries) in lists {
        let missing = documents.iter().filter(|name| !entries.contains(name));
        wrong.extend(missing.map(|name| format!("{list} does not list {name}")));
        let dead = entries.iter().filter(|name| !root.join(name).exists());
        wrong.extend(dead.map(|name| format!("{list} lists {name}, which does not exist")));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}", wrong.join("\n"))
}

/// Targets of the entries of llms.txt.
fn links(llms: &str) -> impl Iterator<Item = &str> {
    let entries = llms.lines().filter_map(|line| line.strip_prefix("- ["));
    entries.filter_map(|entry| entry.split_once("](")?.1.split(')').next())
}

/// Returns the problems of the form of llms.txt: a title, a summary, and sections with described links.
fn wrong_form(llms: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if !llms.starts_with("# ") || !llms.contains("\n\n> ") {
        wrong.push("llms.txt has no title or no summary".to_owned());
    }
    for entry in llms.lines().filter(|line| line.starts_with("- [")) {
        let description = entry.split_once("): ").map(|(_, description)| description);
        if description.is_none_or(str::is_empty) {
            wrong.push(format!("llms.txt: no description: {entry}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_this_repository_are_complete() {
        check().expect("the lists");
    }

    #[test]
    fn entry_without_a_description_is_named() {
        let llms = "# A\n\n> B\n\n## C\n\n- [D](d.md): e\n- [F](f.md)\n";
        assert_eq!(links(llms).collect::<Vec<_>>(), ["d.md", "f.md"]);
        assert_eq!(wrong_form(llms), ["llms.txt: no description: - [F](f.md)"]);
        assert_eq!(wrong_form("A").len(), 1);
    }
}
