//! Computes diffs. The cost is bounded: equal beginnings and ends are skipped, and the search has a time limit.

use std::borrow::Cow;
use std::ops::Range;
use std::time::{Duration, Instant};

use allstop_core::counted::counted;
use similar::{Algorithm, ChangeTag, DiffOp, TextDiff};

use super::{DiffLine, DiffLineKind, FileChange};

/// Number of unchanged lines around a change, as in other diff tools.
const CONTEXT_LINES: usize = 3;
/// Number of bytes at the beginning of a file that are searched for a zero byte. A zero byte there means that the
/// content is not text, as in `git`.
const BINARY_CHECK_BYTES: usize = 8_000;

/// Maximum size of both changed parts together, in bytes, for a comparison by lines. Splitting and hashing lines has no
/// time limit, and a stop of the call waits until this work is done.
const COMPARED_BYTES_MAX: usize = 1024 * 1024;

/// Limits of a diff.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiffLimits {
    /// Maximum number of lines.
    pub(crate) lines_max: usize,
    /// Maximum size of all lines, in bytes.
    pub(crate) bytes_max: usize,
    /// Time limit of the search for equal lines. After this time, the remaining lines count as changed.
    pub(crate) search_time: Duration,
}

impl DiffLimits {
    /// Limits for the diff in a permission question. They are high, because a person should see the whole change before
    /// the answer. A larger change is not readable on a terminal.
    pub(crate) const QUESTION: Self = Self {
        lines_max: 10_000,
        bytes_max: 1024 * 1024,
        search_time: Duration::from_secs(1),
    };
    /// Limits for the diff in the transcript and in events. They are low, because thousands of events may wait for a
    /// slow receiver.
    pub(crate) const EVENT: Self = Self {
        lines_max: 400,
        bytes_max: 32 * 1024,
        search_time: Duration::from_millis(200),
    };
}

impl FileChange {
    /// A change without a diff, with the reason.
    pub(crate) fn without_lines(path: &str, note: String) -> Self {
        Self {
            path: path.to_owned(),
            added: 0,
            removed: 0,
            lines: Vec::new(),
            lines_left_out: 0,
            note: Some(note),
        }
    }
}

/// Returns the change from `old` to `new`. If `old` is `None`, the file is created.
pub(crate) fn file_change(
    path: &str,
    old: Option<&[u8]>,
    new: &[u8],
    limits: DiffLimits,
) -> FileChange {
    let before = old.unwrap_or_default();
    if is_binary(before) || is_binary(new) {
        return FileChange::without_lines(path, note_of_sizes("not text", old, new));
    }
    let window = ChangedWindow::of(before, new);
    if window.len() > COMPARED_BYTES_MAX {
        let note = note_of_sizes("too long to show what changes", old, new);
        return FileChange::without_lines(path, note);
    }
    let mut change = FileChange {
        note: None,
        ..FileChange::without_lines(path, String::new())
    };
    let old_text = window.text(before, window.old_end);
    let new_text = window.text(new, window.new_end);
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .deadline(Instant::now() + limits.search_time)
        .diff_lines(&*old_text, &*new_text);
    let is_crlf = has_only_crlf(&old_text) && has_only_crlf(&new_text);
    let mut lines = BoundedLines {
        change: &mut change,
        limits,
        bytes: 0,
    };
    for group in diff.grouped_ops(CONTEXT_LINES) {
        lines.push(DiffLineKind::Place, place_of(&group, window.lines_before));
        for op in &group {
            for part in diff.iter_changes(op) {
                let kind = match part.tag() {
                    ChangeTag::Equal => DiffLineKind::Context,
                    ChangeTag::Insert => DiffLineKind::Added,
                    ChangeTag::Delete => DiffLineKind::Removed,
                };
                let text = part.value();
                let text = text.strip_suffix('\n').unwrap_or(text);
                let text = text.strip_suffix('\r').filter(|_| is_crlf).unwrap_or(text);
                lines.push(kind, text.to_owned());
                if part.missing_newline() {
                    let remark = "no line end at the end of the file";
                    lines.push(DiffLineKind::Remark, remark.to_owned());
                }
            }
        }
    }
    if change.lines.is_empty() && before == new && old.is_some() {
        change.note = Some("the content stays the same".to_owned());
    } else if change.lines.is_empty() && before != new {
        change.note = Some("only bytes that are not text differ".to_owned());
    } else if change.lines.is_empty() {
        change.note = Some("an empty file".to_owned());
    }
    change
}

/// Formats a remark with the old and the new size of a file, for a change that is shown without lines.
fn note_of_sizes(remark: &str, old: Option<&[u8]>, new: &[u8]) -> String {
    let bytes = |text: &[u8]| counted(text.len() as u64, "byte", "bytes");
    match old {
        Some(old) => format!("{remark}: {} before, {} after", bytes(old), bytes(new)),
        None => format!("{remark}: {}", bytes(new)),
    }
}

/// Lines of a diff within limits. Lines beyond the limits are only counted.
struct BoundedLines<'a> {
    change: &'a mut FileChange,
    limits: DiffLimits,
    bytes: usize,
}

impl BoundedLines<'_> {
    fn push(&mut self, kind: DiffLineKind, text: String) {
        match kind {
            DiffLineKind::Added => self.change.added += 1,
            DiffLineKind::Removed => self.change.removed += 1,
            DiffLineKind::Place | DiffLineKind::Context | DiffLineKind::Remark => {}
        }
        self.bytes = self.bytes.saturating_add(text.len());
        let is_full =
            self.change.lines.len() >= self.limits.lines_max || self.bytes > self.limits.bytes_max;
        if is_full {
            // No line is added after a gap, because such a line would seem to follow the lines before the gap directly.
            self.bytes = usize::MAX;
            self.change.lines_left_out += 1;
        } else {
            self.change.lines.push(DiffLine { kind, text });
        }
    }
}

/// The part of two texts that contains all differences, in whole lines, with the surrounding context.
struct ChangedWindow {
    /// Start of the part, in both texts.
    start: usize,
    old_end: usize,
    new_end: usize,
    /// Number of lines before the part.
    lines_before: usize,
}

impl ChangedWindow {
    fn of(old: &[u8], new: &[u8]) -> Self {
        let same = |a: &u8, b: &u8| a == b;
        let pairs = old.iter().zip(new);
        let prefix = pairs.take_while(|(a, b)| same(a, b)).count();
        let rest = old.len().min(new.len()) - prefix;
        let ends = old.iter().rev().zip(new.iter().rev()).take(rest);
        let suffix = ends.take_while(|(a, b)| same(a, b)).count();
        // One line more than the context, because the first line may be incomplete.
        let start = start_of_line(old, prefix, CONTEXT_LINES + 1);
        let after = end_of_line(old, old.len() - suffix, CONTEXT_LINES + 1);
        let kept = old.len() - after;
        Self {
            start,
            old_end: after,
            new_end: new.len() - kept,
            lines_before: memchr::memchr_iter(b'\n', &old[..start]).count(),
        }
    }

    /// Length of the part in both texts together, in bytes.
    fn len(&self) -> usize {
        self.old_end + self.new_end - 2 * self.start
    }

    fn text<'a>(&self, content: &'a [u8], end: usize) -> Cow<'a, str> {
        String::from_utf8_lossy(content.get(self.start..end).unwrap_or_default())
    }
}

/// Returns the start of the line that is `above` lines above the line at `at`.
fn start_of_line(content: &[u8], at: usize, above: usize) -> usize {
    let mut ends = memchr::memrchr_iter(b'\n', &content[..at]);
    ends.nth(above).map_or(0, |end| end + 1)
}

/// Returns the end of the line that is `below` lines below the line at `at`.
fn end_of_line(content: &[u8], at: usize, below: usize) -> usize {
    let mut ends = memchr::memchr_iter(b'\n', &content[at..]);
    let end = ends.nth(below);
    end.map_or(content.len(), |end| at + end + 1)
}

fn is_binary(content: &[u8]) -> bool {
    let start = content.get(..BINARY_CHECK_BYTES).unwrap_or(content);
    memchr::memchr(0, start).is_some()
}

fn has_only_crlf(text: &str) -> bool {
    text.split_inclusive('\n')
        .all(|line| line.ends_with("\r\n"))
}

/// Returns the header line with the position of a group of changes.
fn place_of(group: &[DiffOp], lines_before: usize) -> String {
    let span = |range: fn(&DiffOp) -> Range<usize>| {
        let start = group.first().map_or(0, |op| range(op).start);
        let end = group.last().map_or(0, |op| range(op).end);
        let (len, first) = (end - start, lines_before + start);
        // As in every unified diff, an empty range gives the number of the line before the range.
        let first = if len == 0 { first } else { first + 1 };
        match len {
            1 => first.to_string(),
            len => format!("{first},{len}"),
        }
    };
    format!(
        "@@ -{} +{} @@",
        span(DiffOp::old_range),
        span(DiffOp::new_range)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(old: Option<&str>, new: &str) -> FileChange {
        let old = old.map(str::as_bytes);
        file_change("f", old, new.as_bytes(), DiffLimits::QUESTION)
    }

    fn shown(change: &FileChange) -> Vec<String> {
        let lines = change.lines.iter();
        lines
            .map(|line| format!("{}{}", line.kind.sign(), line.text))
            .collect()
    }

    fn numbers(count: usize) -> String {
        let lines: Vec<String> = (1..=count).map(|n| format!("{n}\n")).collect();
        lines.concat()
    }

    #[test]
    fn change_has_three_context_lines_and_its_line_number() {
        let old = numbers(1_000);
        let new = old.replace("\n500\n", "\nfive\nhundred\n");
        let change = change(Some(&old), &new);
        assert_eq!((change.added, change.removed), (2, 1));
        assert_eq!(
            shown(&change),
            [
                "@@ -497,7 +497,8 @@",
                " 497",
                " 498",
                " 499",
                "-500",
                "+five",
                "+hundred",
                " 501",
                " 502",
                " 503"
            ]
        );
    }

    #[test]
    fn created_files_and_missing_line_ends_are_shown() {
        assert_eq!(
            shown(&change(None, "a\nb")),
            [
                "@@ -0,0 +1,2 @@",
                "+a",
                "+b",
                "\\ no line end at the end of the file"
            ]
        );
        assert_eq!(change(None, "").note.as_deref(), Some("an empty file"));
        let same = change(Some("a\n"), "a\n");
        assert_eq!(same.note.as_deref(), Some("the content stays the same"));
        let emptied = change(Some("a\n"), "");
        assert_eq!(shown(&emptied), ["@@ -1 +0,0 @@", "-a"]);
    }

    #[test]
    fn carriage_returns_are_shown_where_only_some_lines_have_them() {
        assert_eq!(
            shown(&change(Some("a\r\nb\r\n"), "a\r\nc\r\n"))[2..],
            ["-b", "+c"]
        );
        assert_eq!(
            shown(&change(Some("a\nb\n"), "a\nb\r\n"))[2..],
            ["-b", "+b\r"]
        );
    }

    #[test]
    fn binary_content_has_no_lines() {
        let of = |old: &[u8], new: &[u8]| file_change("f", Some(old), new, DiffLimits::EVENT);
        let binary = of(b"\0\x01", b"abc");
        assert!(binary.lines.is_empty());
        assert_eq!(
            binary.note.as_deref(),
            Some("not text: 2 bytes before, 3 bytes after")
        );
        let bytes = of(b"a\xff\n", b"a\xfe\n");
        let note = bytes.note.as_deref();
        assert_eq!(note, Some("only bytes that are not text differ"));
        // Invalid bytes elsewhere do not hide a change.
        let changed = of(b"a\xff\nb\n", b"a\xff\nc\n");
        assert_eq!((changed.added, changed.removed), (1, 1));
    }

    #[test]
    fn only_long_changes_are_not_compared() {
        let old = "old\n".repeat(1_000_000);
        let new = "new\n".repeat(1_000_000);
        let whole = change(Some(&old), &new);
        let note = whole.note.unwrap();
        assert_eq!(
            note,
            "too long to show what changes: 4,000,000 bytes before, 4,000,000 bytes after"
        );
        let small = change(Some(&old), &format!("{old}end\n"));
        assert_eq!((small.added, small.removed), (1, 0));
        let created = change(None, &new).note.unwrap();
        assert_eq!(created, "too long to show what changes: 4,000,000 bytes");
    }

    #[test]
    fn diff_is_bounded_and_counts_what_is_left_out() {
        let new = numbers(5_000);
        let change = file_change("f", None, new.as_bytes(), DiffLimits::EVENT);
        assert_eq!(change.added, 5_000);
        assert_eq!(change.lines.len(), DiffLimits::EVENT.lines_max);
        assert_eq!(change.lines_left_out, 5_001 - change.lines.len());
        let long = "x".repeat(DiffLimits::EVENT.bytes_max + 1);
        let change = file_change("f", None, long.as_bytes(), DiffLimits::EVENT);
        // The line without a line end, and the remark on that line, are left out.
        assert_eq!((change.lines.len(), change.lines_left_out), (1, 2));
    }

    #[test]
    fn diff_of_unrelated_large_texts_respects_the_time_limit() {
        let of = |seed: u64| -> String {
            let line = |n: u64| format!("{}\n", n.wrapping_mul(seed) ^ (n << 7));
            let lines: Vec<String> = (1..30_000).map(line).collect();
            lines.concat()
        };
        let began = Instant::now();
        let change = change(Some(&of(2_654_435_761)), &of(40_503));
        assert!(change.added > 20_000, "{}", change.added);
        let took = began.elapsed();
        assert!(took < DiffLimits::QUESTION.search_time * 10, "{took:?}");
    }
}
