//! The commands that the documents teach exist.

use std::path::Path;
use std::process::Command;

use anyhow::bail;

use crate::documents::{self, code};
use crate::{SUBCOMMANDS, exec};

/// Checks every `cargo xtask WORD`, in prose too.
pub(crate) fn check_xtask() -> anyhow::Result<()> {
    documents::report(|text, _| {
        let unknown = xtask_words(text).filter(|word| !SUBCOMMANDS.contains(word));
        unknown
            .map(|word| format!("no `cargo xtask {word}`"))
            .collect()
    })
}

/// Asks the built binary for the help of every subcommand that a reader could paste from a document.
pub(crate) fn check_allstop(binary: &Path) -> anyhow::Result<()> {
    if !binary.exists() {
        bail!("{} was not built", binary.display());
    }
    documents::report(|text, _| {
        let unknown = code(text).filter_map(allstop_word).filter(|word| {
            // Its complaint about an unknown word is on standard error, where the reader sees it.
            exec::output(Command::new(binary).args([word, "--help"])).is_err()
        });
        unknown.map(|word| format!("no `allstop {word}`")).collect()
    })
}

/// The word after each `cargo xtask`.
fn xtask_words(text: &str) -> impl Iterator<Item = &str> {
    text.split("cargo xtask ").skip(1).filter_map(word)
}

/// The subcommand of `allstop` that a line of a terminal names.
fn allstop_word(line: &str) -> Option<&str> {
    let line = line.trim_start().trim_start_matches("$ ");
    let arguments = if line.starts_with("cargo run ") {
        line.split_once(" -- ")?.1
    } else {
        let (program, arguments) = line.split_once(' ')?;
        (program.rsplit('/').next() == Some("allstop")).then_some(arguments)?
    };
    word(arguments)
}

/// The word that a text begins with, unless it is a flag or a placeholder.
fn word(text: &str) -> Option<&str> {
    let word = text
        .split(|char: char| !char.is_ascii_lowercase() && char != '-')
        .next()?;
    (!word.is_empty() && !word.starts_with('-')).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_after_cargo_xtask() {
        let words = |text| xtask_words(text).collect::<Vec<_>>();
        assert_eq!(
            words("run `cargo xtask tets`, then cargo xtask bench -- x"),
            ["tets", "bench"]
        );
        assert_eq!(words("`cargo xtask --help`, `cargo xtask ARGS`"), [""; 0]);
    }

    #[test]
    fn words_after_allstop() {
        for (line, expected) in [
            ("cargo run --release -- demo  # a minute", Some("demo")),
            ("$ allstop run 'Fix it'", Some("run")),
            ("target/release/allstop sessions list", Some("sessions")),
            ("allstop --version", None),
            ("allstop [receipt]", None),
            ("cargo run --release", None),
            ("pip install allstop now", None),
        ] {
            assert_eq!(allstop_word(line), expected, "{line}");
        }
    }
}
