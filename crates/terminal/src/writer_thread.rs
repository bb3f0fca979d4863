//! The thread that writes the contents of a queue.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::flow::{FlowPart, OpenText};
use super::input_line::InputLine;
use super::live_region::{
    CursorPlace, LiveRegion, RegionFrame, RegionParts, RegionTerminal, RunningLine, TICK,
};
use super::margin::Margin;
use super::narrowing::Narrowing;
use super::notification::Notification;
use super::open_line::OpenLine;
use super::queue_state::{
    LineStart, QueueHandles, QueueState, QueuedText, RegionVisibility, SharedQueue, TextBody,
};
use super::sink;
use super::status_line::StatusLine;
use super::text::Styled;
use super::window_title;

/// Maximum bytes joined into one write: the capacity of a pipe.
const WRITE_BYTES: usize = 64 * 1024;
/// Interval between two frames of a growing text. With this interval, the growth looks smooth, and a slow connection
/// gets few bytes.
const FRAME: Duration = Duration::from_millis(40);
/// Columns and rows of a terminal that does not report its size.
const SIZE_DEFAULT: (usize, usize) = (80, 24);

/// A changed region is drawn from its first row if the last such drawing is older than this. This repairs rows that
/// another program has overwritten.
const WHOLE: Duration = Duration::from_secs(1);
/// Time without a change after which the size of a window counts as final. While a person drags the edge of a window,
/// the terminal may already show another size than it reports, and a region would be erased at the wrong rows.
const SIZE_QUIET: Duration = Duration::from_millis(40);
/// Maximum number of waits for the final size of a window.
const SIZE_LOOKS_MAX: u32 = 10;
/// Control sequences around a write that changes the region. A terminal that knows them (mode 2026) shows the whole
/// change at once; others ignore them.
const SYNCHRONIZED: [&str; 2] = ["\x1b[?2026h", "\x1b[?2026l"];

/// Starts the thread. The thread ends after the last handle is dropped and all output is written. The thread is never
/// joined: it may be in a write that never returns, and the exit of the process does not wait for it.
pub(super) fn start(shared: Arc<SharedQueue>, name: &str) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(format!("write-{name}"));
    // Deliberately outside a scope, whose work a stop ends: this thread must outlive every stop, to print the stop's
    // receipt.
    #[expect(clippy::disallowed_methods, reason = "it outlives every stop")]
    thread
        .spawn(move || WriterThread::default().run(&shared))
        .map(drop)
}

/// State of the terminal after the thread's last write.
#[derive(Default)]
struct WriterThread {
    region: LiveRegion,
    /// True if the cursor is after text.
    in_line: bool,
    /// Text of the unfinished row that the cursor is on. Tracked only while an input line is drawn below this row.
    open_line: OpenLine,
    /// Prefix of the last input line that the terminal echoed.
    echoed: Option<Styled>,
    drawn_at: Option<Instant>,
    /// Title of the window; `None` if it was not changed.
    title: Option<String>,
    /// Time of the last drawing of all rows of the region.
    drawn_whole_at: Option<Instant>,
    /// Columns and rows of the terminal when the region was drawn.
    drawn_on: (usize, usize),
}

/// One write: texts for one file, and the live region below them.
struct WriteBatch {
    file: Arc<File>,
    texts: Vec<QueuedText>,
    running: Vec<RunningLine>,
    input_line: Option<InputLine>,
    open: Option<Arc<dyn OpenText>>,
    status: Option<StatusLine>,
    notification: Option<Notification>,
    title: Option<String>,
    narrowing: Narrowing,
    margin: Margin,
    /// True if the caller has changed the region; false if only its clocks have moved.
    is_changed: bool,
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

    /// Waits for work; `None` at the end.
    fn next(
        &self,
        shared: &SharedQueue,
        state: &mut MutexGuard<'_, QueueState>,
    ) -> Option<WriteBatch> {
        loop {
            if state.failed.is_some() {
                state.running.clear();
                state.input_line = None;
                state.open = None;
                state.status = None;
                (state.region_changed, state.open_changed) = (false, false);
            }
            // If the last row has no line end yet, running work and the status are not drawn below this row, unless an
            // input line is drawn below the row too.
            let is_shown = state.visibility == RegionVisibility::Shown;
            let has_room = match &state.input_line {
                Some(input_line) => !input_line.is_echoed,
                None => !self.in_line,
            };
            let has_clock = state.status.as_ref().is_some_and(StatusLine::ticks);
            if state.is_held && state.handles == QueueHandles::Held {
                shared.work.wait(state);
                continue;
            }
            let ticks = is_shown && has_room && (has_clock || !state.running.is_empty());
            let grows = is_shown && state.open_changed;
            let pause_of = |interval: Duration| {
                let elapsed = self.drawn_at.map(|at| at.elapsed());
                elapsed.map_or(Duration::ZERO, |elapsed| interval.saturating_sub(elapsed))
            };
            let pause = pause_of(if grows { FRAME } else { TICK });
            let texts = take_texts(state);
            let draws = state.region_changed || ((grows || ticks) && pause.is_zero());
            let is_changed = std::mem::take(&mut state.region_changed);
            if draws || !texts.is_empty() {
                state.open_changed = false;
            }
            let file = texts.first().map(|text| Arc::clone(&text.file));
            let file = file.or_else(|| state.region_on.clone().filter(|_| draws));
            if let Some(file) = file {
                return Some(WriteBatch {
                    file,
                    texts,
                    running: state.running.iter().filter(|_| is_shown).cloned().collect(),
                    input_line: state.input_line.clone().filter(|_| is_shown),
                    open: state.open.clone().filter(|_| is_shown),
                    status: state.status.clone().filter(|_| is_shown),
                    notification: state.notification.take(),
                    title: state.title.clone(),
                    narrowing: state.narrowing,
                    margin: state.margin,
                    is_changed,
                });
            }
            if state.handles == QueueHandles::Dropped {
                return None;
            }
            if ticks || grows {
                shared.work.wait_for(state, pause);
            } else {
                shared.work.wait(state);
            }
        }
    }

    fn write(&mut self, batch: &WriteBatch) -> io::Result<()> {
        let mut text = String::new();
        if let Some(notification) = &batch.notification {
            notification.write(&mut text);
        }
        if self.title != batch.title {
            text += &window_title::change(self.title.as_deref(), batch.title.as_deref());
            self.title.clone_from(&batch.title);
        }
        // The size is read once, so that the rows of one write fit together.
        let size = self.final_size(&batch.file);
        let terminal = RegionTerminal {
            columns: size.0,
            rows: size.1,
            narrowing: batch.narrowing,
            margin: batch.margin,
        };
        let now = Instant::now();
        let drawn_input = batch.input_line.as_ref().filter(|line| !line.is_echoed);
        let parts = RegionParts {
            open: batch.open.as_deref(),
            running: &batch.running,
            input_line: drawn_input,
            status: batch.status.as_ref(),
        };
        let frame = RegionFrame::new(&parts, now, terminal);
        let is_echoed = batch.input_line.as_ref().is_some_and(|line| line.is_echoed);
        let is_region_changed = !(self.region.is_empty() && frame.is_empty());
        if batch.texts.is_empty() && !self.in_line && !is_echoed && self.drawn_on == size {
            let is_due = self.drawn_whole_at.is_none_or(|at| at + WHOLE <= now);
            let is_whole = batch.is_changed && is_due;
            if is_whole {
                self.drawn_whole_at = Some(now);
            }
            self.region.redraw(frame, is_whole, &mut text);
            self.drawn_at = Some(now);
            return write_at_once(&batch.file, text, is_region_changed);
        }
        let is_one_row = self.open_line.is_one_row_of(size.0);
        match self.region.erase(terminal, is_one_row, &mut text) {
            CursorPlace::OpenRow => text.push_str(self.open_line.as_str()),
            CursorPlace::BelowOpenRow => {
                self.open_line.clear();
                self.in_line = false;
            }
            CursorPlace::Region => {}
        }
        for queued in &batch.texts {
            let ends_prefix = self.echoed.take().is_some() || queued.start == LineStart::NewLine;
            if ends_prefix && self.in_line && queued.start != LineStart::EchoedEnter {
                text.push('\n');
                self.open_line.clear();
                self.in_line = false;
            }
            self.write_text(&queued.text, terminal, drawn_input.is_some(), &mut text);
        }
        match &batch.input_line {
            Some(line) if line.is_echoed => self.write_prefix(line, batch.margin, &mut text),
            _ => {
                let has_room = !self.in_line || drawn_input.is_some();
                if !frame.is_empty() && has_room {
                    self.region.draw(frame, self.in_line, &mut text);
                    self.drawn_at = Some(now);
                    self.drawn_whole_at = Some(now);
                    self.drawn_on = size;
                }
            }
        }
        write_at_once(&batch.file, text, is_region_changed)
    }

    /// The size of the terminal. If it has changed since the region was drawn, waits until it stays the same.
    fn final_size(&self, file: &File) -> (usize, usize) {
        let read = || sink::size(file).unwrap_or(SIZE_DEFAULT);
        let mut size = read();
        if self.region.is_empty() || self.drawn_on == size {
            return size;
        }
        for _ in 0..SIZE_LOOKS_MAX {
            std::thread::park_timeout(SIZE_QUIET);
            let last = std::mem::replace(&mut size, read());
            if last == size {
                break;
            }
        }
        size
    }

    fn write_text(
        &mut self,
        body: &TextBody,
        terminal: RegionTerminal,
        follows: bool,
        to: &mut String,
    ) {
        let (columns, margin) = (terminal.columns, terminal.margin);
        let rows = |parts: &[FlowPart], to: &mut String| {
            let rows = parts
                .iter()
                .flat_map(|part| part.written_rows(columns, |row| margin.may_wrap(row)));
            for row in rows {
                to.push_str(&margin.outside(row.as_str()));
                to.push('\n');
            }
        };
        match body {
            TextBody::Flow(parts) => rows(parts, to),
            TextBody::Open(open) => rows(&open.parts(), to),
            TextBody::Mark(mark) => to.push_str(mark.sequence()),
            TextBody::Text(text) => {
                if follows {
                    self.open_line.write(text, columns, to);
                } else {
                    // No region is drawn below the text, so the terminal itself breaks the text.
                    self.open_line.clear();
                    to.push_str(text);
                }
                self.in_line = !(text.is_empty() || text.ends_with('\n'));
            }
        }
    }

    /// Writes the prefix of a line whose text the terminal echoes. The prefix is written once, and again after other
    /// output.
    fn write_prefix(&mut self, line: &InputLine, margin: Margin, text: &mut String) {
        if self.echoed.as_ref() == Some(&line.prefix) {
            return;
        }
        if self.in_line {
            text.push('\n');
        }
        text.push_str(margin.own(&line.prefix).as_str());
        self.echoed = Some(line.prefix.clone());
        self.in_line = true;
    }
}

/// Writes a text. If it changes the region, the terminal shows the whole text at once.
fn write_at_once(file: &File, text: String, is_region_changed: bool) -> io::Result<()> {
    let [begin, end] = SYNCHRONIZED;
    let text = if is_region_changed && !text.is_empty() {
        [begin, &text, end].concat()
    } else {
        text
    };
    sink::write_all(file, text.as_bytes())
}

/// Takes the texts for one write, all for one file.
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
