//! Checks that the commands in the documents exist.

use std::path::Path;
use std::process::Command;

use anyhow::bail;

use crate::documents::{self, code};
use crate::{SUBCOMMANDS, exec};

/// Checks every `cargo xtask WORD` in the documents, also in text outside of code blocks.
pub(crate) fn check_xtask() -> anyhow::Result<()> {
    documents::report(|text, _| {
        let unknown = xtask_words(text).filter(|word| !SUBCOMMANDS.contains(word));
        unknown
            .map(|word| format!("no `cargo xtask {word}`"))
            .collect()
    })
}

/// Runs the built binary with `--help` for every subcommand that occurs in a code block of a document.
pub(crate) fn check_allstop(binary: &Path) -> anyhow::Result<()> {
    if !binary.exists() {
        bail!("{} was not built", binary.display());
    }
    documents::report(|text, _| {
        let unknown = code(text).filter_map(allstop_word).filter(|word| {
            // An error message of the binary goes to standard error, where the user can read it.
            exec::output(Command::new(binary).args([word, "--help"])).is_err()
        });
        unknown.map(|word| format!("no `allstop {word}`")).collect()
    })
}

/// Returns the words that follow `cargo xtask`.
fn xtask_words(text: &str) -> impl Iterator<Item = &str> {
    text.split("cargo xtask ").skip(1).filter_map(word)
}

/// Returns the subcommand of `allstop` in a line of terminal input.
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

/// Returns the first word of a text, unless the word is a flag or a placeholder.
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
    fn words_after_cargo_xtask_are_found() {
        let words = |text| xtask_words(text).collect::<Vec<_>>();
        assert_eq!(
            words("run `cargo xtask tets`, then cargo xtask bench -- x"),
            ["tets", "bench"]
        );
        assert_eq!(words("`cargo xtask --help`, `cargo xtask ARGS`"), [""; 0]);
    }

    #[test]
    fn subcommands_of_allstop_are_found() {
        for (line, expected) in [
            ("cargo run -- demo  # a minute", Some("demo")),
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
