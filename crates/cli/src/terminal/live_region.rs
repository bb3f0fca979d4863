//! The lines at the bottom of a terminal that change: one for each piece of running work.
//!
//! They are drawn by the queue's own thread from the latest value, so that a terminal that does not take them blocks
//! nobody, and no frame can be lost between two others. (A progress library draws from whichever thread moves it.)

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::input_line::InputLine;
use super::text::{Style, Styled, TextRole, styled};
use crate::display::duration;

/// Interval between drawings of the lines that change: as often as a spinner needs to look alive.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// Running lines drawn at most, with their output: more would push the text off a small terminal.
const LINES_MAX: usize = 8;

/// A line for running work.
#[derive(Debug, Clone)]
pub(crate) struct RunningLine {
    /// Name of the work, in one line.
    pub(crate) label: Styled,
    /// Time that is shown behind it.
    pub(crate) clock: RunningClock,
    /// The last lines of its output, shown below it.
    pub(crate) tail: Vec<Styled>,
    /// Colours and symbols.
    pub(crate) style: Style,
}

/// Time of a running line.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunningClock {
    /// Time since the work began.
    Since(Instant),
    /// Time until a stop uses force.
    ForceAt(Instant),
}

/// The region that is drawn at present.
#[derive(Debug, Default)]
pub(super) struct LiveRegion {
    /// Rows above the cursor's.
    lines: usize,
    /// The line that a person types into is part of it, and the cursor is in there.
    has_input_line: bool,
    /// It stands below a line that is not ended: the first of the rows above is that one.
    below_open_line: bool,
}

/// Place of the cursor after the region was taken off the terminal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CursorPlace {
    /// The place of the region before.
    Region,
    /// At the beginning of a row that is not ended: what stood there has to be written again.
    OpenRow,
    /// Below such a row, which stays as it is.
    BelowOpenRow,
}

impl LiveRegion {
    /// Takes it off a terminal of so many rows. `is_one_row`: the line that is not ended still is one row.
    ///
    /// In a terminal that has become narrower the region may take more rows than it did, but never fewer: what stands above
    /// it is safe.
    pub(super) fn erase(&mut self, rows: usize, is_one_row: bool, to: &mut String) -> CursorPlace {
        let region = std::mem::take(self);
        let (erased, up) = if !region.below_open_line {
            (CursorPlace::Region, region.lines)
        } else if is_one_row && region.lines < rows {
            (CursorPlace::OpenRow, region.lines)
        } else {
            (CursorPlace::BelowOpenRow, region.lines.saturating_sub(1))
        };
        if up > 0 {
            let _ = write!(to, "\x1b[{up}A\r\x1b[J");
        } else if region.has_input_line {
            to.push_str("\r\x1b[J");
        }
        erased
    }

    /// Goes to where it is drawn.
    pub(super) fn begin(&mut self, is_line_open: bool, to: &mut String) {
        if is_line_open {
            to.push('\n');
            self.lines = 1;
            self.below_open_line = true;
        }
    }

    /// Draws the line that a person types into, below the rest, and leaves the cursor in it.
    pub(super) fn draw_input_line(
        &mut self,
        input_line: &InputLine,
        (columns, rows): (usize, usize),
        to: &mut String,
    ) {
        let drawn = input_line.draw(columns, rows);
        to.push_str(&drawn.rows.join("\n"));
        let below = drawn.rows.len().saturating_sub(drawn.cursor_row + 1);
        if below > 0 {
            let _ = write!(to, "\x1b[{below}A");
        }
        to.push('\r');
        if drawn.cursor_column > 0 {
            let _ = write!(to, "\x1b[{}C", drawn.cursor_column);
        }
        self.lines += drawn.cursor_row;
        self.has_input_line = true;
    }

    /// Draws it at the cursor, which is at the beginning of a line.
    pub(super) fn draw(
        &mut self,
        running: &[RunningLine],
        now: Instant,
        (columns, rows): (usize, usize),
        to: &mut String,
    ) {
        let room = LINES_MAX.min(rows.saturating_sub(2)).max(1);
        let shown = match running.len() {
            len if len <= room => len,
            _ => room - 1,
        };
        // Output is shown where every line of work has its place.
        let mut room_for_output = room.saturating_sub(running.len());
        for line in running.iter().take(shown) {
            to.push_str(line.draw(now, columns).as_str());
            to.push('\n');
            let left_out = line.tail.len().saturating_sub(room_for_output);
            let tail = line.tail.get(left_out..).unwrap_or_default();
            for output in tail {
                to.push_str(line.draw_output(output, columns).as_str());
                to.push('\n');
            }
            room_for_output -= tail.len();
            self.lines += tail.len();
        }
        self.lines += shown;
        if let Some(more) = running.len().checked_sub(shown).filter(|more| *more > 0) {
            let _ = writeln!(to, "  and {more} more");
            self.lines += 1;
        }
    }
}

impl RunningLine {
    fn draw(&self, now: Instant, columns: usize) -> Styled {
        let (elapsed, time) = match self.clock {
            RunningClock::Since(since) => {
                let elapsed = now.saturating_duration_since(since);
                (elapsed, duration(elapsed))
            }
            RunningClock::ForceAt(force_at) => {
                let left = force_at.saturating_duration_since(now);
                let said = if left.is_zero() {
                    "forcing".to_owned()
                } else {
                    let dot = self.style.pick("·", "-");
                    format!("force in {} {dot} Ctrl-C forces now", duration(left))
                };
                (left, said)
            }
        };
        let frames = self.style.pick("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\");
        let count = frames.chars().count().max(1);
        let at = (elapsed.as_millis() / TICK.as_millis()) as usize % count;
        let frame = frames.chars().nth(at).unwrap_or(' ');
        // The last column stays free: some terminals wrap as soon as it is written.
        let room = columns.saturating_sub(time.len() + 5);
        let label = self.label.cut(room, self.style.pick("…", "..."));
        let time = format!("  {time}");
        styled![
            self.style.paint(TextRole::Warning, frame.to_string()),
            " ",
            label,
            self.style.paint(TextRole::Dim, time)
        ]
    }

    fn draw_output(&self, output: &Styled, columns: usize) -> Styled {
        let bar = self.style.pick("│", "|");
        let output = output.cut(columns.saturating_sub(5), self.style.pick("…", "..."));
        self.style
            .paint(TextRole::Dim, styled!["  ", bar, " ", output])
    }
}
