//! Checks the relative links of all documents. Also checks that each source file that ARCHITECTURE.md names in code
//! font exists.

use std::path::Path;

use anyhow::bail;

use crate::documents::{self, prose};
use crate::workspace;

pub(crate) fn check() -> anyhow::Result<()> {
    let map = std::fs::read_to_string(workspace::root().join("ARCHITECTURE.md"))?;
    let missing = missing_files(&map, &workspace::root().join("crates"));
    if !missing.is_empty() {
        bail!(
            "ARCHITECTURE.md names missing files: {}",
            missing.join(", ")
        );
    }
    documents::report(|text, folder| {
        dead_links(text, folder)
            .into_iter()
            .map(|link| format!("dead link {link}"))
            .collect()
    })
}

/// Returns the names of files in code font, such as `scope/src/barrier.rs`, that do not exist below `crates`. Ignores
/// names without a folder.
fn missing_files<'a>(map: &'a str, crates: &Path) -> Vec<&'a str> {
    let in_code_font = prose(map).flat_map(|line| line.split('`').skip(1).step_by(2));
    in_code_font
        .filter(|code| code.contains('/') && !code.contains(['*', '<', ' ']))
        .filter(|code| code.contains("/src"))
        .filter(|code| !crates.join(code.trim_end_matches('/')).exists())
        .collect()
}

/// Returns the relative links of a document in `folder` whose target file or heading does not exist.
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
                // A fragment names a heading only if the target is a Markdown document. In a source file, the fragment
                // names a line.
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

/// Returns the targets of inline links `[…](target)` and of definitions `[…]: target`, outside of code.
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

/// Returns the fragment with which common renderers link to a heading. `None` if the line is not a heading.
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

#[cfg(test)]
mod tests {
    #[test]
    fn missing_file_of_the_map_is_found() {
        let crates = crate::workspace::root().join("crates");
        let map = "see `scope/src/barrier.rs`, `nowhere/src/barrier.rs` and `barrier.rs`";
        assert_eq!(
            super::missing_files(map, &crates),
            ["nowhere/src/barrier.rs"]
        );
    }

    use super::*;
    use crate::workspace;

    #[track_caller]
    fn check_links(text: &str, expected: &[&str]) {
        assert_eq!(dead_links(text, workspace::root()), expected);
    }

    #[test]
    fn valid_links_pass() {
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
    fn dead_links_are_reported() {
        check_links("[a](missing.md) and [b](Cargo.toml)", &["missing.md"]);
        check_links("# Here\n[a](#there)", &["#there"]);
        check_links("[ref]: missing/file.rs \"title\"", &["missing/file.rs"]);
        check_links(
            "[a](CONTRIBUTING.md#no-such-heading)",
            &["CONTRIBUTING.md#no-such-heading"],
        );
    }
}
