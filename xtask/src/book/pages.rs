//! Pages of the book: their list, and their links.

use std::path::{Component, Path, PathBuf};

use regex::{Captures, Regex};

/// A link in Markdown: the text in brackets, and the target in parentheses.
fn link() -> Regex {
    Regex::new(r"\[([^\[\]]*)\]\(([^()\s]+)\)").expect("a valid expression")
}

/// Returns the pages that docs/SUMMARY.md lists, as paths from the root of the repository.
pub(super) fn listed(summary: &str) -> Vec<String> {
    let summary = from_root(summary);
    let links = link();
    let targets = links.captures_iter(&summary);
    targets.map(|target| target[2].to_owned()).collect()
}

/// Replaces the targets of docs/SUMMARY.md, which begin at `docs`, by paths from the root of the repository.
pub(super) fn from_root(summary: &str) -> String {
    let replaced = link().replace_all(summary, |link: &Captures<'_>| {
        let path = normal(&Path::new("docs").join(&link[2]));
        format!("[{}]({})", &link[1], path.display())
    });
    replaced.into_owned()
}

/// Replaces each relative link of a page whose target is not in the book by its text. Code stays as it is.
pub(super) fn without_other_links(text: &str, page: &Path, kept: &[PathBuf]) -> String {
    let folder = page.parent().unwrap_or(Path::new(""));
    let (links, mut is_code) = (link(), false);
    let mut changed = String::with_capacity(text.len());
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code {
            changed += line;
        } else {
            changed += &links.replace_all(line, |link: &Captures<'_>| {
                let path = link[2].split('#').next().unwrap_or_default();
                let is_kept = path.is_empty()
                    || path.contains("://")
                    || kept.contains(&normal(&folder.join(path)));
                link[usize::from(!is_kept)].to_owned()
            });
        }
        changed.push('\n');
    }
    changed
}

/// Resolves `.` and `..` in a relative path, without a look at the file system.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_lists_paths_from_the_root() {
        let summary = "[Allstop](../README.md)\n- [Chat](chat.md)\n  - [A](embed/a.md)\n";
        assert_eq!(
            listed(summary),
            ["README.md", "docs/chat.md", "docs/embed/a.md"]
        );
        assert!(from_root(summary).contains("- [Chat](docs/chat.md)\n"));
    }

    #[test]
    fn links_to_sources_become_text() {
        let kept = [PathBuf::from("README.md"), PathBuf::from("docs/b.md")];
        let text = "[a](../README.md) [b](b.md#c) [c](../crates/x.rs) [d](#e) [f](https://g.h)\n```\n[i](j.rs)\n```\n";
        assert_eq!(
            without_other_links(text, Path::new("docs/a.md"), &kept),
            "[a](../README.md) [b](b.md#c) c [d](#e) [f](https://g.h)\n```\n[i](j.rs)\n```\n"
        );
    }
}
