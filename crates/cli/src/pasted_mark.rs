//! Invisible mark after each `@` of a pasted text, so that a name in the pasted text attaches no file.
//!
//! The mark is the variation selector for text. It takes no column and belongs to the letter `@`, so every editing key
//! treats both as one letter. The history of typed lines keeps the mark. A message, command or reply loses it when it
//! leaves the input line.

/// The mark. It makes no sense after `@` in any other text.
const MARK: char = '\u{fe0e}';

/// Marks each `@` of a pasted text.
pub(crate) fn mark(pasted: &str) -> String {
    pasted.replace('@', &format!("@{MARK}"))
}

/// Removes the marks.
pub(crate) fn unmark(text: &str) -> String {
    text.replace(&format!("@{MARK}"), "@")
}

/// Removes the marks from a line, and returns the position of the cursor without them. Some terminals show the mark.
pub(crate) fn unmark_line(line: &str, cursor: usize) -> (String, usize) {
    let before = line.get(..cursor).unwrap_or(line);
    (unmark(line), unmark(before).len())
}

/// True if the `@` before this text was pasted.
pub(crate) fn is_marked(after_at: &str) -> bool {
    after_at.starts_with(MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmark_restores_the_pasted_text() {
        for text in ["", "a@b @c @@ @", "@\u{fe0e}old mark"] {
            assert_eq!(unmark(&mark(text)), text);
        }
        let line = mark("a@b@c");
        assert_eq!(unmark_line(&line, line.len() - 1), ("a@b@c".to_owned(), 4));
        assert!(is_marked(&mark("@x")[1..]) && !is_marked("x"));
    }
}
