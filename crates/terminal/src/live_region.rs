//! The changing lines at the bottom of a terminal: one for each piece of running work.
//!
//! The queue's own thread draws these lines from their latest values. A terminal that accepts no output therefore
//! blocks no other thread, and the next frame always contains all earlier changes. (A progress library, in contrast,
//! draws in the thread that reports the progress.)

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::flow::OpenText;
use super::input_line::InputLine;
use super::margin::Margin;
use super::narrowing::Narrowing;
use super::progress_bar::{RunningProgress, progress_bar};
use super::status_line::StatusLine;
use super::text::{Style, Styled, TextRole, styled};
use allstop_core::elapsed::duration;

/// Interval between drawings of the changing lines; short enough for a smooth spinner.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// Maximum number of running lines with their output. More lines would push the text off a small terminal.
const LINES_MAX: usize = 8;

/// Minimum columns of a line that shows a stop with the name of the work, the time until the stop uses force, and the
/// key that uses force at once.
const STOPPING_COLUMNS_MIN: usize = 56;

/// A line for running work.
#[derive(Debug, Clone)]
pub struct RunningLine {
    /// Name of the work, in one line.
    pub label: Styled,
    /// Time that is shown after the label.
    pub clock: RunningClock,
    /// Progress of the work, shown below the line.
    pub progress: Option<RunningProgress>,
    /// The last lines of the work's output, shown below the line.
    pub tail: Vec<Styled>,
    /// Colours and symbols.
    pub style: Style,
}

/// The time that a running line shows.
#[derive(Debug, Clone, Copy)]
pub enum RunningClock {
    /// Time since the work began.
    Since(Instant),
    /// Time until a stop uses force, after which the work has no more time to end by itself.
    ForceAt(Instant),
}

/// The region that is currently drawn.
#[derive(Debug, Default)]
pub(super) struct LiveRegion {
    frame: RegionFrame,
    /// True if the row above the region has text without a line end.
    below_open_line: bool,
}

/// Rows that the region shows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RegionFrame {
    /// Rows from top to bottom, each narrower than the terminal.
    rows: Vec<RegionRow>,
    /// Row and column of the cursor; `None` if the cursor is below the last row.
    cursor: Option<(usize, usize)>,
}

#[derive(Debug, PartialEq, Eq)]
struct RegionRow {
    text: String,
    width: usize,
}

/// The values from which a frame is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionParts<'a> {
    /// The incomplete text at the top of the region.
    pub(super) open: Option<&'a dyn OpenText>,
    pub(super) running: &'a [RunningLine],
    pub(super) input_line: Option<&'a InputLine>,
    pub(super) status: Option<&'a StatusLine>,
}

/// The properties of a terminal that drawing depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionTerminal {
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) narrowing: Narrowing,
    pub(super) margin: Margin,
}

/// Place of the cursor after the region was erased.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CursorPlace {
    /// At the former start of the region.
    Region,
    /// At the beginning of the row above the region, which has no line end. The text of this row must be written again.
    OpenRow,
    /// Below a row without a line end. The row stays unchanged.
    BelowOpenRow,
}

impl LiveRegion {
    /// True if no row is drawn.
    pub(super) fn is_empty(&self) -> bool {
        self.frame.is_empty()
    }

    /// Erases the region. `is_one_row` is true if the text without a line end above the region still takes one row.
    ///
    /// A terminal that reflows lines may show the region in more rows by now. If the behaviour of a terminal is
    /// unknown, the terminal is treated as one that does not reflow ([`Narrowing::Cuts`] is the default). The text
    /// above the region is then never erased.
    pub(super) fn erase(
        &mut self,
        terminal: RegionTerminal,
        is_one_row: bool,
        to: &mut String,
    ) -> CursorPlace {
        let region = std::mem::take(self);
        let above = region.frame.rows_above_cursor(terminal);
        let (erased, up) = if !region.below_open_line {
            (CursorPlace::Region, above)
        } else if is_one_row && above + 1 < terminal.rows {
            (CursorPlace::OpenRow, above + 1)
        } else {
            (CursorPlace::BelowOpenRow, above)
        };
        if up > 0 {
            let _ = write!(to, "\x1b[{up}A");
        }
        if up > 0 || region.frame.cursor.is_some() {
            clear_from_here(to);
        }
        erased
    }

    /// Draws a first frame at the cursor, where no region is drawn yet. `is_line_open` is true if the cursor is after
    /// text.
    pub(super) fn draw(&mut self, frame: RegionFrame, is_line_open: bool, to: &mut String) {
        if is_line_open {
            to.push('\n');
        }
        self.below_open_line = is_line_open;
        frame.draw_from(0, to);
        self.frame = frame;
    }

    /// Draws a frame over the current one, on a terminal with an unchanged size. Draws only from the first row that
    /// differs, or all rows if `is_whole` is true.
    pub(super) fn redraw(&mut self, frame: RegionFrame, is_whole: bool, to: &mut String) {
        let old = std::mem::take(&mut self.frame);
        if is_whole || old != frame {
            let same = old.rows.iter().zip(&frame.rows);
            let same = same.take_while(|(old, new)| old == new && !is_whole);
            let same = same.count();
            // The cursor cannot move to a row that does not exist yet. So drawing begins at the latest at the last row
            // that both frames have.
            let last = old.rows.len().min(frame.rows.len()).saturating_sub(1);
            let first = same.min(last);
            let (row, _) = old.cursor_place();
            if first < row {
                let _ = write!(to, "\x1b[{}A", row - first);
            } else if first > row {
                let _ = write!(to, "\x1b[{}B", first - row);
            }
            clear_from_here(to);
            frame.draw_from(first, to);
        }
        self.frame = frame;
    }
}

impl RegionFrame {
    /// The frame for a terminal of this size.
    pub(super) fn new(parts: &RegionParts<'_>, now: Instant, terminal: RegionTerminal) -> Self {
        let (margin, screen) = (terminal.margin, terminal.rows);
        let columns = terminal.columns.saturating_sub(margin.columns()).max(1);
        // Beside an input line, at least half of the screen is for the text above.
        let (half, mut cursor) = ((screen / 2).max(1), None);
        let drawn = parts.input_line.map(|line| line.draw(columns, screen));
        let room = match &drawn {
            Some(drawn) => half.saturating_sub(drawn.rows.len() + 1),
            None => screen.saturating_sub(2).max(1),
        };
        let mut below = Vec::new();
        add_running(parts.running, now, columns, room, &mut below);
        let room = if drawn.is_some() {
            half
        } else {
            screen.saturating_sub(1)
        };
        if let Some(drawn) = drawn {
            let column = margin.columns() + drawn.cursor_column;
            cursor = Some((below.len() + drawn.cursor_row, column));
            below.extend(drawn.rows.into_iter().map(Styled::of_escaped));
        }
        let status = parts.status.filter(|_| below.len() < room);
        below.extend(status.map(|status| status.draw(now, columns)));
        let mut rows: Vec<_> = match parts.open {
            Some(open) => open
                .parts()
                .iter()
                .flat_map(|part| part.rows(terminal.columns))
                .collect(),
            None => Vec::new(),
        };
        // If there is no room for all rows, only the last rows are shown. The other rows appear when their text is
        // complete.
        let room = screen.saturating_sub(below.len() + 1);
        let rows = rows.split_off(rows.len().saturating_sub(room));
        let outside = |row: &Styled| Styled::of_escaped(margin.outside(row.as_str()).into_owned());
        let mut rows: Vec<_> = rows
            .iter()
            .map(|row| RegionRow::of(&outside(row)))
            .collect();
        if let Some((row, _)) = &mut cursor {
            *row += rows.len();
        }
        rows.extend(below.iter().map(|row| RegionRow::of(&margin.own(row))));
        Self { rows, cursor }
    }

    /// True if there is nothing to draw.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn cursor_place(&self) -> (usize, usize) {
        self.cursor.unwrap_or((self.rows.len(), 0))
    }

    /// Number of terminal rows between the first row of the region and the cursor's row.
    fn rows_above_cursor(&self, terminal: RegionTerminal) -> usize {
        let columns = terminal.columns.max(1);
        let (row, column) = self.cursor_place();
        if terminal.narrowing == Narrowing::Cuts {
            return row;
        }
        let heights = self
            .rows
            .iter()
            .take(row)
            .map(|row| row.width.div_ceil(columns).max(1));
        heights.sum::<usize>() + column / columns
    }

    fn draw_from(&self, first: usize, to: &mut String) {
        for (at, row) in self.rows.iter().enumerate().skip(first) {
            if at > first {
                to.push('\n');
            }
            to.push_str(&row.text);
        }
        let Some((row, column)) = self.cursor else {
            if !self.rows.is_empty() {
                to.push('\n');
            }
            return;
        };
        let below = self.rows.len().saturating_sub(row + 1);
        if below > 0 {
            let _ = write!(to, "\x1b[{below}A");
        }
        to.push('\r');
        if column > 0 {
            let _ = write!(to, "\x1b[{column}C");
        }
    }
}

/// Clears the cursor's row and everything below it. The sequence never clears the whole screen from its first column,
/// because tmux would move the cleared text to its history, where the text would appear a second time. The cursor stays
/// in its row, because the row below may be gone if the window has fewer rows by now.
fn clear_from_here(to: &mut String) {
    to.push_str("\r\x1b[2K\x1b[C\x1b[J\r");
}

impl RegionRow {
    fn of(text: &Styled) -> Self {
        Self {
            width: text.width(),
            text: text.as_str().to_owned(),
        }
    }
}

fn add_running(
    running: &[RunningLine],
    now: Instant,
    columns: usize,
    room: usize,
    to: &mut Vec<Styled>,
) {
    let room = LINES_MAX.min(room);
    if room == 0 {
        return;
    }
    let shown = match running.len() {
        len if len <= room => len,
        _ => room - 1,
    };
    // Shows output only if every line of work has room.
    let mut room_for_output = room.saturating_sub(running.len());
    for line in running.iter().take(shown) {
        to.push(line.draw(now, columns));
        if let Some(progress) = line.progress.as_ref().filter(|_| room_for_output > 0) {
            let bar = progress_bar(progress, line.style, columns.saturating_sub(1));
            to.push(bar);
            room_for_output -= 1;
        }
        let left_out = line.tail.len().saturating_sub(room_for_output);
        let tail = line.tail.get(left_out..).unwrap_or_default();
        to.extend(tail.iter().map(|output| line.draw_output(output, columns)));
        room_for_output -= tail.len();
    }
    if let Some(more) = running.len().checked_sub(shown).filter(|more| *more > 0) {
        let more = Styled::text(&format!("  and {more} more"));
        to.push(more.cut(columns.saturating_sub(1), ""));
    }
}

impl RunningLine {
    fn draw(&self, now: Instant, columns: usize) -> Styled {
        let mark = self.style.pick("…", "...");
        let (elapsed, time) = match self.clock {
            RunningClock::Since(since) => {
                let elapsed = now.saturating_duration_since(since);
                (elapsed, duration(elapsed))
            }
            RunningClock::ForceAt(force_at) => {
                let left = force_at.saturating_duration_since(now);
                (left, self.describe_force(left, columns))
            }
        };
        let frames = self.style.pick("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\");
        let count = frames.chars().count().max(1);
        let at = (elapsed.as_millis() / TICK.as_millis()) as usize % count;
        let frame = frames.chars().nth(at).unwrap_or(' ');
        // The last column stays free, because some terminals wrap the line as soon as the last column is written.
        let row = columns.saturating_sub(1);
        let time = styled![format_args!("  {time}")];
        let room = row.saturating_sub(time.widest() + 2);
        let time = self.style.paint(TextRole::Dim, time);
        let frame = self.style.paint(TextRole::Warning, frame.to_string());
        styled![frame, " ", self.label.cut(room, mark), time].cut(row, mark)
    }

    /// Describes the time until the stop uses force. Adds the key that uses force at once, if both fit next to the name
    /// of the work.
    fn describe_force(&self, left: Duration, columns: usize) -> String {
        if left.is_zero() {
            return "forcing".to_owned();
        }
        let time = format!("force in {}", duration(left));
        let key = format!(" {} Ctrl-C forces now", self.style.pick("·", "-"));
        if columns < STOPPING_COLUMNS_MIN {
            time
        } else {
            time + &key
        }
    }

    fn draw_output(&self, output: &Styled, columns: usize) -> Styled {
        let bar = self.style.pick("│", "|");
        let row = styled!["  ", bar, " ", output];
        let row = row.cut(columns.saturating_sub(1), self.style.pick("…", "..."));
        self.style.paint(TextRole::Dim, row)
    }
}

#[cfg(test)]
#[path = "live_region_tests.rs"]
mod tests;
