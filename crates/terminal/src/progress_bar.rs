//! Progress of a running call in one row: a bar if the total is known, otherwise a counter.

use std::sync::Arc;

use super::text::{Style, Styled, TextRole, styled};

/// Maximum columns of a bar: enough to see it move, and at most a quarter of the row.
const BAR_COLUMNS_MAX: usize = 20;

/// Progress of running work.
#[derive(Debug, Clone, PartialEq)]
pub struct RunningProgress {
    /// Completed share, from 0 to 1, if the total is known.
    pub share: Option<f64>,
    /// The numbers, such as `3/10`. These numbers are shown if the total is unknown.
    pub amounts: String,
    /// Text about the state of the work, escaped before it is shown.
    pub message: Option<Arc<str>>,
}

impl RunningProgress {
    /// Completed part of `whole`, rounded down, if the total is known.
    fn part_of(&self, whole: usize) -> Option<usize> {
        #[expect(
            clippy::cast_sign_loss,
            reason = "a float that is negative or no number becomes 0"
        )]
        let part = (self.share? * whole as f64) as usize;
        Some(part.min(whole))
    }
}

/// Draws progress in at most `columns` columns, with the indentation of the rows below a running line.
pub(super) fn progress_bar(progress: &RunningProgress, style: Style, columns: usize) -> Styled {
    let mut row = Styled::from("  ");
    let bar = BAR_COLUMNS_MAX.min(columns.saturating_sub(2) / 4);
    match progress.part_of(100).zip(progress.part_of(bar)) {
        Some((percent, done)) => {
            let full = style.pick("█", "#").repeat(done);
            let rest = style.pick("░", "-").repeat(bar - done);
            row.push(&style.paint(TextRole::Good, full));
            row.push(&style.paint(TextRole::Dim, rest));
            row.push(&format!(" {percent:>3} %"));
        }
        None => row.push(&progress.amounts),
    }
    if let Some(message) = &progress.message {
        row.push("  ");
        row.push(&style.paint(TextRole::Dim, styled![message]));
    }
    row.cut(columns, style.pick("…", "..."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(style: Style, columns: usize, total: Option<f64>, message: Option<&str>) -> String {
        let progress = RunningProgress {
            share: total.map(|total| 3.0 / total),
            amounts: "3".to_owned(),
            message: message.map(Arc::from),
        };
        let row = progress_bar(&progress, style, columns);
        assert!(row.width() <= columns, "{columns}: {row:?}");
        row.as_str().to_owned()
    }

    #[test]
    fn bar_percent_and_message_fit_the_width() {
        let unicode = Style::new(false, true);
        assert_eq!(
            drawn(unicode, 79, Some(10.0), Some("linking")),
            "  █████░░░░░░░░░░░░░░  30 %  linking"
        );
        assert_eq!(
            drawn(unicode, 37, Some(4.0), Some("compiling the last crate")),
            "  ██████░░  75 %  compiling the last…"
        );
        let ascii = Style::new(false, false);
        assert_eq!(drawn(ascii, 35, Some(3.0), None), "  ######## 100 %");
        assert_eq!(drawn(ascii, 35, None, Some("rows")), "  3  rows");
        for columns in 3..80 {
            drawn(
                unicode,
                columns,
                Some(10.0),
                Some("👩‍👩‍👧 日本語 long enough to be cut"),
            );
            drawn(ascii, columns, None, Some("message"));
        }
    }

    #[test]
    fn part_is_rounded_down_and_never_more_than_the_whole() {
        let part = |share, whole| {
            let (amounts, message) = (String::new(), None);
            RunningProgress {
                share,
                amounts,
                message,
            }
            .part_of(whole)
        };
        assert_eq!(part(Some(0.3), 8), Some(2));
        assert_eq!(part(Some(2.0), 8), Some(8));
        assert_eq!(part(Some(-1.0), 8), Some(0));
        assert_eq!(part(Some(f64::NAN), 8), Some(0));
        assert_eq!(part(None, 8), None);
    }

    #[test]
    fn messages_cannot_control_the_terminal() {
        let style = Style::new(true, true);
        let row = drawn(style, 200, Some(10.0), Some("a\n\x1b[2Jb\rc\u{202e}d\x07"));
        assert!(!row.contains(['\n', '\r', '\x07', '\u{202e}']), "{row:?}");
        assert!(!row.contains("\x1b[2J"), "{row:?}");
    }
}
