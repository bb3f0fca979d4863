//! The change of a file by a tool call: the size of the change, and the coloured diff.

use allstop_core::counted::counted;
use allstop_terminal::{Style, Styled, TextRole, styled, without_tabs};
use allstop_tools::{DiffLineKind, FileChange};

/// Maximum lines of a diff in the transcript: about a screen. The permission question before the call can show the
/// whole diff.
const LINES_MAX: usize = 40;

/// Size of a change, printed after the file name: ` +3 −1`.
pub(crate) fn change_counts(change: &FileChange, style: Style) -> String {
    let minus = style.pick("−", "-");
    match (change.added, change.removed) {
        (0, 0) => String::new(),
        (added, 0) => format!(" +{added}"),
        (0, removed) => format!(" {minus}{removed}"),
        (added, removed) => format!(" +{added} {minus}{removed}"),
    }
}

/// Colour of a diff line.
pub(crate) fn change_role(kind: DiffLineKind) -> Option<TextRole> {
    match kind {
        DiffLineKind::Added => Some(TextRole::Good),
        DiffLineKind::Removed => Some(TextRole::Bad),
        DiffLineKind::Place | DiffLineKind::Remark => Some(TextRole::Dim),
        DiffLineKind::Context => None,
    }
}

/// The diff for the transcript. Each line is cut to `columns`.
pub(super) fn change_lines(change: &FileChange, style: Style, columns: usize) -> Styled {
    let bar = style.paint(TextRole::Dim, style.pick("│", "|"));
    let mut lines = Styled::default();
    for line in change.lines.iter().take(LINES_MAX) {
        let text = format!("{}{}", line.kind.sign(), without_tabs(&line.text));
        let text = styled![text].cut(columns.saturating_sub(5), style.pick("…", "..."));
        let text = match change_role(line.kind) {
            Some(role) => style.paint(role, text),
            None => text,
        };
        lines.push_line(&styled!["  ", bar, " ", text]);
    }
    let more = change.lines.len().saturating_sub(LINES_MAX) + change.lines_left_out;
    let said = match (more, &change.note) {
        (0, None) => return lines,
        (0, Some(note)) => format!("  {note}"),
        (more, _) => {
            let more = counted(more as u64, "more line", "more lines");
            format!("  {} {more}", style.pick("…", "..."))
        }
    };
    lines.push_line(&style.paint(TextRole::Dim, said));
    lines
}
