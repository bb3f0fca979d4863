//! Highlights code line by line, with syntect and the grammars of bat.
//!
//! The time to highlight a line grows with the square of the line's length, and depends on the line's content. Times of
//! a release build: the first line of a language takes 1–80 ms, because the expressions of the language are compiled at
//! that time. A line of usual code takes 0.1–0.5 ms. Among lines that repeat one of 58 patterns, the slowest line of
//! 200 bytes takes 25 ms, or 66 ms in nine rare languages (Lisp, Typst …). Therefore only short lines are highlighted,
//! and only for a limited time per answer. Each frame copies the position in a grammar. A copy takes 0.03 ms at most,
//! because syntect limits the depth of its stack.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxSet};

/// Maximum bytes of a highlighted line. Code for human readers has shorter lines, and longer lines take too long.
const LINE_BYTES_MAX: usize = 200;

/// Maximum highlighting time for one answer. By the times above, this is enough for 400 to 2,000 lines of usual code. A
/// whole answer may arrive at once, and no stop is received while the answer is processed. A limit on the number of
/// lines is not enough: forty short blocks in forty languages would take seconds.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(200);

/// The grammars: constant data of the library, unpacked when the first block of code is shown.
static GRAMMARS: LazyLock<SyntaxSet> = LazyLock::new(two_face::syntax::extra_newlines);

/// Meanings of syntect's scopes, which are names of the kinds of code, by the prefixes of these names. The meanings are
/// constant, and are parsed only once.
static MEANINGS: LazyLock<Vec<(Scope, CodeToken)>> = LazyLock::new(|| {
    let meanings = [
        ("comment", CodeToken::Comment),
        ("string", CodeToken::Text),
        ("constant.numeric", CodeToken::Number),
        ("constant.language", CodeToken::Keyword),
        ("entity.name.tag", CodeToken::Keyword),
        ("keyword", CodeToken::Keyword),
        ("storage", CodeToken::Keyword),
        ("support.function", CodeToken::Keyword),
        ("variable.language", CodeToken::Keyword),
        ("markup.inserted", CodeToken::Added),
        ("markup.deleted", CodeToken::Removed),
        ("meta.diff.header", CodeToken::Comment),
        ("meta.diff.range", CodeToken::Comment),
        // Code within a string, such as `${name}`.
        ("meta.interpolation", CodeToken::Plain),
        ("meta.template.expression", CodeToken::Plain),
        ("meta.group.expansion", CodeToken::Plain),
        ("source", CodeToken::Plain),
    ];
    let parsed = |(name, token)| Scope::new(name).ok().map(|scope| (scope, token));
    meanings.into_iter().filter_map(parsed).collect()
});

/// Meaning of a piece of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeToken {
    /// Code of an unknown language.
    Unknown,
    Plain,
    Keyword,
    Text,
    Number,
    Comment,
    /// A line that a diff adds.
    Added,
    /// A line that a diff removes.
    Removed,
}

/// Remaining time for the code of one answer. After the time is used up, all further lines are plain.
#[derive(Debug, Clone)]
pub(super) struct HighlightBudget {
    left: Duration,
}

impl Default for HighlightBudget {
    fn default() -> Self {
        Self {
            left: ANSWER_TIME_MAX,
        }
    }
}

impl HighlightBudget {
    /// The remaining time.
    pub(super) fn left(&self) -> Duration {
        self.left
    }
}

/// Unpacks the grammars, unless they are already unpacked.
pub(super) fn load_grammars() {
    LazyLock::force(&GRAMMARS);
    LazyLock::force(&MEANINGS);
}

/// Highlights the lines of one code block, from the first to the last.
#[derive(Debug, Clone)]
pub(super) struct CodeHighlighter {
    /// True if the language has a grammar.
    is_known: bool,
    /// `None` for a language without a grammar, and after a line that the grammar cannot parse.
    position: Option<GrammarPosition>,
}

/// Position in a grammar between two lines.
#[derive(Debug, Clone)]
struct GrammarPosition {
    state: ParseState,
    scopes: ScopeStack,
}

impl CodeHighlighter {
    /// Creates a highlighter for the language that a fence names.
    pub(super) fn new(info: &str) -> Self {
        let name = info.split([' ', ',', '{']).next().unwrap_or_default();
        let name = name.to_ascii_lowercase();
        let position = |grammar| GrammarPosition {
            state: ParseState::new(grammar),
            scopes: ScopeStack::new(),
        };
        let grammar = (!name.is_empty())
            .then(|| GRAMMARS.find_syntax_by_token(grammar_name(&name)))
            .flatten();
        Self {
            is_known: grammar.is_some(),
            position: grammar.map(position),
        }
    }

    /// Returns the pieces of the next line.
    pub(super) fn line<'a>(
        &mut self,
        line: &'a str,
        budget: &mut HighlightBudget,
    ) -> Vec<(&'a str, CodeToken)> {
        if !self.is_known {
            return vec![(line, CodeToken::Unknown)];
        }
        let plain = || vec![(line, CodeToken::Plain)];
        if self.position.is_none() || line.len() > LINE_BYTES_MAX || budget.left.is_zero() {
            return plain();
        }
        let began = Instant::now();
        // After a line that the grammar cannot parse, the rest of the block is plain.
        let parsed = self
            .position
            .take()
            .and_then(|position| position.line(line));
        budget.left = budget.left.saturating_sub(began.elapsed());
        let Some((position, pieces)) = parsed else {
            return plain();
        };
        self.position = Some(position);
        pieces
    }
}

impl GrammarPosition {
    fn line(mut self, line: &str) -> Option<(Self, Vec<(&str, CodeToken)>)> {
        // Trailing blanks have no meaning, and some grammars take longest for them.
        let text = format!("{}\n", line.trim_end());
        let changes = self.state.parse_line(&text, &GRAMMARS).ok()?;
        let mut ends: Vec<(usize, CodeToken)> = Vec::new();
        let mut begin = 0;
        for (at, change) in changes {
            // The line end that was added is also a piece, and is cut off here.
            let end = at.min(line.len());
            add(&mut ends, end, self.token(line.get(begin..end)?));
            begin = end;
            self.scopes.apply(&change).ok()?;
        }
        add(&mut ends, line.len(), self.token(line.get(begin..)?));
        let mut begin = 0;
        let piece = |(end, token)| (&line[std::mem::replace(&mut begin, end)..end], token);
        let pieces = ends.into_iter().map(piece).collect();
        Some((self, pieces))
    }

    /// Meaning of a text at this position: the meaning of the innermost scope that has a known meaning.
    fn token(&self, text: &str) -> CodeToken {
        let meaning = |scope: &Scope| {
            let mut known = MEANINGS.iter();
            known.find(|(known, _)| known.is_prefix_of(*scope))
        };
        let inner = self.scopes.as_slice().iter().rev();
        match inner.copied().find_map(|scope| meaning(&scope)) {
            // Operators are keywords only if they are words.
            Some((_, CodeToken::Keyword)) if !text.contains(char::is_alphabetic) => {
                CodeToken::Plain
            }
            meaning => meaning.map_or(CodeToken::Plain, |(_, token)| *token),
        }
    }
}

/// Adds the end of a piece, and merges neighbours with the same meaning.
fn add(ends: &mut Vec<(usize, CodeToken)>, end: usize, token: CodeToken) {
    match ends.last_mut() {
        Some((last, _)) if *last == end => {}
        Some((last, known)) if *known == token => *last = end,
        None if end == 0 => {}
        _ => ends.push((end, token)),
    }
}

/// Name of the grammar for a language. A language without a grammar uses the grammar of a similar language.
fn grammar_name(language: &str) -> &str {
    match language {
        // TypeScript's own grammar takes 0.3 s for its first line.
        "ts" | "tsx" | "typescript" | "jsx" | "mjs" | "cjs" | "json5" | "jsonc" => "js",
        "shell" | "console" | "ksh" => "sh",
        "cfg" | "conf" | "env" => "ini",
        "golang" => "go",
        "python3" => "py",
        "csharp" => "cs",
        "h" => "c",
        "sqlite" | "postgresql" | "mysql" => "sql",
        "vue" | "svelte" => "html",
        language => language,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(info: &str, lines: &[&str]) -> Vec<String> {
        let mut highlighter = CodeHighlighter::new(info);
        let line = |line: &&str| {
            let pieces = highlighter.line(line, &mut HighlightBudget::default());
            assert_eq!(
                pieces.iter().map(|(text, _)| *text).collect::<String>(),
                **line
            );
            let mark = |(text, token): &(&str, CodeToken)| match token {
                CodeToken::Plain | CodeToken::Unknown => (*text).to_owned(),
                CodeToken::Keyword => format!("k({text})"),
                CodeToken::Text => format!("t({text})"),
                CodeToken::Number => format!("n({text})"),
                CodeToken::Comment => format!("c({text})"),
                CodeToken::Added => format!("a({text})"),
                CodeToken::Removed => format!("r({text})"),
            };
            pieces.iter().map(mark).collect()
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn languages_have_keywords_texts_and_comments() {
        let rust = marked(
            "rust",
            &["let a = \"x\\\"y\" + 12; // é", "a /* b", "", "c */ a as b"],
        );
        assert_eq!(
            rust,
            [
                "k(let) a = t(\"x\\\"y\") + n(12); c(// é)",
                "a c(/* b)",
                "",
                "c(c */) a k(as) b"
            ]
        );
        assert_eq!(
            marked("py", &["x = \"\"\"a", "b\"\"\" # c"]),
            ["x = t(\"\"\"a)", "t(b\"\"\") c(# c)"]
        );
        assert_eq!(
            marked("sh", &["echo $# \"a $b\"", "# b"]),
            ["k(echo) $# t(\"a )$bt(\")", "c(# b)"]
        );
        assert_eq!(
            marked("sql", &["SELECT 1 -- x"]),
            ["k(SELECT) n(1) c(-- x)"]
        );
        assert_eq!(
            marked("diff", &["--- a", "@@ -1 +1 @@", "+a", "-b", " c"]),
            ["c(--- a)", "c(@@ -1 +1 @@)", "a(+a)", "r(-b)", " c"]
        );
    }

    #[test]
    fn similar_languages_lend_their_grammar() {
        for language in ["ts", "tsx", "jsx", "typescript", "js", "JavaScript"] {
            assert_eq!(marked(language, &["return 1"]), ["k(return) n(1)"]);
        }
        assert_eq!(
            marked("toml", &["# x", "[a]", "b = 1"]),
            ["c(# x)", "[a]", "k(b) = n(1)"]
        );
        for language in ["console", "zsh", "shell"] {
            assert_eq!(marked(language, &["cd x"]), ["k(cd) x"]);
        }
        for language in ["", "unknown", " ", "\0", "plaintext"] {
            assert_eq!(marked(language, &["let a"]), ["let a"]);
        }
    }

    #[test]
    fn long_lines_are_plain_and_change_nothing() {
        let long = "\"".repeat(LINE_BYTES_MAX + 1);
        assert_eq!(
            marked("rust", &["/* a", &long, "b */ fn"]),
            ["c(/* a)", &*long, "c(b */) k(fn)"]
        );
        assert_eq!(marked("rust", &[&long[1..]])[0].len(), LINE_BYTES_MAX + 3);
    }

    /// Without the time limit, a short block in each language took seconds in total, because the first line of a
    /// language compiles its expressions.
    #[test]
    fn code_of_one_answer_is_highlighted_for_a_limited_time() {
        let mut budget = HighlightBudget::default();
        let mut highlighted = 0;
        for grammar in GRAMMARS.syntaxes() {
            let Some(name) = grammar.file_extensions.first() else {
                continue;
            };
            let is_left = !budget.left.is_zero();
            CodeHighlighter::new(name).line("fn f() { let x = \"", &mut budget);
            highlighted += usize::from(is_left);
        }
        assert!(budget.left.is_zero() && highlighted < GRAMMARS.syntaxes().len() / 2);
        let pieces = CodeHighlighter::new("json").line("1", &mut budget);
        assert_eq!(pieces, [("1", CodeToken::Plain)], "it stays plain");
    }

    #[test]
    fn odd_lines_lose_nothing() {
        let lines = [
            "(".repeat(200),
            "[a](".repeat(50),
            "é\u{200d}🙂\0\t\"".repeat(9),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        for language in ["rust", "js", "md", "html", "sh"] {
            marked(language, &lines);
        }
    }
}
