//! Phrases that make a sentence hard to read. The check limits the rate of these phrases in comments and documents.
//!
//! In the comments of nextest, helix and uv, each of these phrases occurs at most 1.8 times in 1,000 lines.

use std::path::Path;
use std::sync::LazyLock;

use anyhow::bail;
use regex::Regex;

use crate::documents;
use crate::sources::read;

/// Maximum number of occurrences of one phrase in 1,000 lines.
const RATE_MAX: usize = 2;

/// Maximum number of places that a failure lists for one phrase.
const PLACES_SHOWN: usize = 20;

/// Phrase that makes a sentence hard to read.
struct Phrase {
    name: &'static str,
    pattern: &'static str,
    instead: &'static str,
}

const PHRASES: [Phrase; 11] = [
    Phrase {
        name: "what-clause",
        pattern: r"(?i)\bwhat (?:is|was|are|were|has|had|it|they|the|a|of|to|runs|ran|comes|came)\b",
        instead: "the noun: the output, the remaining work, the cause",
    },
    Phrase {
        name: "nobody",
        pattern: r"(?i)\b(?:nobody|somebody|everybody|whoever|whatever|whose turn|none of (?:it|them|this|which))\b",
        instead: "the actor: no client, another process, the caller",
    },
    Phrase {
        name: "says",
        pattern: r"(?i)\b(?:says?|said)\b",
        instead: "reports, returns, names, prints, lists, contains",
    },
    Phrase {
        name: "tells",
        pattern: r"(?i)\b(?:tells?|told)\b",
        instead: "sends, notifies, informs, distinguishes",
    },
    Phrase {
        name: "behind",
        pattern: r"(?i)\bbehind\b",
        instead: "after, following",
    },
    Phrase {
        name: "it at the start of a line",
        pattern: r"^(?:It|They) ",
        instead: "the noun",
    },
    Phrase {
        name: "the same at the start of a line",
        pattern: r"^The same\b",
        instead: "like [`other`], but …",
    },
    Phrase {
        name: "of its own",
        pattern: r"(?i)\bof (?:its|their|his|our) own\b",
        instead: "separate, own, dedicated",
    },
    Phrase {
        name: "becomes of",
        pattern: r"(?i)\b(?:becomes? of|became of|goes on|go on|hears? of|heard of|is there\b|that there is|comes to|lets go|let go)",
        instead: "result, continues, receives, detaches, exists",
    },
    Phrase {
        name: "those that",
        pattern: r"(?i)\b(?:the one who|the ones? that|those that|that which|for which)\b",
        instead: "the noun: the sender, the reason, the calls that …",
    },
    Phrase {
        name: "beside",
        pattern: r"(?i)\b(?:beside|besides|likewise|thereby|thereafter|whence|thus)\b",
        instead: "next to, except, in addition to, also, therefore",
    },
];

static COMPILED: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let compile = |phrase: &Phrase| Regex::new(phrase.pattern).expect("a pattern of this file");
    PHRASES.iter().map(compile).collect()
});

/// A line of text with its place.
struct Line {
    /// Path of the file and number of the line.
    place: String,
    text: String,
}

/// Checks how often each phrase occurs, separately for comments and for prose.
pub(super) fn check() -> anyhow::Result<()> {
    let sources = read("*.rs")?;
    let comments = sources
        .iter()
        .flat_map(|file| comments(&file.path, &file.text));
    let mut complaints = frequent("comment lines", &comments.collect::<Vec<_>>());
    let documents = read("*.md")?;
    let prose = documents
        .iter()
        .flat_map(|file| prose(&file.path, &file.text));
    complaints.extend(frequent("lines of prose", &prose.collect::<Vec<_>>()));
    if complaints.is_empty() {
        return Ok(());
    }
    bail!("{}", complaints.join("\n"))
}

fn comments(path: &Path, text: &str) -> Vec<Line> {
    let rows = (1..).zip(text.lines());
    let comments = rows.filter_map(|(number, row)| {
        let text = row.trim().strip_prefix("//")?;
        Some(line(path, number, text.trim_start_matches(['/', '!'])))
    });
    comments.collect()
}

fn prose(path: &Path, text: &str) -> Vec<Line> {
    let rows = documents::numbered_prose(text);
    let rows = rows.filter(|(_, row)| !row.trim().is_empty() && !row.starts_with("|--"));
    rows.map(|(number, row)| line(path, number, row)).collect()
}

fn line(path: &Path, number: usize, text: &str) -> Line {
    Line {
        place: format!("{}:{number}", path.display()),
        text: text.trim().to_owned(),
    }
}

fn frequent(kind: &str, lines: &[Line]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (phrase, pattern) in PHRASES.iter().zip(&*COMPILED) {
        let found = lines.iter().filter(|line| pattern.is_match(&line.text));
        let found: Vec<_> = found.collect();
        let (name, count, all) = (phrase.name, found.len(), lines.len());
        if count * 1_000 <= RATE_MAX * all {
            continue;
        }
        complaints.push(format!(
            "\"{name}\": {count} of {all} {kind}, more than {RATE_MAX} in 1,000. Write instead: {}",
            phrase.instead
        ));
        let places = found.into_iter().take(PLACES_SHOWN);
        complaints.extend(places.map(|line| format!("  {}: {}", line.place, line.text)));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_comments(text: &str) -> usize {
        frequent("comment lines", &comments(Path::new("a.rs"), text)).len()
    }

    fn in_prose(text: &str) -> usize {
        frequent("lines of prose", &prose(Path::new("a.md"), text)).len()
    }

    /// The complaint about a phrase has one line for the phrase and one line for each place.
    #[test]
    fn frequent_phrase_is_found() {
        assert_eq!(in_comments("/// What is left.\nfn left() {}\n"), 2);
        assert_eq!(in_comments("    // Nobody said so.\n"), 4);
        assert_eq!(in_comments("let what = \"what is left\";\n"), 0);
        assert_eq!(in_prose("Nobody reads the log.\n"), 2);
        assert_eq!(in_prose("```\nwhat is left\n```\n"), 0);
    }

    #[test]
    fn rare_phrase_passes() {
        let text = |others| format!("// It was.\n{}", "// A cause.\n".repeat(others));
        assert_eq!(in_comments(&text(499)), 0);
        assert_eq!(in_comments(&text(498)), 2);
    }
}
