//! A bounded queue in front of a file, and the handle for pushes.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::flow::{FlowLine, FlowPart, OpenText};
use super::input_line::InputLine;
use super::line_writer::LineWriter;
use super::live_region::RunningLine;
use super::margin::Margin;
use super::narrowing::Narrowing;
use super::notification::Notification;
use super::queue_state::{
    FlushResult, LineStart, OutputPriority, QueueHandles, QueueState, QueuedText, RegionVisibility,
    SharedQueue, TextBody,
};
use super::status_line::StatusLine;
use super::text::{Style, Styled, escape, styled};
use super::window_title::TurnMark;
use super::{sink, writer_thread};

/// Maximum waiting bytes before dispensable text ([`OutputPriority::IfRoom`]) is refused: some screens of text.
const ROOM_BYTES: usize = 256 * 1024;
/// Maximum waiting bytes before other text is refused too: the lines of a long run.
const ROOM_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Maximum time for removing the live region before another program gets the terminal.
const HOLD_FLUSH_MAX: Duration = Duration::from_millis(200);

/// Indentation of the further rows of a long line of the program.
const HANGING_COLUMNS: usize = 4;

/// Replacement for a limit that is too long for the clock.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// An output stream. A push never waits. Clones share the stream.
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

/// Moves the cursor to the upper left corner and clears everything from there. The sequence never clears the whole
/// screen from its first column, because tmux would move the text to its history.
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

    /// Adds another file to this queue. Text for both files is written in the order of the pushes.
    pub(super) fn with_file(&self, file: File) -> Self {
        Self {
            handle: Arc::clone(&self.handle),
            file: Arc::new(file),
        }
    }

    /// Pushes an answer, or a piece of it: escaped if it goes to a terminal, unchanged if it goes to a file. False if
    /// there was no room, and the text will not be written. Text for a closed stream counts as written, because it has
    /// no reader.
    pub fn answer(&self, text: &str, priority: OutputPriority) -> bool {
        let text = if self.is_terminal() {
            escape::text(text)
        } else {
            text.into()
        };
        self.push(text.into_owned(), LineStart::Anywhere, priority)
    }

    /// Clears the terminal. The next text begins in its upper left corner.
    pub fn clear_screen(&self) {
        self.push(
            CLEAR.to_owned(),
            LineStart::Anywhere,
            OutputPriority::Required,
        );
    }

    /// Pushes lines of JSON. False if there was no room.
    pub fn json(&self, json: &str, priority: OutputPriority) -> bool {
        let mut json = escape::json(json).into_owned();
        if !json.ends_with('\n') {
            json.push('\n');
        }
        self.push(json, LineStart::Anywhere, priority)
    }

    /// Pushes whole lines, which always begin on a new line. A string is a text of several lines. False if there was no
    /// room.
    pub fn lines(&self, lines: impl Into<Styled>, priority: OutputPriority) -> bool {
        let mut lines = self.with_margin(lines.into()).into_string();
        if !lines.ends_with('\n') {
            lines.push('\n');
        }
        self.push(lines, LineStart::NewLine, priority)
    }

    /// Like [`lines`](Self::lines), but breaks long lines between words if this stream is a terminal.
    pub fn sentences(&self, lines: impl Into<Styled>, priority: OutputPriority) -> bool {
        self.lines(self.fitted(lines.into()), priority)
    }

    /// True if a text of `bytes` bytes has room.
    pub fn has_room(&self, bytes: usize, priority: OutputPriority) -> bool {
        let state = self.handle.shared.state.lock();
        state.failed.is_some() || state.has_room(bytes, room(priority))
    }

    /// Pushes the complete parts of a text, and replaces the incomplete part. Both changes happen at once, so no frame
    /// shows a part twice, and no frame omits a part. Only for terminals. The caller checks for room first, with
    /// [`OutputQueue::has_room`].
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

    /// Pushes a text from outside, such as the output of a program, on new lines.
    pub fn outside(&self, text: &str) {
        if self.is_terminal() {
            let part = |line| FlowPart::Line(FlowLine::code(line));
            self.parts(text.lines().map(part).collect());
        } else {
            self.lines(Styled::text(text), OutputPriority::Required);
        }
    }

    fn parts(&self, parts: Vec<FlowPart>) {
        let body = TextBody::Flow(parts);
        let mut state = self.handle.shared.state.lock();
        if state.failed.is_none() && state.has_room(body.len(), room(OutputPriority::Required)) {
            self.queue_text(&mut state, body, LineStart::NewLine);
            self.handle.shared.work.notify_one();
        }
    }

    /// Pushes a mark between turns. Only for terminals that interpret control sequences.
    pub fn mark(&self, mark: TurnMark) {
        let mut state = self.handle.shared.state.lock();
        if state.failed.is_none() {
            self.queue_text(&mut state, TextBody::Mark(mark), LineStart::Anywhere);
            self.handle.shared.work.notify_one();
        }
    }

    /// Replaces the title of the window; `None` restores the title that the window had before. Only for terminals that
    /// interpret control sequences.
    pub fn show_title(&self, title: Option<String>) {
        let mut state = self.handle.shared.state.lock();
        if state.title != title {
            state.title = title;
            state.region_changed = true;
            state.region_on = Some(Arc::clone(&self.file));
            self.handle.shared.work.notify_one();
        }
    }

    /// Pushes a text from outside that readers can skip, indented, on new lines.
    pub fn aside(&self, text: &str, style: Style) {
        if self.is_terminal() {
            let part = |line| FlowPart::Line(FlowLine::aside(line, style));
            self.parts(text.lines().map(part).collect());
        } else {
            let text = Styled::text(text.trim_end()).hanging(2);
            self.lines(styled!["  ", text], OutputPriority::Required);
        }
    }

    fn queue_text(&self, state: &mut QueueState, text: TextBody, start: LineStart) {
        state.queued_bytes += text.len();
        let file = Arc::clone(&self.file);
        state.queue.push_back(QueuedText { file, text, start });
    }

    /// Ends the current line, unless other output has already ended the line.
    pub fn end_line(&self) {
        self.push_line_end(LineStart::NewLine);
    }

    /// Records that the terminal has ended the input line by echoing an Enter.
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

    /// Replaces the changing lines below the text. Only for terminals.
    pub fn show_running(&self, running: Vec<RunningLine>) {
        let mut state = self.handle.shared.state.lock();
        state.running = running;
        state.region_changed = true;
        state.region_on = Some(Arc::clone(&self.file));
        self.handle.shared.work.notify_one();
    }

    /// Replaces the input line, below everything else except the status. Only for terminals.
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

    /// Notifies a person who looks at another window, by a bell or by the terminal's own notification. Only for
    /// terminals.
    pub fn notify(&self, notification: Notification) {
        let mut state = self.handle.shared.state.lock();
        state.notification = Some(notification);
        state.region_changed = true;
        state.region_on = Some(Arc::clone(&self.file));
        self.handle.shared.work.notify_one();
    }

    /// From now on, marks each row that the program itself prints, if the stream is a terminal. Text from outside
    /// ([`OutputQueue::flow`]) cannot make this mark.
    pub fn mark_own_rows(&self, style: Style) {
        if self.is_terminal() {
            self.handle.shared.state.lock().margin = Margin::new(style);
        }
    }

    /// Breaks the program's own lines into rows, each with the mark.
    fn with_margin(&self, lines: Styled) -> Styled {
        let margin = self.margin();
        if margin.columns() == 0 {
            return lines;
        }
        let lines = margin.drawable(lines);
        // Further rows are indented: a text from outside in the line cannot look like another line.
        let columns = self.columns().unwrap_or(usize::MAX);
        margin.own(&lines.fit_with_command(columns.saturating_sub(1), HANGING_COLUMNS))
    }

    fn margin(&self) -> Margin {
        let margin = self.handle.shared.state.lock().margin;
        // The queue may also write to a file that is not a terminal.
        if margin.columns() == 0 || self.is_terminal() {
            margin
        } else {
            Margin::default()
        }
    }

    /// Sets the treatment of rows by a terminal that becomes narrower.
    pub fn set_narrowing(&self, narrowing: Narrowing) {
        self.handle.shared.state.lock().narrowing = narrowing;
    }

    /// Writes nothing until [`OutputQueue::release`] or a flush, because another program has the terminal. Removes the
    /// live region.
    pub fn hold(&self) {
        self.hide_region();
        let deadline = deadline_of(HOLD_FLUSH_MAX);
        self.flush(deadline);
        self.handle.shared.state.lock().is_held = true;
    }

    /// Writes the output that has waited since [`OutputQueue::hold`].
    pub fn release(&self) {
        self.handle.shared.state.lock().is_held = false;
        self.show_region();
    }

    /// Hides the live region below the text until [`OutputQueue::show_region`].
    pub fn hide_region(&self) {
        self.set_visibility(RegionVisibility::Hidden);
    }

    /// Shows the live region below the text again.
    pub fn show_region(&self) {
        self.set_visibility(RegionVisibility::Shown);
    }

    fn set_visibility(&self, visibility: RegionVisibility) {
        let mut state = self.handle.shared.state.lock();
        state.visibility = visibility;
        state.region_changed = state.region_on.is_some();
        self.handle.shared.work.notify_one();
    }

    /// Waits until all pushed output is written, but not longer than the limit. Blocks the calling thread.
    pub(super) fn settle(&self, limit: Duration) -> FlushResult {
        self.flush(deadline_of(limit))
    }

    /// True if the file is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.file.is_terminal()
    }

    /// Columns that the terminal has for a line; `None` if the file is no terminal or its size is unknown.
    pub fn columns(&self) -> Option<usize> {
        self.size().map(|(columns, _)| columns)
    }

    /// Formats lines for this stream. On a terminal, long lines are broken between words.
    pub fn fitted(&self, lines: Styled) -> Styled {
        match self.columns() {
            Some(columns) => lines.fit_with_command(columns.saturating_sub(1), 0),
            None => lines,
        }
    }

    /// Height of the terminal; `None` if the file is no terminal or its size is unknown.
    pub fn rows(&self) -> Option<usize> {
        sink::size(&self.file).map(|(_, rows)| rows)
    }

    /// Columns that the terminal has for a line, and its rows; `None` if the file is no terminal or its size is unknown.
    pub fn size(&self) -> Option<(usize, usize)> {
        let (columns, rows) = sink::size(&self.file)?;
        let columns = columns.saturating_sub(self.margin().columns());
        Some((columns.max(1), rows))
    }

    /// A writer of whole lines into this queue, for code that takes an `io::Write`.
    pub fn writer(&self) -> LineWriter {
        LineWriter::new(self.clone())
    }

    /// Removes the live region below the text permanently, because the process is about to end. An incomplete text is
    /// written as it is.
    pub(super) fn begin_flush(&self) {
        let mut state = self.handle.shared.state.lock();
        state.is_held = false;
        state.region_changed = state.region_on.is_some();
        state.running.clear();
        state.input_line = None;
        state.status = None;
        state.title = None;
        if let Some(open) = state.open.take() {
            let file = state.region_on.clone();
            let file = file.unwrap_or_else(|| Arc::clone(&self.file));
            let (text, start) = (TextBody::Open(open), LineStart::NewLine);
            state.queue.push_back(QueuedText { file, text, start });
        }
        self.handle.shared.work.notify_one();
    }

    /// Marks the output as incomplete: a piece was refused, and no accepted text replaces it.
    pub fn mark_lost(&self) {
        self.handle.shared.state.lock().has_lost = true;
    }

    /// True if the output is incomplete because a piece was refused. Output to a stream without a reader does not
    /// count.
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
                // Checks again, because the thread may have finished just before the deadline.
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
        OutputPriority::Required => ROOM_BYTES_MAX,
        OutputPriority::Last => usize::MAX,
    }
}

/// The moment at which a limit is reached.
pub(super) fn deadline_of(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or(now + FOREVER)
}
