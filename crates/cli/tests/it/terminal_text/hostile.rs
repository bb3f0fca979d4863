//! Text that must not reach a terminal unescaped, and checks of the received text.

use std::fmt::Write as _;

use allstop_core::terminal_text::is_unsafe;

/// All unsafe characters, and control sequences that Allstop never writes. NUL is missing, because arguments and file
/// names cannot contain it.
pub(super) fn hostile() -> String {
    let sequences = "\u{1b}[3J\u{1b}[5m\u{1b}]52;c;eA==\u{7}\u{1b}c\u{9b}5m\u{9d}0;x\u{9c}";
    let all = ('\u{1}'..='\u{e01ef}').filter(|c| is_unsafe(*c) && !matches!(c, '\n' | '\t'));
    let text = sequences.chars().chain(all);
    // The control sequences are at both ends, because some views show only the beginning of a long text, and others
    // only the end.
    text.chain(sequences.chars()).collect()
}

/// A short selection of the unsafe text, for lines and file names of limited length.
pub(super) fn short_hostile() -> String {
    "a\u{1b}[3J\u{1b}]52;c;eA==\u{7}\r\u{9b}5m\u{ad}\u{61c}\u{200b}\u{202e}\u{2066}\u{feff}\u{e0041}\u{e0101}z".to_owned()
}

/// The text as a quoted string for YAML, TOML, JSON and the shell. Each character outside ASCII is written as a numeric
/// escape.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            c => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(c));
            }
        }
    }
    quoted + "\""
}

/// The shown text without Allstop's own control sequences, and with `\n` in place of `\r\n`.
pub(super) fn without_ours(shown: &str) -> String {
    let mut rest = shown.replace("\r\n", "\n");
    for count in 1..300 {
        for ours in [
            format!("\u{1b}[{count}A"),
            format!("\u{1b}[{count}B"),
            format!("\r\u{1b}[{count}C"),
        ] {
            rest = rest.replace(&ours, "");
        }
    }
    rest = rest.replace("\u{1b}[94m▎\u{1b}[0m", "");
    for code in ["", "0", "1", "2", "4", "7", "31", "32", "33"] {
        rest = rest.replace(&format!("\u{1b}[{code}m"), "");
    }
    for ours in [
        "\r\u{1b}[2K\u{1b}[C\u{1b}[J\r",
        "\r\u{1b}[K",
        "\u{1b}[?1004h",
        "\u{1b}[?1004l",
        "\u{1b}[?2004h",
        "\u{1b}[?2004l",
    ] {
        rest = rest.replace(ours, "");
    }
    rest
}

/// Checks that no unsafe character arrived unescaped, and that the text itself arrived.
#[track_caller]
pub(super) fn check(way: &str, shown: &str) {
    check_harmless(way, shown);
    // A long line can break at any character.
    let joined = without_ours(shown).replace('\n', "");
    assert!(joined.contains("[3J"), "{way}: it has not come: {shown:?}");
}

#[track_caller]
pub(super) fn check_harmless(way: &str, shown: &str) {
    let rest = without_ours(shown);
    let mut harm: Vec<char> = rest.chars().filter(|c| is_unsafe(*c)).collect();
    harm.retain(|c| !matches!(c, '\n' | '\t'));
    assert!(harm.is_empty(), "{way}: {harm:?} in {shown:?}");
}
