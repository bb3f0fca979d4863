//! The lines at the bottom of a terminal that change: one for each thing that runs.
//!
//! They are drawn by the lane's own thread from the latest value, so that a terminal that does not take them blocks
//! nobody, and no frame can be lost between two others. (A progress library draws from whichever thread moves it.)

use std::fmt::Write as _;
use std::time::Instant;

use super::super::style::{Role, Style};
use super::super::{table, words};

/// How many of them are drawn: more would push the text off a small terminal.
const LINES_MAX: usize = 8;

/// Something that runs.
#[derive(Debug, Clone)]
pub(in crate::display) struct Running {
    /// What it is: one line, escaped.
    pub(in crate::display) label: String,
    /// Since when.
    pub(in crate::display) since: Instant,
    /// How to draw it.
    pub(in crate::display) style: Style,
}

/// What is drawn at present.
#[derive(Debug, Default)]
pub(super) struct Region {
    lines: usize,
}

impl Region {
    /// Takes it off the terminal: the cursor is where it was before.
    pub(super) fn erase(&mut self, to: &mut String) {
        if self.lines > 0 {
            let _ = write!(to, "\x1b[{}A\r\x1b[J", self.lines);
            self.lines = 0;
        }
    }

    /// Draws it at the cursor, which is at the beginning of a line.
    pub(super) fn draw(
        &mut self,
        running: &[Running],
        now: Instant,
        (columns, rows): (usize, usize),
        to: &mut String,
    ) {
        let room = LINES_MAX.min(rows.saturating_sub(2)).max(1);
        let shown = match running.len() {
            len if len <= room => len,
            _ => room - 1,
        };
        for line in running.iter().take(shown) {
            to.push_str(&line.draw(now, columns));
            to.push('\n');
        }
        self.lines = shown;
        if let Some(more) = running.len().checked_sub(shown).filter(|more| *more > 0) {
            let _ = writeln!(to, "  and {more} more");
            self.lines += 1;
        }
    }
}

impl Running {
    fn draw(&self, now: Instant, columns: usize) -> String {
        let elapsed = now.saturating_duration_since(self.since);
        let frames = self.style.pick("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\");
        let count = frames.chars().count().max(1);
        let at = (elapsed.as_millis() / super::pump::TICK.as_millis()) as usize % count;
        let frame = frames.chars().nth(at).unwrap_or(' ');
        let time = words::duration(elapsed);
        // The last column stays free: some terminals wrap as soon as it is written.
        let room = columns.saturating_sub(table::width(&time) + 5);
        let label = table::cut(&self.label, room, self.style.pick("…", "..."));
        let (frame, time) = (frame.to_string(), format!("  {time}"));
        format!(
            "{} {label}{}",
            self.style.paint(Role::Warning, &frame),
            self.style.paint(Role::Dim, &time)
        )
    }
}
