//! Columns, cuts and wraps, measured as terminals measure: by the width of letters, not by their number.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The text, cut to so many columns and marked if it was.
pub(crate) fn cut<'a>(text: &'a str, columns: usize, mark: &str) -> std::borrow::Cow<'a, str> {
    if width(text) <= columns {
        return text.into();
    }
    let room = columns.saturating_sub(width(mark));
    let mut used = 0;
    let mut kept = String::new();
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > room {
            break;
        }
        kept.push(c);
    }
    kept.push_str(mark);
    kept.into()
}

/// The text, filled up with spaces to so many columns.
pub(crate) fn pad(text: &str, columns: usize) -> String {
    let missing = columns.saturating_sub(width(text));
    format!("{text}{:missing$}", "")
}

/// The text in lines of so many columns, broken between words; a word that is longer stays whole.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Lines with aligned columns, the last of them ragged.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Adds a line.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// The lines, each with its end of line.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|at| {
                let cells = self.rows.iter().filter_map(|row| row.get(at));
                cells.map(|cell| width(cell)).max().unwrap_or_default()
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, w)| pad(cell, *w));
            let line = cells.collect::<Vec<_>>().join("  ");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_letters_count_twice() {
        assert_eq!(cut("你好世界", 5, "…"), "你好…");
        assert_eq!(cut("你好世界", 8, "…"), "你好世界");
        assert_eq!(pad("你好", 5), "你好 ");
        assert_eq!(cut("abc", 0, "…"), "…");
    }

    #[test]
    fn long_words_are_not_broken() {
        assert_eq!(wrap("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrap("abcdefgh i", 4), ["abcdefgh", "i"]);
        assert!(wrap("", 4).is_empty());
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::default();
        table.row(["ID".into(), "TURNS".into(), "LAST".into()]);
        table.row(["01J".into(), "3".into(), String::new()]);
        assert_eq!(table.render(), "ID   TURNS  LAST\n01J  3\n");
    }
}
