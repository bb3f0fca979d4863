//! Parser of the command line; it runs before the output threads exist.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use allstop_terminal::escape;
use clap::builder::Styles;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use super::Cli;
use crate::shell_quote::quoted;
use crate::start_error::write_stderr;

/// Exit code of wrong usage.
const USAGE: u8 = 2;

/// Parses the command line. For the help, the version and usage errors, prints the text itself and returns an exit
/// code.
///
/// # Errors
/// The exit code of a usage error, of the help or of the version.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    let args = arguments(std::env::args_os().collect());
    Cli::try_parse_from(&args).map_err(|error| {
        // Render the message again without styles. Control characters in the result come from the user's arguments.
        let command = Cli::command().styles(Styles::plain());
        let again = command.try_get_matches_from(&args);
        let plain = again.err().map(|error| error.render().ansi().to_string());
        let safe = plain.as_deref().map(escape::text);
        // Write errors are ignored: the reader of the output may have closed the pipe.
        match (&plain, safe) {
            (Some(plain), Some(safe)) if *plain != safe && error.use_stderr() => {
                write_stderr(&safe);
            }
            (Some(plain), Some(safe)) if *plain != safe => {
                drop(write!(std::io::stdout(), "{safe}"));
            }
            _ => drop(error.print()),
        }
        if let Some(hint) = hint(error.kind(), &args) {
            write_stderr(&format!("\nhint: {}\n", escape::text(&hint)));
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
    })
}

/// Adds a missing subcommand: `copilot` or `run`.
///
/// The Copilot SDKs start the binary in `COPILOT_CLI_PATH`, but pass no subcommand. A first argument with white space
/// is a prompt, because no subcommand contains a space. A single word is never taken as a prompt: otherwise a mistyped
/// subcommand would be sent to a model.
fn arguments(mut args: Vec<OsString>) -> Vec<OsString> {
    let is_of_sdk = args.iter().any(|arg| arg == "--headless");
    let first = args.get(1).map(|first| first.as_bytes());
    if is_of_sdk && first.is_some_and(|first| first != b"copilot") {
        args.insert(1, "copilot".into());
    } else if first.is_some_and(is_prompt) {
        args.insert(1, "run".into());
    }
    args
}

fn is_prompt(argument: &[u8]) -> bool {
    !argument.starts_with(b"-") && argument.iter().any(u8::is_ascii_whitespace)
}

/// Cargo feature that the command needs, if this build lacks the feature.
fn missing_feature(command: &str) -> Option<&'static str> {
    match command {
        "copilot" if !cfg!(feature = "copilot") => Some("copilot"),
        "worker" | "workers" if !cfg!(feature = "nats") => Some("nats"),
        _ => None,
    }
}

/// Hint for a command line whose first argument is not a subcommand.
fn hint(kind: ErrorKind, args: &[OsString]) -> Option<String> {
    let (_, given) = args.split_first()?;
    let given: Vec<_> = given.iter().map(|word| word.to_string_lossy()).collect();
    let first = given.first()?;
    match kind {
        ErrorKind::InvalidSubcommand if let Some(feature) = missing_feature(first) => {
            Some(format!(
                "this program was built without the feature `{feature}`: use a released `allstop`, or build it with `--features {feature}`"
            ))
        }
        ErrorKind::InvalidSubcommand if Cli::command().find_subcommand(&**first).is_none() => {
            let prompt: Vec<_> = given
                .iter()
                .take_while(|word| !word.starts_with('-'))
                .cloned()
                .collect();
            Some(format!(
                "to send a prompt: allstop run {}",
                quoted(&prompt.join(" "))
            ))
        }
        ErrorKind::UnknownArgument if first.starts_with('-') => {
            Some("flags follow the command: allstop run --yes \"fix the tests\"".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[&str]) -> Vec<OsString> {
        let all = ["allstop"].iter().chain(line);
        all.map(OsString::from).collect()
    }

    #[test]
    fn single_word_gets_the_command_that_sends_it() {
        for (given, command) in [
            (&["hello"][..], "allstop run hello"),
            (&["hello", "you", "--yes"], "allstop run 'hello you'"),
        ] {
            let hint = hint(ErrorKind::InvalidSubcommand, &words(given));
            let hint = hint.expect("a hint");
            assert!(hint.ends_with(command), "{hint}");
        }
    }

    #[test]
    fn age_is_not_called_a_deadline() {
        let words = words(&["sessions", "prune", "--older-than", "0s"]);
        let error = Cli::try_parse_from(words).expect_err("no age");
        assert!(
            error.to_string().contains("an age must be longer than 0"),
            "{error}"
        );
    }

    #[test]
    fn first_argument_of_several_words_is_a_prompt() {
        for (given, read) in [
            (&["fix it"][..], &["run", "fix it"][..]),
            (&["fix it", "--yes"], &["run", "fix it", "--yes"]),
            (&["fix"], &["fix"]),
            (&["sesions", "list"], &["sesions", "list"]),
            (&["run", "fix it"], &["run", "fix it"]),
            (&["-x y"], &["-x y"]),
            (&["--headless", "a b"], &["copilot", "--headless", "a b"]),
            (&[], &[]),
        ] {
            assert_eq!(arguments(words(given)), words(read), "{given:?}");
        }
    }

    #[test]
    fn wrong_first_word_gets_a_hint() {
        for (line, has_hint) in [
            (&["fix", "the", "tests"][..], true),
            (&["--yes", "fix it"], true),
            (&["sessions", "lst"], false),
            (&["run", "--nonsense", "x"], false),
            (&["--help"], false),
        ] {
            let args = words(line);
            let error = Cli::try_parse_from(&args).unwrap_err();
            assert_eq!(hint(error.kind(), &args).is_some(), has_hint, "{line:?}");
        }
    }
}
