//! Match of a simple command with a rule that denies or asks.
//!
//! A match is uncertain if the command may do the action that the rule names. There are three reasons. The program of
//! the command is known only at run time, the program can run other programs that its arguments name, or options
//! precede the subcommand of the rule. A rule that allows the command does not remove the doubt. With the rules
//! `allow = ["shell:env"]` and `deny = ["shell:rm"]`, a person is asked about `env rm`.
//!
//! A program that [`launchers`] does not list is assumed to run no other program. The opposite assumption would make
//! the option `--yes`, which permits calls in advance, useless as soon as a denying rule exists. Even `cargo test` runs
//! other programs, the tests. So a denying rule guards only against plain forms of a command, and is not a sandbox.

use super::launchers;
use super::parsed::{CommandWord, PrefixMatch};

/// Words of shell syntax that can precede a command.
const BEFORE_A_COMMAND: &[&str] = &[
    "!", "do", "done", "elif", "else", "fi", "if", "then", "time", "until", "while", "{", "}",
];

pub(super) fn of(words: &[CommandWord], prefix: &[String]) -> PrefixMatch {
    let mut result = PrefixMatch::No;
    let mut words = words;
    // A quoted word from `BEFORE_A_COMMAND` is the name of a program, but the parsed words do not show quotes. So the
    // rule is compared twice: with the words from this word on, and with the words after this word.
    while let [first, rest @ ..] = words {
        result = result.max(of_program(words, prefix));
        if is_assignment(first) {
            // The variable may name a program to run, like `PAGER`, or the folders in which programs are searched.
            result = result.max(PrefixMatch::Uncertain);
        } else if !BEFORE_A_COMMAND.contains(&&*first.text) {
            break;
        }
        words = rest;
    }
    result
}

fn is_assignment(word: &CommandWord) -> bool {
    word.text.contains('=')
}

fn of_program(words: &[CommandWord], prefix: &[String]) -> PrefixMatch {
    let ([first, arguments @ ..], [wanted, wanted_arguments @ ..]) = (words, prefix) else {
        return PrefixMatch::No;
    };
    // A single `{`, `}` or `[` expands to itself.
    if first.expands && !matches!(&*first.text, "{" | "}" | "[") {
        return PrefixMatch::Uncertain;
    }
    // `/proc/self/exe` is the shell itself.
    if first.text.split('/').any(|folder| folder == "proc") {
        return PrefixMatch::Uncertain;
    }
    // The folder is ignored: `/bin/rm` is `rm`.
    let program = file_name(&first.text);
    if program != wanted && first.text != *wanted {
        // A rule whose program contains a folder may mean the same file: `/bin/rm` is `rm`, and `./x.sh` is
        // `sub/../x.sh`.
        if program == file_name(wanted)
            && of_arguments(program, arguments, wanted_arguments) != PrefixMatch::No
        {
            return PrefixMatch::Uncertain;
        }
        // `git-push` is the program that `git push` runs.
        let is_a_part = program
            .strip_prefix(&**wanted)
            .is_some_and(|rest| rest.starts_with('-') && !wanted_arguments.is_empty());
        return if is_a_part || launchers::may_run_another(program, arguments) {
            PrefixMatch::Uncertain
        } else {
            PrefixMatch::No
        };
    }
    of_arguments(program, arguments, wanted_arguments)
}

/// Matches the arguments of the program that the rule names.
fn of_arguments(program: &str, arguments: &[CommandWord], wanted: &[String]) -> PrefixMatch {
    if starts_with(arguments, wanted) {
        return PrefixMatch::Yes;
    }
    let has_options_first = arguments.first().is_some_and(|word| {
        word.expands || word.text.starts_with(['-', '+']) || word.text.is_empty()
    });
    // `tar xf` is `tar -xf`.
    let has_old_style_options =
        matches!(program, "ar" | "ps" | "tar" | "bsdtar") && asks_for_option(wanted);
    if has_options_first
        || has_old_style_options
        || may_mean_the_same(arguments, wanted)
        || launchers::may_run_another(program, arguments)
    {
        PrefixMatch::Uncertain
    } else {
        PrefixMatch::No
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn asks_for_option(wanted: &[String]) -> bool {
    wanted.iter().any(|want| want.starts_with('-'))
}

fn starts_with(words: &[CommandWord], wanted: &[String]) -> bool {
    wanted.len() <= words.len()
        && words
            .iter()
            .zip(wanted)
            .all(|(word, want)| !word.expands && word.text == *want)
}

/// True if the words contain all wanted words in order, with any words between them. A word that expands may be any
/// word. Every option of the command may be a different spelling of a wanted option: `-fr` is `-rf`, and `git push
/// origin +main` is `git push --force origin main`.
fn may_mean_the_same(words: &[CommandWord], wanted: &[String]) -> bool {
    let is_option = |text: &str| text.starts_with(['-', '+', ':']);
    let has_option = words
        .iter()
        .any(|word| word.expands || is_option(&word.text));
    let mut rest = words.iter();
    let mut names = wanted.iter().filter(|want| !want.starts_with('-'));
    (!asks_for_option(wanted) || has_option)
        && names.all(|want| rest.any(|word| word.expands || word.text == *want))
}
