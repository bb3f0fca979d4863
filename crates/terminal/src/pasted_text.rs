//! Long pasted texts. The line that a person edits shows a token for each of them, such as `[pasted 120 lines]`, so that
//! the line stays readable. The sent text contains the pasted text.

/// A text with more lines than this is shown as a token.
const LINES_MAX: usize = 10;

/// The pasted texts that the tokens of a line stand for.
#[derive(Debug, Default)]
pub(super) struct PastedTexts {
    texts: Vec<PastedText>,
}

#[derive(Debug)]
struct PastedText {
    token: String,
    text: String,
}

impl PastedTexts {
    /// The text for the line: a short text unchanged, or a token. `line` is the present line.
    pub(super) fn fold(&mut self, text: String, line: &str) -> String {
        let count = text.lines().count();
        if count <= LINES_MAX {
            return text;
        }
        let same = self.texts.iter().find(|known| known.text == text);
        if let Some(known) = same.filter(|known| !line.contains(&known.token)) {
            return known.token.clone();
        }
        let count = grouped(count);
        let mut token = format!("[pasted {count} lines]");
        let mut number = 2;
        while self.texts.iter().any(|known| known.token == token) || line.contains(&token) {
            token = format!("[pasted {count} lines, {number}]");
            number += 1;
        }
        let shown = token.clone();
        self.texts.push(PastedText { token, text });
        shown
    }

    /// A line with its pasted texts in place of their tokens.
    pub(super) fn unfold(&self, line: &str) -> String {
        let mut whole = String::with_capacity(line.len());
        let mut rest = line;
        while let Some((at, known)) = self.next_token(rest) {
            whole.push_str(&rest[..at]);
            whole.push_str(&known.text);
            rest = &rest[at + known.token.len()..];
        }
        whole.push_str(rest);
        whole
    }

    /// The first token in a text, and its place.
    fn next_token(&self, text: &str) -> Option<(usize, &PastedText)> {
        let places = self
            .texts
            .iter()
            .filter_map(|known| text.find(&known.token).map(|at| (at, known)));
        places.min_by_key(|(at, _)| *at)
    }

    /// Letters of the token that ends at the end of this text.
    pub(super) fn token_before(&self, text: &str) -> Option<usize> {
        let mut texts = self.texts.iter();
        let known = texts.find(|known| text.ends_with(&known.token))?;
        Some(known.token.chars().count())
    }

    /// Letters of the token at the start of this text.
    pub(super) fn token_after(&self, text: &str) -> Option<usize> {
        let mut texts = self.texts.iter();
        let known = texts.find(|known| text.starts_with(&known.token))?;
        Some(known.token.chars().count())
    }

    /// Bytes of all pasted texts.
    pub(super) fn len(&self) -> usize {
        self.texts.iter().map(|known| known.text.len()).sum()
    }

    /// Forgets all texts, because the line was sent.
    pub(super) fn clear(&mut self) {
        self.texts.clear();
    }
}

/// The beginning of a long text of several lines, and the number of the other lines.
pub fn first_lines(text: &str) -> std::borrow::Cow<'_, str> {
    let count = text.lines().count();
    if count <= LINES_MAX {
        return text.into();
    }
    let shown = LINES_MAX / 2;
    let mut lines: Vec<&str> = text.lines().take(shown).collect();
    let more = format!("[{} more lines]", grouped(count - shown));
    lines.push(&more);
    lines.join("\n").into()
}

/// A number with separators between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_a_token_until_it_is_sent() {
        let mut pasted = PastedTexts::default();
        let [one, two] = ["a\n", "b\n"].map(|line| line.repeat(10_000));
        assert_eq!(pasted.fold("a\nb".to_owned(), ""), "a\nb");
        let first = pasted.fold(one.clone(), "");
        assert_eq!(first, "[pasted 10,000 lines]");
        let second = pasted.fold(two.clone(), &first);
        assert_eq!(second, "[pasted 10,000 lines, 2]");
        let line = format!("see {first} and {second}, not [pasted 3 lines]");
        let whole = format!("see {one} and {two}, not [pasted 3 lines]");
        assert_eq!(pasted.unfold(&line), whole);
        assert_eq!(pasted.token_before("see [pasted 10,000 lines]"), Some(21));
        assert_eq!(pasted.token_after("[pasted 10,000 lines] and"), Some(21));
        assert_eq!(pasted.token_before("see [pasted 10,000 lines"), None);
    }

    #[test]
    fn a_long_message_is_shown_by_its_beginning() {
        let long = "line\n".repeat(1_000);
        let shown = first_lines(&long);
        assert_eq!(shown.lines().count(), 6);
        assert!(shown.ends_with("[995 more lines]"));
        assert_eq!(first_lines("a\nb"), "a\nb");
    }
}
