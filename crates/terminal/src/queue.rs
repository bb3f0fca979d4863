//! A bounded queue in front of a file, and the handle to push into it.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attention::AttentionCall;
use super::flow::{FlowPart, OpenText};
use super::input_line::InputLine;
use super::line_writer::LineWriter;
use super::live_region::RunningLine;
use super::narrowing::Narrowing;
use super::queue_state::{
    FlushResult, LineStart, OutputPriority, QueueHandles, QueueState, QueuedText, RegionVisibility,
    SharedQueue, TextBody,
};
use super::status_line::StatusLine;
use super::text::{Styled, escape};
use super::{sink, writer_thread};

/// Bytes that may wait for a slow reader before more of what can be done without is refused: some screens of text.
const ROOM_BYTES: usize = 256 * 1024;
/// Bytes that may wait before even what ought to be written is refused: a long run's worth of lines.
const ROOM_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Stand-in for a limit that no clock can tell.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// A stream to write to. Pushing never waits; clones are the same stream.
#[derive(Debug, Clone)]
pub struct OutputQueue {
    handle: Arc<QueueHandle>,
    file: Arc<File>,
}

#[derive(Debug)]
struct QueueHandle {
    shared: Arc<SharedQueue>,
}

impl Drop for QueueHandle {
    fn drop(&mut self) {
        self.shared.state.lock().handles = QueueHandles::Dropped;
        self.shared.work.notify_one();
    }
}

/// Goes to the upper left corner, and clears everything from there. tmux moves the text to its history when the whole screen
/// is cleared from its first column.
const CLEAR: &str = "\x1b[H\x1b[2K\x1b[C\x1b[J\r";

impl OutputQueue {
    /// A queue with its own writer thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn new(file: File, name: &str) -> io::Result<Self> {
        let shared = Arc::new(SharedQueue::default());
        writer_thread::start(Arc::clone(&shared), name)?;
        Ok(Self {
            handle: Arc::new(QueueHandle { shared }),
            file: Arc::new(file),
        })
    }

    /// Another file of the same queue: what is pushed to either is written in the order of the pushes.
    pub(super) fn beside(&self, file: File) -> Self {
        Self {
            handle: Arc::clone(&self.handle),
            file: Arc::new(file),
        }
    }

    /// Pushes an answer, or a piece of it: harmless where it goes to a terminal, and as it is where it goes to a file.
    /// False: there was no room, and it will not be written. What goes to a closed stream counts as written: nobody
    /// misses it.
    pub fn answer(&self, text: &str, priority: OutputPriority) -> bool {
        let text = if self.is_terminal() {
            escape::text(text)
        } else {
            text.into()
        };
        self.push(text.into_owned(), LineStart::Anywhere, priority)
    }

    /// Clears the terminal: what comes next stands in its upper left corner.
    pub fn clear_screen(&self) {
        self.push(CLEAR.to_owned(), LineStart::Anywhere, OutputPriority::Must);
    }

    /// Pushes lines of JSON. False: there was no room.
    pub fn json(&self, json: &str, priority: OutputPriority) -> bool {
        let mut json = escape::json(json).into_owned();
        if !json.ends_with('\n') {
            json.push('\n');
        }
        self.push(json, LineStart::Anywhere, priority)
    }

    /// Pushes whole lines, which begin on a line of their own whatever was written before. A string is a text of
    /// several lines. False: there was no room.
    pub fn lines(&self, lines: impl Into<Styled>, priority: OutputPriority) -> bool {
        let mut lines = lines.into().into_string();
        if !lines.ends_with('\n') {
            lines.push('\n');
        }
        self.push(lines, LineStart::NewLine, priority)
    }

    /// True if a text of so many bytes has room.
    pub fn has_room(&self, bytes: usize, priority: OutputPriority) -> bool {
        let state = self.handle.shared.state.lock();
        state.failed.is_some() || state.has_room(bytes, room(priority))
    }

    /// Pushes parts of a text that are complete, and replaces the text that is not: both at once, so that no frame
    /// shows a part twice or not at all. Only for terminals. The caller has asked for room.
    pub fn flow(&self, parts: Vec<FlowPart>, open: Option<Arc<dyn OpenText>>) {
        let mut state = self.handle.shared.state.lock();
        if state.failed.is_some() {
            return;
        }
        state.open_changed |= open.is_some() || state.open.is_some();
        state.open = open;
        state.region_on = Some(Arc::clone(&self.file));
        if !parts.is_empty() {
            self.queue_text(&mut state, TextBody::Flow(parts), LineStart::NewLine);
        }
        self.handle.shared.work.notify_one();
    }

    fn queue_text(&self, state: &mut QueueState, text: TextBody, start: LineStart) {
        state.queued_bytes += text.len();
        let file = Arc::clone(&self.file);
        state.queue.push_back(QueuedText { file, text, start });
    }

    /// Ends the line that was begun, unless other lines have ended it.
    pub fn end_line(&self) {
        self.push_line_end(LineStart::NewLine);
    }

    /// Records that the terminal has ended the input line by showing an Enter.
    pub fn end_echoed_line(&self) {
        self.handle.shared.state.lock().input_line = None;
        self.push_line_end(LineStart::EchoedEnter);
    }

    fn push_line_end(&self, start: LineStart) {
        let mut state = self.handle.shared.state.lock();
        if state.failed.is_some() {
            return;
        }
        self.queue_text(&mut state, TextBody::Text(String::new()), start);
        self.handle.shared.work.notify_one();
    }

    fn push(&self, text: String, start: LineStart, priority: OutputPriority) -> bool {
        if text.is_empty() {
            return true;
        }
        let mut state = self.handle.shared.state.lock();
        if state.failed.is_some() {
            return true;
        }
        if !state.has_room(text.len(), room(priority)) {
            return false;
        }
        self.queue_text(&mut state, TextBody::Text(text), start);
        self.handle.shared.work.notify_one();
        true
    }

    /// Replaces the lines that change below the text. Only for terminals.
    pub fn show_running(&self, running: Vec<RunningLine>) {
        let mut state = self.handle.shared.state.lock();
        state.running = running;
        state.region_changed = true;
        state.region_on = Some(Arc::clone(&self.file));
        self.handle.shared.work.notify_one();
    }

    /// Replaces the line that a person types into, below everything else. Only for terminals.
    pub fn show_input_line(&self, input_line: Option<InputLine>) {
        let mut state = self.handle.shared.state.lock();
        state.input_line = input_line;
        state.region_changed = true;
        state.region_on = Some(Arc::clone(&self.file));
        self.handle.shared.work.notify_one();
    }

    /// Replaces the row at the very bottom. Only for terminals.
    pub fn show_status(&self, status: Option<StatusLine>) {
        let mut state = self.handle.shared.state.lock();
        if state.status == status {
            return;
        }
        state.status = status;
        state.region_changed = true;
        state.region_on = Some(Arc::clone(&self.file));
        self.handle.shared.work.notify_one();
    }

    /// Calls a person to a window that is not looked at, by a bell or by the terminal's own notification. Only for
    /// terminals.
    pub fn call_attention(&self, call: AttentionCall) {
        let mut state = self.handle.shared.state.lock();
        state.attention = Some(call);
        state.region_changed = true;
        state.region_on = Some(Arc::clone(&self.file));
        self.handle.shared.work.notify_one();
    }

    /// Sets what the terminal does with rows when it becomes narrower.
    pub fn set_narrowing(&self, narrowing: Narrowing) {
        self.handle.shared.state.lock().narrowing = narrowing;
    }

    /// Takes the region below the text off the terminal, until [`OutputQueue::show_region`].
    pub(super) fn hide_region(&self) {
        self.set_visibility(RegionVisibility::Hidden);
    }

    /// Draws the region below the text again.
    pub fn show_region(&self) {
        self.set_visibility(RegionVisibility::Shown);
    }

    fn set_visibility(&self, visibility: RegionVisibility) {
        let mut state = self.handle.shared.state.lock();
        state.visibility = visibility;
        state.region_changed = state.region_on.is_some();
        self.handle.shared.work.notify_one();
    }

    /// Waits until everything that was pushed is written, but no longer than the limit. It blocks the calling thread.
    pub(super) fn settle(&self, limit: Duration) -> FlushResult {
        self.flush(deadline_of(limit))
    }

    /// True if it is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.file.is_terminal()
    }

    /// Width of the terminal; `None` if it is none.
    pub fn columns(&self) -> Option<usize> {
        sink::size(&self.file).map(|(columns, _)| columns)
    }

    /// Lines for this stream: on a terminal broken between words, where they are too long.
    pub fn fitted(&self, lines: Styled) -> Styled {
        match self.columns() {
            Some(columns) => lines.fit_with_command(columns.saturating_sub(1)),
            None => lines,
        }
    }

    /// Height of the terminal; `None` if it is none.
    pub fn rows(&self) -> Option<usize> {
        sink::size(&self.file).map(|(_, rows)| rows)
    }

    /// Columns and rows of the terminal; `None` if it is none.
    pub fn size(&self) -> Option<(usize, usize)> {
        sink::size(&self.file)
    }

    /// A writer of whole lines into this queue, for code that takes an `io::Write`.
    pub fn writer(&self) -> LineWriter {
        LineWriter::new(self.clone())
    }

    /// Takes the region below the text away for good: the process is about to end.
    pub(super) fn begin_flush(&self) {
        let mut state = self.handle.shared.state.lock();
        state.region_changed = state.region_on.is_some();
        state.running.clear();
        state.input_line = None;
        state.status = None;
        if let Some(open) = state.open.take() {
            let file = state.region_on.clone();
            let file = file.unwrap_or_else(|| Arc::clone(&self.file));
            let (text, start) = (TextBody::Open(open), LineStart::NewLine);
            state.queue.push_back(QueuedText { file, text, start });
        }
        self.handle.shared.work.notify_one();
    }

    /// Marks the output as incomplete: a piece was refused, and nothing that was taken stands for it.
    pub fn mark_lost(&self) {
        self.handle.shared.state.lock().has_lost = true;
    }

    /// True if the output is incomplete, although its reader reads.
    pub fn has_lost(&self) -> bool {
        self.handle.shared.state.lock().has_lost
    }

    pub(super) fn flush(&self, deadline: Instant) -> FlushResult {
        let shared = &self.handle.shared;
        let mut state = shared.state.lock();
        loop {
            if let Some(kind) = state.failed {
                return FlushResult::Closed(kind);
            }
            if state.queue.is_empty() && !state.busy && !state.region_changed {
                return FlushResult::Flushed;
            }
            if shared.done.wait_until(&mut state, deadline).timed_out() {
                // What happened at the very last moment counts.
                let written = state.queue.is_empty() && !state.busy;
                return match state.failed {
                    Some(kind) => FlushResult::Closed(kind),
                    None if written => FlushResult::Flushed,
                    None => FlushResult::Blocked,
                };
            }
        }
    }
}

fn room(priority: OutputPriority) -> usize {
    match priority {
        OutputPriority::IfRoom => ROOM_BYTES,
        OutputPriority::Must => ROOM_BYTES_MAX,
        OutputPriority::Last => usize::MAX,
    }
}

/// The moment at which a limit is reached.
pub(super) fn deadline_of(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or(now + FOREVER)
}
