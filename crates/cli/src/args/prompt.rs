//! Prompts on the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap::Args;

use crate::error::CliError;

/// Argument that stands for standard input.
pub(crate) const STDIN: &str = "-";

/// Prompts of a run.
#[derive(Debug, Args)]
pub(crate) struct PromptArgs {
    /// Task for the agent, with or without quotes; `-` reads it from standard input. Other piped input
    /// becomes part of the first prompt: `cat file | allstop run "explain this"`
    #[arg(required_unless_present = "images", value_name = "PROMPT")]
    words: Vec<OsString>,
    /// Prompt of another turn, which follows the previous turn; repeatable
    #[arg(long, value_name = "PROMPT")]
    then: Vec<OsString>,
    /// Image for the first prompt, in a PNG, JPEG, GIF or WebP file; repeatable
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<PathBuf>,
}

impl PromptArgs {
    /// The prompt of each turn.
    ///
    /// # Errors
    /// If the words look like several prompts, or if they contain `-` among other words.
    pub(crate) fn turns(&self) -> Result<Vec<OsString>, CliError> {
        let is_quoted = |word: &OsString| word.as_bytes().iter().any(u8::is_ascii_whitespace);
        if self.words.len() > 1 && self.words.iter().all(is_quoted) {
            return Err(CliError::usage("more than one quoted prompt").hint(
                "for one prompt, quote it as a whole; for one turn each: allstop run \"…\" --then \"…\"",
            ));
        }
        if self.words.len() > 1 && self.words.iter().any(|word| word == STDIN) {
            return Err(
                CliError::usage("`-` cannot be combined with other words").hint("standard input is a separate prompt: allstop run \"…\" --then -, or allstop run - --then \"…\""),
            );
        }
        let first = joined(&self.words);
        Ok([first].into_iter().chain(self.then.clone()).collect())
    }
}

/// Joins words that the shell has separated into one prompt.
fn joined(words: &[OsString]) -> OsString {
    words.join(OsStr::new(" "))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, CliCommand};

    fn turns(line: &[&str]) -> Result<Vec<OsString>, CliError> {
        let words = ["allstop", "run"].iter().chain(line);
        let CliCommand::Run(args) = Cli::try_parse_from(words).unwrap().command else {
            unreachable!("the command is `run`");
        };
        args.prompts.turns()
    }

    #[test]
    fn words_are_one_prompt_and_then_adds_turns() {
        assert_eq!(turns(&["fix it"]).unwrap(), ["fix it"]);
        assert_eq!(turns(&["fix", "the", "tests"]).unwrap(), ["fix the tests"]);
        assert_eq!(
            turns(&["fix", "my file.rs", "--yes", "please"]).unwrap(),
            ["fix my file.rs please"]
        );
        assert_eq!(
            turns(&["one", "--then", "two", "--then", "-"]).unwrap(),
            ["one", "two", "-"]
        );
    }

    #[test]
    fn prompts_that_may_be_several_are_refused() {
        for line in [&["fix it", "and test it"][..], &["explain", "-"]] {
            let problem = turns(line).unwrap_err();
            assert_eq!(problem.code(), 2);
            assert!(problem.hint.unwrap().contains("--then"), "{line:?}");
        }
    }
}
