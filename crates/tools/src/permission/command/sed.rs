//! Checks `sed` scripts, because the command `e` and the flag `e` of `s` run programs.

use super::parsed::CommandWord;

/// Options without a value that do not change the meaning of the script.
const OPTIONS: &[&str] = &[
    "-n", "-E", "-r", "-s", "-z", "-i", "-u", "-nE", "-nr", "--quiet", "--silent",
];

/// True if the arguments of `sed` could run a program.
pub(super) fn may_run_another(arguments: &[CommandWord]) -> bool {
    let options = arguments.iter().take_while(|word| {
        !word.expands && (OPTIONS.contains(&&*word.text) || word.text == "--sandbox")
    });
    let options: Vec<_> = options.collect();
    if options.iter().any(|word| word.text == "--sandbox") {
        return false;
    }
    let Some((script, files)) = arguments
        .get(options.len()..)
        .and_then(<[CommandWord]>::split_first)
    else {
        return false;
    };
    // Options may also follow the files.
    let has_options = || {
        files
            .iter()
            .any(|word| word.text.starts_with('-') || word.may_become_option())
    };
    script.expands || !is_harmless(&script.text) || has_options()
}

/// True if the script is one of the commands `p`, `d`, `q` or `=` with or without line numbers, or one `s` without
/// flags that run a program or write a file.
fn is_harmless(script: &str) -> bool {
    let command = script.trim_start_matches(|c: char| c.is_ascii_digit() || ",$ !".contains(c));
    if matches!(command, "p" | "d" | "q" | "=") {
        return true;
    }
    let mut rest = command.strip_prefix('s').unwrap_or_default().chars();
    let Some(delimiter) = rest.next().filter(|c| "/|,#:@".contains(*c)) else {
        return false;
    };
    let mut delimiters = 0;
    while delimiters < 2 {
        match rest.next() {
            // A character after a backslash is never the delimiter. A set in brackets may contain the delimiter, so
            // sets are rejected.
            Some('\\') => drop(rest.next()),
            Some('[' | '\n') | None => return false,
            Some(c) if c == delimiter => delimiters += 1,
            Some(_) => {}
        }
    }
    rest.all(|flag| flag.is_ascii_digit() || "gpiI".contains(flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_may_run_programs_are_recognised() {
        for script in [
            "1,20p",
            "$d",
            "3q",
            "s/a/b/",
            "s|a|e|g",
            "2,3s/e\\/e/x/gI",
            "1!d",
        ] {
            assert!(is_harmless(script), "{script:?}");
        }
        for script in [
            "1e rm f",
            "e",
            "s/a/b/e",
            "s/a/b/ge",
            "s/a/b/;e",
            "s/a/b/w f",
            "/x/e",
            "s/[/]/x/e/g",
            "sxaxbxe",
            "s/a/b",
            "s/a\\/b/e",
            "s/a/b/\ne",
            "{e",
            "1p;e",
            "y/a/b/",
            "",
            "s/a/b/}",
        ] {
            assert!(!is_harmless(script), "{script:?}");
        }
    }
}
