//! The thread that writes what a queue holds.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::input_line::InputLine;
use super::live_region::{CursorPlace, LiveRegion, RunningLine, TICK};
use super::open_line::OpenLine;
use super::queue_state::{
    LineStart, QueueHandles, QueueState, QueuedText, RegionVisibility, SharedQueue,
};
use super::sink;
use super::text::Styled;

/// Bytes joined into one write: what a pipe takes at once.
const WRITE_BYTES: usize = 64 * 1024;
/// Columns and rows of a terminal that does not say.
const SIZE_DEFAULT: (usize, usize) = (80, 24);

/// Starts the thread. It ends when the last handle is gone and everything is written, and is never joined: it may be
/// inside a write that never returns, and the exit of the process does not wait for it.
pub(super) fn start(shared: Arc<SharedQueue>, name: &str) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(format!("write-{name}"));
    // Not in a scope on purpose: it outlives every stop, to print its receipt.
    #[expect(clippy::disallowed_methods, reason = "it outlives every stop")]
    thread
        .spawn(move || WriterThread::default().run(&shared))
        .map(drop)
}

/// Knowledge of the thread about the text it has written.
#[derive(Default)]
struct WriterThread {
    region: LiveRegion,
    /// The cursor stands behind text.
    in_line: bool,
    /// Text before the cursor, as far as it is on its row: followed while a person types below it.
    open_line: OpenLine,
    /// Prefix of an echoed input line that was written last.
    echoed: Option<Styled>,
    drawn_at: Option<Instant>,
}

/// One write: texts for one file, and the region below them.
struct WriteBatch {
    file: Arc<File>,
    texts: Vec<QueuedText>,
    running: Vec<RunningLine>,
    input_line: Option<InputLine>,
}

impl WriterThread {
    fn run(mut self, shared: &SharedQueue) {
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
    fn next(
        &self,
        shared: &SharedQueue,
        state: &mut MutexGuard<'_, QueueState>,
    ) -> Option<WriteBatch> {
        loop {
            if state.failed.is_some() {
                state.running.clear();
                state.input_line = None;
                state.region_changed = false;
            }
            // Below an open line there is no room for lines that change, unless a person types there.
            let is_shown = state.visibility == RegionVisibility::Shown;
            let has_room = match &state.input_line {
                Some(input_line) => !input_line.is_echoed,
                None => !self.in_line,
            };
            let ticks = is_shown && !state.running.is_empty() && has_room;
            let pause = self
                .drawn_at
                .map_or(Duration::ZERO, |at| TICK.saturating_sub(at.elapsed()));
            let texts = take_texts(state);
            let draws = state.region_changed || (ticks && pause.is_zero());
            state.region_changed = false;
            let file = texts.first().map(|text| Arc::clone(&text.file));
            let file = file.or_else(|| state.region_on.clone().filter(|_| draws));
            if let Some(file) = file {
                return Some(WriteBatch {
                    file,
                    texts,
                    running: state.running.iter().filter(|_| is_shown).cloned().collect(),
                    input_line: state.input_line.clone().filter(|_| is_shown),
                });
            }
            if state.handles == QueueHandles::Dropped {
                return None;
            }
            if ticks {
                shared.work.wait_for(state, pause);
            } else {
                shared.work.wait(state);
            }
        }
    }

    fn write(&mut self, batch: &WriteBatch) -> io::Result<()> {
        let mut text = String::new();
        let size = || sink::size(&batch.file).unwrap_or(SIZE_DEFAULT);
        let is_one_row = self.open_line.is_one_row_of(size().0);
        match self.region.erase(size().1, is_one_row, &mut text) {
            CursorPlace::OpenRow => text.push_str(self.open_line.as_str()),
            CursorPlace::BelowOpenRow => {
                self.open_line.clear();
                self.in_line = false;
            }
            CursorPlace::Region => {}
        }
        let drawn_input = batch.input_line.as_ref().filter(|line| !line.is_echoed);
        for queued in &batch.texts {
            let ends_prefix = self.echoed.take().is_some() || queued.start == LineStart::NewLine;
            if ends_prefix && self.in_line && queued.start != LineStart::EchoedEnter {
                text.push('\n');
                self.open_line.clear();
            }
            if drawn_input.is_some() {
                self.open_line.write(&queued.text, size().0, &mut text);
            } else {
                // Nothing is drawn below it, so the terminal alone breaks it.
                self.open_line.clear();
                text.push_str(&queued.text);
            }
            self.in_line = !(queued.text.is_empty() || queued.text.ends_with('\n'));
        }
        match &batch.input_line {
            Some(line) if line.is_echoed => self.write_prefix(line, &mut text),
            _ => {
                let has_room = !self.in_line || drawn_input.is_some();
                let is_there = !batch.running.is_empty() || drawn_input.is_some();
                if is_there && has_room {
                    self.draw_region(&batch.running, drawn_input, size(), &mut text);
                }
            }
        }
        sink::write_all(&batch.file, text.as_bytes())
    }

    /// Writes the prefix of a line whose text the terminal shows: once, and again behind other output.
    fn write_prefix(&mut self, line: &InputLine, text: &mut String) {
        if self.echoed.as_ref() == Some(&line.prefix) {
            return;
        }
        if self.in_line {
            text.push('\n');
        }
        text.push_str(line.prefix.as_str());
        self.echoed = Some(line.prefix.clone());
        self.in_line = true;
    }

    fn draw_region(
        &mut self,
        running: &[RunningLine],
        input_line: Option<&InputLine>,
        size: (usize, usize),
        text: &mut String,
    ) {
        let now = Instant::now();
        self.region.begin(self.in_line, text);
        self.region.draw(running, now, size, text);
        if let Some(input_line) = input_line {
            self.region.draw_input_line(input_line, size, text);
        }
        self.drawn_at = Some(now);
    }
}

/// Texts for one write: all for one file.
fn take_texts(state: &mut QueueState) -> Vec<QueuedText> {
    let mut texts: Vec<QueuedText> = Vec::new();
    let mut bytes = 0;
    while let Some(next) = state.queue.front() {
        let other_file = texts
            .first()
            .is_some_and(|first| !Arc::ptr_eq(&first.file, &next.file));
        if other_file || (bytes > 0 && bytes + next.text.len() > WRITE_BYTES) {
            break;
        }
        let Some(queued) = state.queue.pop_front() else {
            break;
        };
        bytes += queued.text.len();
        texts.push(queued);
    }
    state.queued_bytes = state.queued_bytes.saturating_sub(bytes);
    texts
}
