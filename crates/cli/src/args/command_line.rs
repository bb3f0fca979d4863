//! Parser of the command line; it runs before the output threads exist.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use allstop_terminal::escape;
use clap::builder::Styles;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory as _, FromArgMatches as _};

use super::{Cli, aliases, help_end, variables};
use crate::error::{CliError, ErrorForm};
use crate::host::variable;
use crate::run::discard_receipt;
use crate::shell_quote::quoted;
use crate::start_error::{print_json, write_stderr};

/// Exit code of wrong usage.
const USAGE: u8 = 2;

/// The command with its subcommands, and with the complete help of each.
pub(crate) fn command() -> Command {
    help_end::complete(Cli::command())
}

/// Parses the command line. For the help, the version and usage errors, prints the text itself and returns an exit
/// code.
///
/// # Errors
/// The exit code of a usage error, of the help or of the version.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    let is_at_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let args = arguments(std::env::args_os().collect(), is_at_terminal);
    let command = variables::only_effective(command(), &args);
    let parsed = command.clone().try_get_matches_from(&args);
    let parsed = parsed.and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches);
        cli.map_err(|error| error.format(&mut command.clone()))
    });
    parsed.map_err(|error| {
        // Render the message again without styles. Control characters in the result come from the user's arguments.
        let command = command.styles(Styles::plain());
        let again = command.try_get_matches_from(&args);
        let plain = again.err().map(|error| error.render().ansi().to_string());
        let safe = plain.as_deref().map(escape::text);
        let mut stdout = std::io::stdout();
        let printed = match (&plain, safe) {
            (Some(plain), Some(safe)) if *plain != safe && error.use_stderr() => {
                write_stderr(&safe);
                Ok(())
            }
            (Some(plain), Some(safe)) if *plain != safe => write!(stdout, "{safe}"),
            _ => error.print(),
        };
        // The reader of the output may have closed the pipe.
        let is_lost = |error: &std::io::Error| error.kind() != std::io::ErrorKind::BrokenPipe;
        if !error.use_stderr()
            && let Err(error) = printed.and_then(|()| stdout.flush())
            && is_lost(&error)
        {
            write_stderr(&format!(
                "error: standard output cannot be written: {error}\n"
            ));
            return ExitCode::from(1);
        }
        if error.use_stderr()
            && let Some(path) = receipt_file(&args)
        {
            discard_receipt(&path);
        }
        let hint = hint(error.kind(), &args);
        if error.use_stderr() && wants_json(&args) {
            let message = usage_message(plain.as_deref().unwrap_or_default());
            let mut problem = CliError::usage(message);
            problem.hint.clone_from(&hint);
            problem
                .json(ErrorForm::Document)
                .iter()
                .for_each(|json| print_json(json));
        }
        if let Some(hint) = hint {
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
fn arguments(mut args: Vec<OsString>, is_at_terminal: bool) -> Vec<OsString> {
    let is_of_sdk = is_of_sdk(&args);
    let at = command_at(&args);
    let first = args.get(at).map(|first| first.as_bytes());
    if is_of_sdk {
        if first.is_some_and(|first| first != b"copilot") {
            args.insert(at, "copilot".into());
        }
        remove_ignored_flags(&mut args);
    } else if first.is_some_and(is_prompt) {
        args.insert(at, "run".into());
    } else {
        aliases::replace(&mut args, at, is_at_terminal);
    }
    args
}

/// True for the arguments of a Copilot SDK. The SDK for Rust passes `--server` instead of `--headless`; other commands
/// have a flag `--server` too, but none of the other two.
fn is_of_sdk(args: &[OsString]) -> bool {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    has("--headless") || has("--server") && (has("--stdio") || has("--port"))
}

/// Flags of the official runtime that `copilot` ignores, and true if a value follows the flag.
const IGNORED_FLAGS: [(&str, bool); 19] = [
    ("--add-dir", true),
    ("--additional-mcp-config", true),
    ("--agent", true),
    ("--allow-all", false),
    ("--allow-all-mcp-server-instructions", false),
    ("--allow-all-paths", false),
    ("--allow-all-tools", false),
    ("--allow-all-urls", false),
    ("--allow-tool", true),
    ("--allow-url", true),
    ("--deny-tool", true),
    ("--deny-url", true),
    ("--disable-builtin-mcps", false),
    ("--disable-mcp-server", true),
    ("--experimental", false),
    ("--no-ask-user", false),
    ("--no-color", false),
    ("--no-custom-instructions", false),
    ("--yolo", false),
];

/// Removes the flags that `copilot` ignores, and reports them on standard error. The SDKs pass the flags of their users to
/// the server.
fn remove_ignored_flags(args: &mut Vec<OsString>) {
    let mut removed = Vec::new();
    let mut is_value = false;
    args.retain(|arg| {
        let text = arg.to_string_lossy();
        if std::mem::take(&mut is_value) && !text.starts_with("--") {
            return false;
        }
        let (name, has_value) = text
            .split_once('=')
            .map_or((&*text, false), |(name, _)| (name, true));
        let Some((name, takes_value)) = IGNORED_FLAGS.iter().find(|(ignored, _)| *ignored == name)
        else {
            return true;
        };
        is_value = *takes_value && !has_value;
        removed.push(*name);
        false
    });
    if !removed.is_empty() {
        let flags = removed.join(" ");
        write_stderr(&format!("warning: ignored flags: {flags}\n"));
    }
}

/// Index of the first argument after the program and `-C DIR`.
fn command_at(args: &[OsString]) -> usize {
    match args.get(1).map(|first| first.as_bytes()) {
        Some(b"-C") => 3,
        Some(first) if first.starts_with(b"-C") => 2,
        _ => 1,
    }
}

/// True if a command line that the parser refuses asks for JSON.
fn wants_json(args: &[OsString]) -> bool {
    let mut flags = args.iter().take_while(|arg| *arg != "--");
    let is_given = flags.any(|arg| arg == "--json" || arg == "--stream-json");
    let is_run = args
        .get(command_at(args))
        .is_some_and(|command| command == "run");
    is_given || (is_run && variables::wants_json())
}

/// The message of a usage error: the text before the empty line, as one line, without `error: `.
fn usage_message(rendered: &str) -> String {
    let (message, _) = rendered.split_once("\n\n").unwrap_or((rendered, ""));
    let words = message.split_whitespace().collect::<Vec<_>>().join(" ");
    words.strip_prefix("error: ").unwrap_or(&words).to_owned()
}

/// Path of `--receipt-file` on a command line that the parser refuses, or in its variable.
fn receipt_file(args: &[OsString]) -> Option<PathBuf> {
    args.get(command_at(args))
        .filter(|command| *command == "run")?;
    let mut words = args.iter().skip(1).map(|arg| arg.as_bytes());
    let (mut file, mut folder): (Option<&[u8]>, Option<&[u8]>) = (None, None);
    while let Some(word) = words.next().filter(|word| *word != b"--") {
        match word {
            b"--receipt-file" => file = words.next(),
            b"-C" => folder = words.next(),
            _ => {
                file = word.strip_prefix(b"--receipt-file=").or(file);
                folder = word.strip_prefix(b"-C").or(folder);
            }
        }
    }
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let file = file.map(path);
    let file = file.or_else(|| variable("ALLSTOP_RECEIPT_FILE").map(PathBuf::from))?;
    Some(folder.map(path).unwrap_or_default().join(file))
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
    let given = args.get(command_at(args)..)?;
    let given: Vec<_> = given.iter().map(|word| word.to_string_lossy()).collect();
    let first = given.first()?;
    match kind {
        ErrorKind::InvalidSubcommand if let Some(feature) = missing_feature(first) => {
            Some(format!(
                "this program was built without the feature `{feature}`: use a released `allstop`, or build it with `--features {feature}`"
            ))
        }
        ErrorKind::InvalidSubcommand if let Some(hint) = aliases::hint(first) => {
            Some(hint.to_owned())
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
        ErrorKind::UnknownArgument
            if first == "run" && given.iter().any(|word| word == "-p" || word == "--prompt") =>
        {
            Some("the prompt needs no flag: allstop run \"fix the tests\"".to_owned())
        }
        ErrorKind::UnknownArgument if first.starts_with('-') => {
            Some("flags follow the command: allstop run --yes \"fix the tests\"".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

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
    fn receipt_file_of_a_wrong_command_line_is_found() {
        let path = |line: &[&str]| receipt_file(&words(line));
        for line in [
            &["run", "--nonsense", "--receipt-file", "r"][..],
            &["run", "--receipt-file=r", "--nonsense"],
        ] {
            assert_eq!(path(line), Some("r".into()), "{line:?}");
        }
        let below = path(&["-C", "sub", "run", "--receipt-file", "r"]);
        assert_eq!(below, Some("sub/r".into()));
        assert_eq!(path(&["run", "--", "--receipt-file", "r"]), None);
        assert_eq!(path(&["run", "--receipt-file"]), None);
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
            (
                &[
                    "--yolo",
                    "--headless",
                    "--allow-tool",
                    "x",
                    "--port",
                    "1",
                    "--add-dir=/",
                    "--stdio",
                ],
                &["copilot", "--headless", "--port", "1", "--stdio"],
            ),
            (
                &["--server", "--stdio", "--no-auto-update"],
                &["copilot", "--server", "--stdio", "--no-auto-update"],
            ),
            (
                &["tasks", "list", "--server", "http://[::1]:1"],
                &["tasks", "list", "--server", "http://[::1]:1"],
            ),
            (
                &["--headless", "--nonsense"],
                &["copilot", "--headless", "--nonsense"],
            ),
            (&["-C", "a b", "fix it"], &["-C", "a b", "run", "fix it"]),
            (&["-Csub", "fix it"], &["-Csub", "run", "fix it"]),
            (&["-C", "sub", "ps"], &["-C", "sub", "ps"]),
            (&[], &[]),
        ] {
            assert_eq!(arguments(words(given), false), words(read), "{given:?}");
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
