//! Highlighting of code, line by line and in linear time.
//!
//! Languages are told apart only by their comments, quotes and keywords. A library with grammars was measured: syntect
//! adds 2.6 MB, 33 crates and a second version of its regex engine, needs 17 ms for the first line and 100 µs for
//! each other, and its time depends on what is written there. This takes a microsecond for a line, whatever it is.

/// Bytes of a line that are highlighted; longer ones are data.
const LINE_BYTES_MAX: usize = 2_000;

/// Meaning of a piece of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeToken {
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

/// Signs by which a language is recognised.
#[derive(Debug)]
struct CodeLanguage {
    names: &'static [&'static str],
    line_comments: &'static [&'static str],
    block_comment: Option<(&'static str, &'static str)>,
    quotes: &'static [char],
    /// Text that goes over several lines.
    long_quotes: &'static [&'static str],
    keywords: &'static [&'static str],
}

const C_COMMENT: Option<(&str, &str)> = Some(("/*", "*/"));

static LANGUAGES: &[CodeLanguage] = &[
    CodeLanguage {
        names: &["rust", "rs"],
        line_comments: &["//"],
        block_comment: C_COMMENT,
        quotes: &['"'],
        long_quotes: &[],
        keywords: &[
            "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum",
            "extern", "false", "fn", "for", "if", "impl", "in", "let", "loop", "match", "mod",
            "move", "mut", "pub", "ref", "return", "self", "Self", "static", "struct", "super",
            "trait", "true", "type", "unsafe", "use", "where", "while",
        ],
    },
    CodeLanguage {
        names: &["python", "py", "python3"],
        line_comments: &["#"],
        block_comment: None,
        quotes: &['"', '\''],
        long_quotes: &["\"\"\"", "'''"],
        keywords: &[
            "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
            "elif", "else", "except", "False", "finally", "for", "from", "global", "if", "import",
            "in", "is", "lambda", "None", "nonlocal", "not", "or", "pass", "raise", "return",
            "True", "try", "while", "with", "yield",
        ],
    },
    CodeLanguage {
        names: &["javascript", "js", "jsx", "typescript", "ts", "tsx", "mjs"],
        line_comments: &["//"],
        block_comment: C_COMMENT,
        quotes: &['"', '\''],
        long_quotes: &["`"],
        keywords: &[
            "any",
            "async",
            "await",
            "boolean",
            "break",
            "case",
            "catch",
            "class",
            "const",
            "continue",
            "default",
            "delete",
            "do",
            "else",
            "enum",
            "export",
            "extends",
            "false",
            "finally",
            "for",
            "from",
            "function",
            "if",
            "implements",
            "import",
            "in",
            "instanceof",
            "interface",
            "let",
            "new",
            "null",
            "number",
            "of",
            "return",
            "string",
            "super",
            "switch",
            "this",
            "throw",
            "true",
            "try",
            "type",
            "typeof",
            "undefined",
            "var",
            "void",
            "while",
            "yield",
        ],
    },
    CodeLanguage {
        names: &["go", "golang"],
        line_comments: &["//"],
        block_comment: C_COMMENT,
        quotes: &['"', '\''],
        long_quotes: &["`"],
        keywords: &[
            "break",
            "case",
            "chan",
            "const",
            "continue",
            "default",
            "defer",
            "else",
            "fallthrough",
            "false",
            "for",
            "func",
            "go",
            "if",
            "import",
            "interface",
            "map",
            "nil",
            "package",
            "range",
            "return",
            "select",
            "struct",
            "switch",
            "true",
            "type",
            "var",
        ],
    },
    CodeLanguage {
        names: &[
            "c", "h", "cpp", "c++", "cc", "hpp", "java", "kotlin", "kt", "csharp", "cs", "swift",
            "php", "scala", "zig",
        ],
        line_comments: &["//"],
        block_comment: C_COMMENT,
        quotes: &['"', '\''],
        long_quotes: &[],
        keywords: &[
            "abstract",
            "auto",
            "bool",
            "boolean",
            "break",
            "case",
            "catch",
            "char",
            "class",
            "const",
            "continue",
            "default",
            "do",
            "double",
            "else",
            "enum",
            "extends",
            "extern",
            "false",
            "final",
            "finally",
            "float",
            "for",
            "fun",
            "func",
            "if",
            "implements",
            "import",
            "in",
            "include",
            "int",
            "interface",
            "let",
            "long",
            "namespace",
            "new",
            "nil",
            "null",
            "nullptr",
            "override",
            "package",
            "private",
            "protected",
            "public",
            "return",
            "short",
            "signed",
            "sizeof",
            "static",
            "struct",
            "super",
            "switch",
            "template",
            "this",
            "throw",
            "throws",
            "true",
            "try",
            "typedef",
            "typename",
            "union",
            "unsigned",
            "using",
            "val",
            "var",
            "virtual",
            "void",
            "volatile",
            "while",
        ],
    },
    CodeLanguage {
        names: &["sh", "bash", "shell", "zsh", "console", "fish"],
        line_comments: &["#"],
        block_comment: None,
        quotes: &['"', '\''],
        long_quotes: &[],
        keywords: &[
            "case", "cd", "do", "done", "echo", "elif", "else", "esac", "exit", "export", "fi",
            "for", "function", "if", "in", "local", "return", "set", "sudo", "then", "unset",
            "until", "while",
        ],
    },
    CodeLanguage {
        names: &["sql", "sqlite", "postgresql", "mysql"],
        line_comments: &["--"],
        block_comment: C_COMMENT,
        quotes: &['\''],
        long_quotes: &[],
        keywords: &[
            "add",
            "alter",
            "and",
            "as",
            "asc",
            "begin",
            "by",
            "case",
            "commit",
            "create",
            "default",
            "delete",
            "desc",
            "distinct",
            "drop",
            "else",
            "end",
            "exists",
            "from",
            "group",
            "having",
            "in",
            "index",
            "insert",
            "into",
            "is",
            "join",
            "key",
            "left",
            "like",
            "limit",
            "not",
            "null",
            "on",
            "or",
            "order",
            "outer",
            "primary",
            "references",
            "right",
            "select",
            "set",
            "table",
            "then",
            "union",
            "unique",
            "update",
            "values",
            "when",
            "where",
            "with",
        ],
    },
    CodeLanguage {
        names: &[
            "toml",
            "yaml",
            "yml",
            "ini",
            "dockerfile",
            "make",
            "makefile",
            "ruby",
            "rb",
            "perl",
            "r",
            "nix",
            "elixir",
        ],
        line_comments: &["#"],
        block_comment: None,
        quotes: &['"', '\''],
        long_quotes: &[],
        keywords: &[
            "begin", "class", "def", "do", "else", "end", "false", "if", "nil", "null", "return",
            "true", "unless",
        ],
    },
    CodeLanguage {
        names: &["json", "json5", "jsonc", "css", "scss"],
        line_comments: &[],
        block_comment: C_COMMENT,
        quotes: &['"'],
        long_quotes: &[],
        keywords: &["false", "null", "true"],
    },
    CodeLanguage {
        names: &["html", "xml", "svg", "vue"],
        line_comments: &[],
        block_comment: Some(("<!--", "-->")),
        quotes: &['"'],
        long_quotes: &[],
        keywords: &[],
    },
];

/// Highlights the lines of one code block, from the first to the last.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodeHighlighter {
    mode: HighlightMode,
    /// Mark that ends what goes over several lines.
    until: Option<(&'static str, CodeToken)>,
}

#[derive(Debug, Clone, Copy)]
enum HighlightMode {
    Nothing,
    Diff,
    Language(&'static CodeLanguage),
}

impl CodeHighlighter {
    /// For the language that a fence names.
    pub(super) fn new(info: &str) -> Self {
        let name = info.split([' ', ',', '{']).next().unwrap_or_default();
        let name = name.to_ascii_lowercase();
        let language = LANGUAGES
            .iter()
            .find(|language| language.names.contains(&&*name));
        let mode = match (language, &*name) {
            (Some(language), _) => HighlightMode::Language(language),
            (None, "diff" | "patch") => HighlightMode::Diff,
            (None, _) => HighlightMode::Nothing,
        };
        Self { mode, until: None }
    }

    /// The pieces of the next line.
    pub(super) fn line<'a>(&mut self, line: &'a str) -> Vec<(&'a str, CodeToken)> {
        match self.mode {
            HighlightMode::Language(language) if line.len() <= LINE_BYTES_MAX => {
                self.tokens(language, line)
            }
            HighlightMode::Diff => vec![(line, diff_token(line))],
            _ => vec![(line, CodeToken::Plain)],
        }
    }

    fn tokens<'a>(
        &mut self,
        language: &'static CodeLanguage,
        line: &'a str,
    ) -> Vec<(&'a str, CodeToken)> {
        let mut tokens = Vec::new();
        let (mut rest, mut plain) = (line, line);
        while !rest.is_empty() {
            let before = line[..line.len() - rest.len()].chars().next_back();
            let (len, token) = self.next(language, rest, before);
            let (_, behind) = rest.split_at(len);
            if token != CodeToken::Plain {
                let (before, _) = plain.split_at(plain.len() - rest.len());
                push(&mut tokens, before, CodeToken::Plain);
                push(&mut tokens, &rest[..len], token);
                plain = behind;
            }
            rest = behind;
        }
        push(&mut tokens, plain, CodeToken::Plain);
        tokens
    }

    /// Length and meaning of what a text begins with.
    fn next(
        &mut self,
        language: &'static CodeLanguage,
        rest: &str,
        before: Option<char>,
    ) -> (usize, CodeToken) {
        if let Some((end, token)) = self.until {
            let Some(at) = rest.find(end) else {
                return (rest.len(), token);
            };
            self.until = None;
            return (at + end.len(), token);
        }
        let comments = || language.line_comments.iter();
        // A `#` within a word begins no comment.
        let is_apart = before.is_none_or(char::is_whitespace);
        if comments().any(|mark| rest.starts_with(mark) && (*mark != "#" || is_apart)) {
            return (rest.len(), CodeToken::Comment);
        }
        if let Some((begin, end)) = language
            .block_comment
            .filter(|(begin, _)| rest.starts_with(begin))
        {
            self.until = Some((end, CodeToken::Comment));
            return (begin.len(), CodeToken::Comment);
        }
        if let Some(quote) = language
            .long_quotes
            .iter()
            .find(|quote| rest.starts_with(**quote))
        {
            self.until = Some((quote, CodeToken::Text));
            return (quote.len(), CodeToken::Text);
        }
        let Some(first) = rest.chars().next() else {
            return (rest.len(), CodeToken::Plain);
        };
        if language.quotes.contains(&first) {
            return (quoted_len(rest, first), CodeToken::Text);
        }
        if first.is_alphanumeric() || first == '_' {
            let len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
            let word = &rest[..len.unwrap_or(rest.len())];
            let is_sql = language.line_comments == ["--"];
            let is_keyword = language.keywords.contains(&word)
                || (is_sql && language.keywords.contains(&&*word.to_ascii_lowercase()));
            let token = match first {
                _ if is_keyword => CodeToken::Keyword,
                '0'..='9' => CodeToken::Number,
                _ => CodeToken::Plain,
            };
            return (word.len(), token);
        }
        (first.len_utf8(), CodeToken::Plain)
    }
}

fn push<'a>(tokens: &mut Vec<(&'a str, CodeToken)>, text: &'a str, token: CodeToken) {
    if !text.is_empty() {
        tokens.push((text, token));
    }
}

/// Length of a quoted text, to the end of the line at most.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

fn diff_token(line: &str) -> CodeToken {
    match line.chars().next() {
        Some('+') => CodeToken::Added,
        Some('-') => CodeToken::Removed,
        Some('@') => CodeToken::Keyword,
        _ => CodeToken::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(info: &str, lines: &[&str]) -> Vec<String> {
        let mut highlighter = CodeHighlighter::new(info);
        let line = |line: &&str| {
            let pieces = highlighter.line(line);
            assert_eq!(
                pieces.iter().map(|(text, _)| *text).collect::<String>(),
                **line
            );
            let mark = |(text, token): &(&str, CodeToken)| match token {
                CodeToken::Plain => (*text).to_owned(),
                CodeToken::Keyword => format!("k({text})"),
                CodeToken::Text => format!("t({text})"),
                CodeToken::Number => format!("n({text})"),
                CodeToken::Comment => format!("c({text})"),
                CodeToken::Added | CodeToken::Removed => format!("d({text})"),
            };
            pieces.iter().map(mark).collect()
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn languages_have_keywords_texts_and_comments() {
        let rust = marked(
            "rust",
            &["let a = \"x\\\"y\" + 12; // é", "a /* b", "c */ fn 'a"],
        );
        assert_eq!(
            rust,
            [
                "k(let) a = t(\"x\\\"y\") + n(12); c(// é)",
                "a c(/*)c( b)",
                "c(c */) k(fn) 'a"
            ]
        );
        assert_eq!(
            marked("py", &["x = \"\"\"a", "b\"\"\" # c"]),
            ["x = t(\"\"\")t(a)", "t(b\"\"\") c(# c)"]
        );
        assert_eq!(
            marked("sh", &["echo $# 'a", "# b"]),
            ["k(echo) $# t('a)", "c(# b)"]
        );
        assert_eq!(
            marked("sql", &["SELECT 1 -- x"]),
            ["k(SELECT) n(1) c(-- x)"]
        );
        assert_eq!(marked("diff", &["+a", " b"]), ["d(+a)", " b"]);
        assert_eq!(marked("", &["let a"]), ["let a"]);
        assert_eq!(
            marked("rust", &[&"\"".repeat(LINE_BYTES_MAX + 1)])[0].len(),
            LINE_BYTES_MAX + 1
        );
    }
}
