//! Commands that only read below the working directory. They count as reads in every permission mode.
//!
//! The list is short on purpose: a program is in it only if the options that write files or run programs are known. A
//! path outside the working directory does not count, because the file tools refuse such a path too.

use super::parsed::CommandWord;

/// A program that only reads, unless it has one of these options.
struct Reader {
    program: &'static str,
    /// Beginnings of long options that do not only read. GNU programs accept abbreviations.
    long: &'static [&'static str],
    /// Letters of short options that do not only read.
    short: &'static str,
}

const fn reader(program: &'static str) -> Reader {
    Reader {
        program,
        long: &[],
        short: "",
    }
}

const READERS: &[Reader] = &[
    reader("basename"),
    reader("cat"),
    reader("cmp"),
    reader("cut"),
    reader("df"),
    reader("dirname"),
    reader("egrep"),
    reader("fgrep"),
    reader("grep"),
    reader("head"),
    reader("ls"),
    reader("nl"),
    reader("pwd"),
    reader("readlink"),
    reader("realpath"),
    reader("stat"),
    reader("tail"),
    reader("tr"),
    reader("which"),
    // `-l` and `--paginate` run a program.
    Reader {
        program: "diff",
        long: &["--pa"],
        short: "l",
    },
    // `--files0-from` reads paths from a file, which may lead outside.
    Reader {
        program: "du",
        long: &["--f"],
        short: "",
    },
    Reader {
        program: "wc",
        long: &["--f"],
        short: "",
    },
    // `--pre`, `--hostname-bin` and `-z` run a program.
    Reader {
        program: "rg",
        long: &["--pre", "--hostname-bin", "--search-zip"],
        short: "z",
    },
    // `-o` writes a file, `-T` writes temporary files elsewhere, and `--compress-program` runs a program.
    Reader {
        program: "sort",
        long: &["--o", "--c", "--t", "--f"],
        short: "oT",
    },
];

/// Actions of `find` that change something or run a program.
const FIND_ACTIONS: &[&str] = &["-delete", "-exec", "-ok", "-fprint", "-fls", "-files0-from"];

/// Subcommands of `git` that only read, with any argument that no rule below excludes.
const GIT_READERS: &[&str] = &[
    "blame",
    "cat-file",
    "describe",
    "diff",
    "log",
    "ls-files",
    "ls-tree",
    "rev-list",
    "rev-parse",
    "shortlog",
    "show",
    "status",
];

/// Beginnings of options of `git` that write a file or run a program that the configuration names.
const GIT_OPTIONS: &[&str] = &[
    "--ou",
    "--ext",
    "--textconv",
    "--filters",
    "--batch",
    "--buffer",
    "--show-sig",
    "--help",
    "--format",
    "--pretty",
];

/// Options with which `git branch` only lists.
const GIT_BRANCH_LISTS: &[&str] = &[
    "-a",
    "-r",
    "-v",
    "-vv",
    "--all",
    "--list",
    "--remotes",
    "--show-current",
];

/// True if the simple command only reads below the working directory. Commands of `git` count only if `may_use_git`: git
/// runs the programs that the configuration of its repository names.
pub(super) fn only_reads(words: &[CommandWord], may_use_git: &dyn Fn() -> bool) -> bool {
    if words.iter().any(|word| word.expands) {
        return false;
    }
    let words: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let Some((program, arguments)) = words.split_first() else {
        return false;
    };
    if !arguments.iter().all(|word| stays_inside(word)) {
        return false;
    }
    match *program {
        "find" => {
            let is_action =
                |word: &&str| FIND_ACTIONS.iter().any(|action| word.starts_with(action));
            !arguments.iter().any(is_action)
        }
        "git" => git_only_reads(arguments) && may_use_git(),
        _ => READERS
            .iter()
            .find(|reader| reader.program == *program)
            .is_some_and(|reader| arguments.iter().all(|word| !reader.excludes(word))),
    }
}

impl Reader {
    fn excludes(&self, argument: &str) -> bool {
        if argument.starts_with("--") {
            return self.long.iter().any(|long| argument.starts_with(long));
        }
        let letters = argument.strip_prefix('-').unwrap_or_default();
        letters.contains(|letter| self.short.contains(letter))
    }
}

fn git_only_reads(arguments: &[&str]) -> bool {
    let arguments = match arguments {
        ["--no-pager", rest @ ..] => rest,
        all => all,
    };
    let Some((subcommand, options)) = arguments.split_first() else {
        return false;
    };
    match *subcommand {
        "branch" => options.iter().all(|word| GIT_BRANCH_LISTS.contains(word)),
        "remote" => matches!(options, [] | ["-v"]),
        "stash" => matches!(options, ["list"]),
        name if GIT_READERS.contains(&name) => {
            let is_excluded =
                |word: &&str| GIT_OPTIONS.iter().any(|option| word.starts_with(option));
            !options.iter().any(is_excluded)
        }
        _ => false,
    }
}

/// True if the argument names no file outside the working directory. An option that contains a path is refused.
fn stays_inside(argument: &str) -> bool {
    let leaves = argument.starts_with(['/', '~']) || argument.split('/').any(|part| part == "..");
    let is_option_with_path = argument.starts_with('-') && argument.contains('/');
    !leaves && !is_option_with_path
}

#[cfg(test)]
mod tests {
    use super::super::ParsedCommand;

    #[test]
    fn commands_that_only_read_are_known() {
        for command in [
            "git status",
            "git --no-pager log --oneline -5",
            "git diff HEAD -- src/lib.rs",
            "git branch -a",
            "ls -la src",
            "cat Cargo.toml | head -3",
            "grep -rn main src && wc -l src/main.rs",
            "find . -name main.rs",
            "sort -u names",
            "pwd",
        ] {
            let command = ParsedCommand::parse(command);
            assert!(command.only_reads(&|| true), "{command:?}");
        }
        assert!(!ParsedCommand::parse("ls; git status").only_reads(&|| false));
    }

    #[test]
    fn commands_that_may_change_something_are_not() {
        for command in [
            "git",
            "git push",
            "git branch new",
            "git branch -D main",
            "git -c core.pager=evil log",
            "git diff --output=x",
            "git diff --outp x",
            "git log --ext-diff",
            "git stash",
            "git remote add x y",
            "ls > x",
            "ls; rm x",
            "ls && touch x",
            "cat $(rm x)",
            "cat `rm x`",
            "FOO=1 ls",
            "./ls",
            "/bin/ls",
            "cat /etc/passwd",
            "cat ~/.ssh/id_rsa",
            "cat ../secret",
            "grep -f../x y",
            "grep --file=/etc/shadow x",
            "cat $HOME",
            "cat *",
            "sort -o x y",
            "sort -uo x y",
            "sort --outp=x y",
            "sort --compress-program=sh x",
            "rg --pre sh x",
            "wc --files0-from=list",
            "du --files0=list",
            "diff -l a b",
            "diff --paginate a b",
            "rg -z x",
            "git log --show-signature",
            "git log --format=%GG",
            "git status --help",
            "find . -delete",
            "find . -exec rm {} +",
            "find . -execdir rm x",
            "find . -fprintf x y",
            "uniq a b",
            "tee x",
            "env",
            "sh -c ls",
            "xargs ls",
            "if true; then ls; fi",
            "ls\nrm x",
            "ls & rm x",
            "ls || rm x",
            "ls |& tee x",
            "ls \"$(rm x)\"",
            "command rm x",
            "\\rm x",
            "cat <<< x > y",
            "cat <(rm x)",
            "ls 2>x",
            "alias ls=rm; ls x",
            "git log -p --output x",
            "git rev-parse HEAD; git push",
            "git branch --edit-description",
            "git remote -v update",
        ] {
            let parsed = ParsedCommand::parse(command);
            assert!(!parsed.only_reads(&|| true), "{command}");
        }
    }
}
