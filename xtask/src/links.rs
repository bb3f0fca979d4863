//! The documents' relative links lead somewhere, and the commands that they teach exist.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::{SUBCOMMANDS, exec, workspace};

pub(crate) fn check() -> anyhow::Result<()> {
    let root = workspace::root();
    // Tracked or about to be, so neither the build folder nor an editor's leftovers.
    let listed = exec::output(std::process::Command::new("git").current_dir(root).args([
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
    let mut wrong = Vec::new();
    for document in &documents {
        let text = std::fs::read_to_string(document)
            .with_context(|| format!("cannot read {}", document.display()))?;
        let shown = document.strip_prefix(root).unwrap_or(document).display();
        let folder = document.parent().unwrap_or(root);
        wrong.extend(
            dead_links(&text, folder)
                .into_iter()
                .map(|link| format!("{shown}: dead link {link}")),
        );
        wrong.extend(
            unknown_commands(&text)
                .into_iter()
                .map(|word| format!("{shown}: no `cargo xtask {word}`")),
        );
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}", wrong.join("\n"))
}

/// The relative links of a document in `folder` that lead to no file, or to no heading of one.
fn dead_links(text: &str, folder: &Path) -> Vec<String> {
    links(text)
        .filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
        .filter(|link| {
            let (path, heading) = link
                .split_once('#')
                .map_or((*link, None), |(path, heading)| (path, Some(heading)));
            let target = folder.join(path);
            let there = path.is_empty() || target.exists();
            let heading_there = heading.is_none_or(|heading| {
                let other = if path.is_empty() {
                    Ok(text.to_owned())
                } else {
                    std::fs::read_to_string(&target)
                };
                // Only in a document is a fragment a heading; in code it is a line.
                !path.is_empty() && target.extension() != Some("md".as_ref())
                    || other.is_ok_and(|other| {
                        prose(&other).any(|line| slug(line).as_deref() == Some(heading))
                    })
            });
            !(there && heading_there)
        })
        .map(str::to_owned)
        .collect()
}

/// Targets of inline links `[…](target)` and of definitions `[…]: target`, outside of code.
fn links(text: &str) -> impl Iterator<Item = &str> {
    prose(text).flat_map(|line| {
        let definition = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "))
            .map(|(_, target)| target);
        let inline = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'))
            .map(|(target, _)| target);
        inline
            .chain(definition)
            .filter_map(|target| target.split_whitespace().next())
    })
}

/// The lines outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The fragment that leads to a heading, if the line is one: as the usual renderers make it.
fn slug(line: &str) -> Option<String> {
    let title = line
        .strip_prefix('#')?
        .trim_start_matches('#')
        .strip_prefix(' ')?;
    let kept = title
        .trim()
        .chars()
        .filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
    Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
}

/// The words after `cargo xtask` that are no subcommands.
fn unknown_commands(text: &str) -> Vec<String> {
    text.split("cargo xtask ")
        .skip(1)
        .map(|rest| {
            rest.split(|char: char| !char.is_ascii_alphanumeric() && char != '-')
                .next()
                .unwrap_or_default()
        })
        .filter(|word| !word.is_empty() && !SUBCOMMANDS.contains(word))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_links(text: &str, expected: &[&str]) {
        assert_eq!(dead_links(text, workspace::root()), expected);
    }

    #[test]
    fn links_that_lead_somewhere() {
        check_links(
            "[a](Cargo.toml) [b](https://example.org/x) [c](crates/core#L3)",
            &[],
        );
        check_links(
            "# Who it is for, and who not\n[a](#who-it-is-for-and-who-not)",
            &[],
        );
        check_links("[code]: xtask/src/links.rs", &[]);
        check_links("```\n[a](missing.md)\n```", &[]);
    }

    #[test]
    fn links_that_lead_nowhere() {
        check_links("[a](missing.md) and [b](Cargo.toml)", &["missing.md"]);
        check_links("# Here\n[a](#there)", &["#there"]);
        check_links("[ref]: missing/file.rs \"title\"", &["missing/file.rs"]);
        check_links(
            "[a](CONTRIBUTING.md#no-such-heading)",
            &["CONTRIBUTING.md#no-such-heading"],
        );
    }

    #[test]
    fn commands_that_exist_and_one_that_does_not() {
        assert!(unknown_commands("`cargo xtask test`, cargo xtask bench -- x").is_empty());
        assert_eq!(unknown_commands("run `cargo xtask tets`"), ["tets"]);
    }
}
