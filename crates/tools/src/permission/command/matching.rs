//! Match of a simple command with a denying or asking rule.
//!
//! A command is in doubt where it may come to what the rule says: its program is only known when it runs, it can run
//! programs that its arguments name, or options stand where the rule has a subcommand. A doubt is not lifted by a rule
//! that allows this command: whoever writes `allow = ["shell:env"]` beside `deny = ["shell:rm"]` wants both to hold.
//!
//! The other way round, to be sure only of programs that are known to run nothing, would leave no use for `--yes`
//! beside a denying rule: `cargo test` runs what its tests run. So a program that is not listed in [`launchers`] counts as
//! one that runs nothing else, and a denying rule is a guard against plain forms, not a sandbox.

use super::{Match, Word, launchers};

/// Words of the shell's syntax that stand before a command.
const BEFORE_A_COMMAND: &[&str] = &[
    "!", "do", "done", "elif", "else", "fi", "if", "then", "time", "until", "while", "{", "}",
];

pub(super) fn of(words: &[Word], prefix: &[String]) -> Match {
    let mut result = Match::No;
    let mut words = words;
    // As a quoted word each of these is a program's name instead, so the rule is compared before and after it.
    while let [first, rest @ ..] = words {
        result = result.max(of_program(words, prefix));
        if is_assignment(first) {
            // It may be what the program runs, as `PAGER` is, or where it is looked for.
            result = result.max(Match::Perhaps);
        } else if !BEFORE_A_COMMAND.contains(&&*first.text) {
            break;
        }
        words = rest;
    }
    result
}

fn is_assignment(word: &Word) -> bool {
    word.text.contains('=')
}

fn of_program(words: &[Word], prefix: &[String]) -> Match {
    let ([first, arguments @ ..], [wanted, wanted_arguments @ ..]) = (words, prefix) else {
        return Match::No;
    };
    // `{`, `}` and `[` expand to nothing else when they stand alone.
    if first.expands && !matches!(&*first.text, "{" | "}" | "[") {
        return Match::Perhaps;
    }
    // The folder does not count: `/bin/rm` is `rm`.
    let program = first.text.rsplit('/').next().unwrap_or_default();
    if program != wanted && first.text != *wanted {
        // `git-push` is the program behind `git push`.
        let is_a_part = program
            .strip_prefix(&**wanted)
            .is_some_and(|rest| rest.starts_with('-') && !wanted_arguments.is_empty());
        return if is_a_part || launchers::may_run_another(program, arguments) {
            Match::Perhaps
        } else {
            Match::No
        };
    }
    if starts_with(arguments, wanted_arguments) {
        return Match::Yes;
    }
    let has_options_first = arguments.first().is_some_and(|word| {
        word.expands || word.text.starts_with(['-', '+']) || word.text.is_empty()
    });
    if has_options_first
        || may_say_the_same(arguments, wanted_arguments)
        || launchers::may_run_another(program, arguments)
    {
        Match::Perhaps
    } else {
        Match::No
    }
}

fn starts_with(words: &[Word], wanted: &[String]) -> bool {
    wanted.len() <= words.len()
        && words
            .iter()
            .zip(wanted)
            .all(|(word, want)| !word.expands && word.text == *want)
}

/// True if the words have all that is wanted, in this order, with others between them; one that expands may be any. Any
/// option may be another way to write a wanted one: `-fr` is `-rf`.
fn may_say_the_same(words: &[Word], wanted: &[String]) -> bool {
    let is_option = |text: &str| text.starts_with('-');
    let wants_option = wanted.iter().any(|want| is_option(want));
    let has_option = words
        .iter()
        .any(|word| word.expands || is_option(&word.text));
    let mut rest = words.iter();
    let mut wanted = wanted.iter().filter(|want| !is_option(want));
    (!wants_option || has_option)
        && wanted.all(|want| rest.any(|word| word.expands || word.text == *want))
}
