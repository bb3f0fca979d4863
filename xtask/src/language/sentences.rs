//! Length of the sentences in documents.

use crate::documents;

/// Maximum number of words in a sentence. A longer sentence should be split.
const WORDS_MAX: usize = 40;

/// Ends of sentences. The two parts around a colon or semicolon count as two sentences, because each part can be read
/// alone. The steps around an arrow count separately for an equal reason.
const ENDS: [&str; 6] = [". ", "! ", "? ", ": ", "; ", "→ "];

pub(super) fn check() -> anyhow::Result<()> {
    documents::report(|text, _| {
        let paragraphs = paragraphs(text);
        let sentences = paragraphs.iter().flat_map(|paragraph| sentences(paragraph));
        let long = sentences.filter(|sentence| words(sentence) > WORDS_MAX);
        long.map(|sentence| {
            let count = words(sentence);
            format!("a sentence has {count} words, more than {WORDS_MAX}: {sentence}")
        })
        .collect()
    })
}

/// Returns paragraphs and list items, each as one line. Tables and headings are omitted.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for (_, row) in documents::numbered_prose(text) {
        let row = row.trim();
        let is_item = ["- ", "* "].iter().any(|sign| row.starts_with(sign))
            || row
                .split_once(". ")
                .is_some_and(|(number, _)| number.parse::<u8>().is_ok());
        if row.is_empty() || is_item || row.starts_with(['#', '|']) {
            paragraphs.push(String::new());
        }
        if let Some(paragraph) = paragraphs.last_mut()
            && !row.starts_with(['#', '|'])
        {
            paragraph.push_str(row);
            paragraph.push(' ');
        }
    }
    paragraphs
}

fn sentences(paragraph: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut rest = paragraph;
    while let Some(end) = ENDS.iter().filter_map(|end| rest.find(end)).min() {
        let after_end = rest.ceil_char_boundary(end + 1);
        let (sentence, after) = rest.split_at(after_end);
        sentences.push(sentence.trim());
        rest = after;
    }
    sentences.push(rest.trim());
    sentences
}

/// Returns the number of words. A piece of inline code counts as one word.
fn words(sentence: &str) -> usize {
    let pieces = sentence.split('`').enumerate();
    let counts = pieces.map(|(at, piece)| match at % 2 {
        0 => piece.split_whitespace().count(),
        _ => 1,
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_at_stops_items_and_paragraphs() {
        let text = "# A heading\n\nOne `a b c` two.\nThree\nfour: five.\n\n- six\n  seven\n1. eight\n| a |\n```\ncode\n```\n";
        let paragraphs = paragraphs(text);
        let found = paragraphs.iter().flat_map(|paragraph| sentences(paragraph));
        let found: Vec<_> = found.filter(|sentence| !sentence.is_empty()).collect();
        let expected = [
            "One `a b c` two.",
            "Three four:",
            "five.",
            "- six seven",
            "1.",
            "eight",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn piece_of_code_is_one_word() {
        assert_eq!(words("One `a b c` two."), 3);
        assert_eq!(words("`a b`"), 1);
    }
}
