//! Checks the look of an answer, and that it does not depend on the pieces in which the answer arrives.

use super::*;
use crate::{Environment, Style};

const COLOURED: Style = Style::new(true, true);

fn rows(text: &str, columns: usize) -> Vec<String> {
    in_pieces(std::iter::once(text), columns)
}

fn in_pieces<'a>(pieces: impl Iterator<Item = &'a str>, columns: usize) -> Vec<String> {
    let mut stream = AnswerStream::new(COLOURED, AnswerFormat::Markdown);
    let mut parts: Vec<_> = pieces.flat_map(|piece| stream.push(piece)).collect();
    parts.extend(stream.finish());
    parts.iter().flat_map(|part| part.shown(columns)).collect()
}

/// Rows without colours.
fn plain(text: &str, columns: usize) -> String {
    let rows = rows(text, columns).join("\n");
    let mut plain = String::new();
    let mut in_sequence = false;
    for c in rows.chars() {
        match c {
            '\x1b' => in_sequence = true,
            'm' if in_sequence => in_sequence = false,
            c if !in_sequence => plain.push(c),
            _ => {}
        }
    }
    plain
}

const SAMPLE: &str = "# Title\n\nSome **bold** and *soft* text with `code`,\na [link](https://example.org/a) and <https://x.org>.\n\
- one\n- two\n  1. inner\n  2. more\n\n  second paragraph\n- [x] done\n\n> quoted\n> text\n\n```rust\nlet a = \"x\"; // c\n\n```\n\
| Name | Number |\n|:-----|-------:|\n| a | 1 |\n| long name | 12345 |\n\n---\nSetext\n===\nlast  \nline\n[ref]: https://def.org\n";

#[test]
fn blocks_are_drawn() {
    let shown = plain(SAMPLE, 60);
    let expected = "\
Title

Some bold and soft text with code,
a link (https://example.org/a) and https://x.org.
• one
• two
  1. inner
  2. more

  second paragraph
• [x] done

│ quoted
│ text

let a = \"x\"; // c

Name      │ Number
──────────┼───────
a         │      1
long name │  12345

───────────────────────────────────────────────────────────
Setext
last
line
[ref]: https://def.org";
    assert_eq!(shown, expected);
}

#[test]
fn styles_mark_what_they_mean() {
    let styled = rows("**a** *b* ~~c~~ `d`\n", 40).join("\n");
    assert_eq!(
        styled,
        "\x1b[1ma\x1b[0m \x1b[3mb\x1b[0m \x1b[9mc\x1b[0m \x1b[33md\x1b[0m"
    );
    assert_eq!(rows("```rs\nfn a\n```\n", 40), ["\x1b[35mfn\x1b[0m a"]);
}

/// A link shows its target even if its text names another one, and no character of an answer controls the terminal.
#[test]
fn links_show_their_target_and_answers_are_harmless() {
    let link = plain("[https://bank.org](https://evil.org)\n", 60);
    assert_eq!(link, "https://bank.org (https://evil.org)");
    let text = "a\x1b[2J\u{9b}31m&#27;[1m\n\n```\n\x1b]52;c;x\x07\n```\n\n| \x1b[3m | &#x1b;c |\n|---|---|\n<b\x1b[m>\n\n\x1b[9m\n";
    let shown = rows(text, 60).join("\n");
    let ours = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m"];
    let rest = ours
        .iter()
        .fold(shown, |shown, ours| shown.replace(ours, ""));
    assert!(!rest.contains(['\x1b', '\u{9b}', '\x07']), "{rest:?}");
    assert!(
        rest.contains("\\u{1b}[2J") && rest.contains("\\u{1b}]52"),
        "{rest}"
    );
}

/// A terminal opens the target of a link, and a copy of code or of an address contains no line end of this program.
#[test]
fn links_open_and_copies_are_whole() {
    let environment = Environment::read(|name| match name {
        "TERM" => Some("xterm-256color".into()),
        "LANG" => Some("C.UTF-8".into()),
        _ => None,
    });
    let written = |text: &str| {
        let mut stream = AnswerStream::new(environment.style(true), AnswerFormat::Markdown);
        let mut parts = stream.push(text);
        parts.extend(stream.finish());
        let rows = parts
            .iter()
            .flat_map(|part| part.written_rows(40, |_| true));
        rows.map(|row| row.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        written("[a](https://x.org/?q=1)\n"),
        [
            "\x1b]8;;https://x.org/?q=1\x1b\\\x1b[4ma\x1b[0m\x1b]8;;\x1b\\\
             \x1b]8;;https://x.org/?q=1\x1b\\\x1b[2m (https://x.org/?q=1)\x1b[0m\x1b]8;;\x1b\\"
        ]
    );
    for hostile in ["[a](javascript:alert)", "[a](https://x.org/\u{7}é)"] {
        assert!(!written(hostile).concat().contains("\x1b]8"), "{hostile}");
    }
    let address = format!("https://x.org/{}?c=d-e", "a/b".repeat(20));
    assert_eq!(
        written(&format!("see {address} now")),
        ["see", &address, "now"]
    );
    let code = format!("    let x = {};", "\"word word\", ".repeat(9));
    assert_eq!(
        written(&format!("```\n{code}\n```")),
        [format!("\x1b[33m{code}\x1b[0m")]
    );
}

#[test]
fn a_cut_answer_shows_what_came() {
    for end in 0..SAMPLE.len() {
        let shown = plain(&SAMPLE[..end], 60);
        let came = SAMPLE[..end].chars().filter(|c| c.is_alphanumeric());
        let letters = shown.chars().filter(|c| c.is_alphanumeric()).count();
        // The languages of fences and the marks of lists and tasks are not shown as they are written.
        assert!(letters + 20 >= came.count(), "{end}: {shown}");
    }
    assert_eq!(plain("```rust\nlet a", 40), "let a");
    assert_eq!(plain("so **bo", 40), "so **bo");
}

#[test]
fn pieces_make_no_difference() {
    let hostile = format!(
        "{}\n{}",
        "x ".repeat(6_000),
        "| a | b |\n|---|---|\n".to_owned() + &"| 1 | 2 |\n".repeat(900)
    );
    for text in [
        SAMPLE,
        &hostile,
        "a\r\nb\r\n\r\n- c\r\n",
        "``` \n",
        "\n\n\na\n\n\n\nb",
    ] {
        for columns in [80, 38, 9] {
            let whole = rows(text, columns);
            for size in [1, 3, 7, 1_000] {
                let chars: Vec<char> = text.chars().collect();
                let pieces: Vec<String> = chars
                    .chunks(size)
                    .map(|piece| piece.iter().collect())
                    .collect();
                assert_eq!(
                    in_pieces(pieces.iter().map(String::as_str), columns),
                    whole,
                    "{size}"
                );
            }
        }
    }
}

/// An answer stream keeps a limited amount of text, and parses a limited amount of text again for each piece.
#[test]
fn a_block_without_an_end_is_shown_in_parts() {
    let code = format!("```rust\n{}", "let a = 1;\n".repeat(2_000));
    let table = format!("| a | b |\n|---|---|\n{}", "| 1 | `2` |\n".repeat(5_000));
    let quote = "> a\n".repeat(20_000);
    let line = "word ".repeat(200_000);
    let letters = "x".repeat(1_000_000);
    for text in [code, table, quote, line, letters] {
        let mut stream = AnswerStream::new(COLOURED, AnswerFormat::Markdown);
        let chars: Vec<char> = text.chars().collect();
        let mut most = 0;
        for piece in chars.chunks(500) {
            let piece: String = piece.iter().collect();
            drop(stream.push(&piece));
            let block = match &stream.block {
                StreamBlock::Text(text) => text.len(),
                StreamBlock::Code(_) | StreamBlock::Table(_) => 0,
            };
            most = most.max(block + stream.line.len());
        }
        assert!(most <= BLOCK_BYTES_MAX + LINE_BYTES_MAX + 1_000, "{most}");
    }
}

#[test]
fn tables_become_records_where_columns_have_no_room() {
    let table =
        "| Name | What it does | Since |\n|---|---|---|\n| alpha | starts the work at once | 1 |\n";
    assert_eq!(
        plain(table, 30),
        "\
Name  │ What it does  │ Since
──────┼───────────────┼──────
alpha │ starts the    │ 1
      │ work at once  │"
    );
    assert_eq!(
        plain(table, 18),
        "Name: alpha\nWhat it does:\n  starts the work\n  at once\nSince: 1"
    );
}

/// Quotes and lists below the maximum depth are drawn at the maximum depth, without empty rows.
#[test]
fn deep_containers_take_one_row_each() {
    let quoted = plain(&format!("{}a\n", "> ".repeat(30)), 80);
    assert_eq!(quoted.lines().count(), 1, "{quoted}");
    let listed = plain(&format!("{}a\n", "- ".repeat(30)), 80);
    assert_eq!(listed.lines().count(), 1, "{listed}");
}

#[test]
fn a_line_of_thousands_of_signs_is_shown_as_it_was_written() {
    for sign in [">", "> ", "- ", "1. ", "* > "] {
        let line = sign.repeat(500);
        let text = format!("above\n\n{line}a\n\nbelow **it**\n");
        let shown = plain(&text, 200);
        let joined: String = shown.lines().map(str::trim_end).collect();
        let written = format!("above{line}abelow it").replace(' ', "");
        assert_eq!(joined.replace(' ', ""), written, "{shown}");
    }
}

/// Rows of an answer before and after an interruption at byte `at`.
fn interrupted(text: &str, at: usize) -> (Vec<String>, Vec<String>) {
    let mut stream = AnswerStream::new(COLOURED, AnswerFormat::Markdown);
    let (before, behind) = text.split_at(at);
    let rows = |parts: Vec<FlowPart>| parts.iter().flat_map(|part| part.shown(60)).collect();
    let mut parts = stream.push(before);
    parts.extend(stream.interrupt());
    let above = rows(parts);
    let mut parts = stream.push(behind);
    parts.extend(stream.finish());
    (above, rows(parts))
}

#[test]
fn interrupted_paragraph_goes_on_with_a_whole_word() {
    let (above, below) = interrupted("one two three four\n\nnext", 11);
    assert_eq!(above, ["one two"]);
    assert_eq!(below, ["three four", "", "next"]);
    let (above, below) = interrupted("one two three\n", 8);
    assert_eq!(
        (above, below),
        (vec!["one two".to_owned()], vec!["three".to_owned()])
    );
}

#[test]
fn interrupted_code_stays_code() {
    let text = "```\nlet **a**\nlet b\n```\nend **it**\n";
    let shown = |at: usize| {
        let (above, below) = interrupted(text, at);
        let all = [above, below].concat().join("\n");
        all.replace("\x1b[0m", "").replace("\x1b[1m", "")
    };
    for at in 0..text.len() {
        let shown = shown(at);
        assert!(shown.contains("**a**"), "{at}: {shown}");
        let (code, rest) = shown
            .rsplit_once("let")
            .unwrap_or_else(|| panic!("{at}: {shown}"));
        assert!(
            !code.contains("```") && !rest.contains('`'),
            "{at}: {shown}"
        );
    }
}

/// No word is lost, wherever in the text the interruption occurs.
#[test]
fn interruption_loses_nothing() {
    for at in (0..SAMPLE.len()).filter(|at| SAMPLE.is_char_boundary(*at)) {
        let (above, below) = interrupted(SAMPLE, at);
        let shown = [above, below].concat().join(" ");
        for word in [
            "Title", "inner", "second", "quoted", "let", "12345", "Setext", "def",
        ] {
            assert!(shown.contains(word), "{at}: no {word} in {shown}");
        }
    }
}

/// A timing test, which runs alone.
mod alone {
    use super::*;

    /// Ctrl-C is not handled while a piece of an answer is drawn, and the whole answer may be one piece.
    #[test]
    fn no_answer_takes_longer_than_a_person_notices() {
        let nested = (0..90).map(|depth| "  ".repeat(depth) + "- a\n");
        let nested = nested.collect::<Vec<_>>().concat();
        let answers = [
            (">".repeat(5_000), "quotes"),
            ("> ".repeat(50_000), "many quotes"),
            ("- ".repeat(5_000), "items"),
            ("1. ".repeat(5_000), "numbered items"),
            (format!("{}a\n", "- ".repeat(60)).repeat(500), "deep items"),
            (
                format!("{}\n{}", "> ".repeat(60), "1\n".repeat(50_000)),
                "lazy lines",
            ),
            (nested.repeat(100), "lists by their indent"),
            ("1\n".repeat(100_000), "lines of one letter"),
            (">\n".repeat(50_000), "empty quotes"),
            ("*a **b ".repeat(10_000), "emphasis"),
            ("![".repeat(20_000), "images"),
            (
                format!("{}{}", "![".repeat(600), "](a)".repeat(600)).repeat(20),
                "images in images",
            ),
            ("[".repeat(50_000), "brackets"),
            ("`` ` ".repeat(10_000), "code"),
            ("<a ".repeat(20_000), "tags"),
            (
                "|a".repeat(2_000) + "\n" + &"|-".repeat(2_000) + "\n" + &"|\n".repeat(5_000),
                "columns",
            ),
            ("- ```a\n".repeat(10_000), "code in items"),
            ("[a]: b\n".repeat(10_000), "definitions"),
            ("&amp;".repeat(10_000), "entities"),
            ("word ".repeat(100_000), "one long line"),
            (
                "A **sentence** with `code`, and more of it.\n\n".repeat(3_000),
                "an answer",
            ),
        ];
        for (answer, name) in answers {
            let mut stream = AnswerStream::new(COLOURED, AnswerFormat::Markdown);
            highlight::load_grammars();
            let began = processor_time();
            let parts = stream.push(&answer);
            let open = stream.open();
            let pushed = processor_time().saturating_sub(began);
            let began = processor_time();
            drop(stream.finish());
            let finished = processor_time().saturating_sub(began);
            drop((parts, open));
            // The 80 ms do not include the time to copy the text. The copy takes a few microseconds for each line,
            // which are added here.
            let lines = u32::try_from(answer.lines().count()).unwrap();
            let most = Duration::from_millis(80) + Duration::from_micros(10) * lines;
            assert!(
                pushed < most && finished < most,
                "{name}: {pushed:?}, {finished:?}"
            );
        }
    }
}
