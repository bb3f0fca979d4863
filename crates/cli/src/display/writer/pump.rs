//! The thread of a lane.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::entry::Entry;
use super::lane::{Changing, Life, Piece, Shared, State};
use super::open_line::OpenLine;
use super::region::{Erased, Region, Running};
use super::sink;

/// How often the lines that change are drawn: as often as a spinner needs to look alive.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// Bytes joined into one write: what a pipe takes at once.
const WRITE_BYTES: usize = 64 * 1024;
/// Columns and rows of a terminal that does not say.
const SIZE_DEFAULT: (usize, usize) = (80, 24);

/// Starts the thread. It ends when the last handle is gone and everything is written, and is never joined: it may be
/// inside a write that never returns, and the exit of the process does not wait for it.
pub(super) fn start(shared: Arc<Shared>, name: &str) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(format!("write-{name}"));
    // Not in a scope on purpose: it outlives every stop, to print its receipt.
    thread.spawn(move || Pump::default().run(&shared)).map(drop)
}

/// What the thread knows of what it has written.
#[derive(Default)]
struct Pump {
    region: Region,
    /// The cursor stands behind text.
    in_line: bool,
    /// That text, as far as it is on the cursor's row: followed while a person types below it.
    open_line: OpenLine,
    drawn_at: Option<Instant>,
}

/// What to do next.
struct Batch {
    file: Arc<File>,
    pieces: Vec<Piece>,
    running: Vec<Running>,
    entry: Option<Entry>,
}

impl Pump {
    fn run(mut self, shared: &Shared) {
        let mut state = shared.state.lock();
        while let Some(batch) = self.next(shared, &mut state) {
            state.busy = true;
            let written = MutexGuard::unlocked(&mut state, || self.write(&batch));
            state.busy = false;
            if let Err(error) = written {
                state.failed = Some(error.kind());
                state.queue.clear();
                state.queued_bytes = 0;
            }
            shared.done.notify_all();
        }
    }

    /// Waits for something to do; `None` at the end.
    fn next(&self, shared: &Shared, state: &mut MutexGuard<'_, State>) -> Option<Batch> {
        loop {
            if state.failed.is_some() {
                state.running.clear();
                state.entry = None;
                state.running_changed = false;
            }
            // Beside an open line there is no room for lines that change, unless somebody types below it; and beside a
            // question no peace.
            let is_shown = state.changing == Changing::Shown;
            let ticks =
                is_shown && !state.running.is_empty() && (!self.in_line || state.entry.is_some());
            let pause = self
                .drawn_at
                .map_or(Duration::ZERO, |at| TICK.saturating_sub(at.elapsed()));
            if state.held_by.is_none() {
                let pieces = take_pieces(state);
                let draws = state.running_changed || (ticks && pause.is_zero());
                state.running_changed = false;
                let file = pieces.first().map(|piece| Arc::clone(&piece.file));
                let file = file.or_else(|| state.running_on.clone().filter(|_| draws));
                if let Some(file) = file {
                    return Some(Batch {
                        file,
                        pieces,
                        running: state.running.iter().filter(|_| is_shown).cloned().collect(),
                        entry: state.entry.clone().filter(|_| is_shown),
                    });
                }
            }
            if state.life == Life::Abandoned {
                return None;
            }
            if ticks && state.held_by.is_none() {
                shared.work.wait_for(state, pause);
            } else {
                shared.work.wait(state);
            }
        }
    }

    fn write(&mut self, batch: &Batch) -> io::Result<()> {
        let mut text = String::new();
        let size = || sink::size(&batch.file).unwrap_or(SIZE_DEFAULT);
        let is_one_row = self.open_line.is_one_row_of(size().0);
        match self.region.erase(size().1, is_one_row, &mut text) {
            Erased::OpenRow => text.push_str(self.open_line.as_str()),
            Erased::BelowOpenRow => {
                self.open_line.clear();
                self.in_line = false;
            }
            Erased::Region => {}
        }
        for piece in &batch.pieces {
            if piece.on_new_line && self.in_line {
                text.push('\n');
                self.open_line.clear();
            }
            if batch.entry.is_some() {
                self.open_line.write(&piece.text, size().0, &mut text);
            } else {
                // Nothing is drawn below it, so the terminal alone breaks it.
                self.open_line.clear();
                text.push_str(&piece.text);
            }
            // Whoever answers a question ends its line, and whoever withdraws it does.
            let is_ended = piece.text.is_empty() || piece.text.ends_with('\n');
            self.in_line = piece.question.is_none() && !is_ended;
        }
        let asks = batch.pieces.last().is_some_and(|p| p.question.is_some());
        let has_room = !self.in_line || batch.entry.is_some();
        let is_there = !batch.running.is_empty() || batch.entry.is_some();
        if is_there && has_room && !asks {
            let now = Instant::now();
            self.region.begin(self.in_line, &mut text);
            self.region.draw(&batch.running, now, size(), &mut text);
            if let Some(entry) = &batch.entry {
                self.region.draw_entry(entry, size(), &mut text);
            }
            self.drawn_at = Some(now);
        }
        sink::write_all(&batch.file, text.as_bytes())
    }
}

/// Pieces for one write: all for one file, and nothing after a question.
fn take_pieces(state: &mut State) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut bytes = 0;
    while let Some(next) = state.queue.front() {
        let other_file = pieces
            .first()
            .is_some_and(|first| !Arc::ptr_eq(&first.file, &next.file));
        if other_file || (bytes > 0 && bytes + next.text.len() > WRITE_BYTES) {
            break;
        }
        let Some(piece) = state.queue.pop_front() else {
            break;
        };
        bytes += piece.text.len();
        let question = piece.question;
        pieces.push(piece);
        if question.is_some() && state.life == Life::Open {
            state.held_by = question;
            break;
        }
    }
    state.queued_bytes = state.queued_bytes.saturating_sub(bytes);
    pieces
}
