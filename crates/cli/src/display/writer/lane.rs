//! A bounded queue in front of a file, and the handle to push into it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::super::escape;
use super::super::styled::Styled;
use super::entry::Entry;
use super::lines::LaneWriter;
use super::pump;
use super::region::Running;

/// Bytes that may wait for a slow reader before more of what can be done without is refused: some screens of text.
const ROOM_BYTES: usize = 256 * 1024;
/// Bytes that may wait before even what ought to be written is refused: a long run's worth of lines.
const ROOM_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What happens to a piece for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It can be done without: a delta that comes again in the whole answer.
    IfRoom,
    /// It is refused only when memory is at stake.
    Must,
    /// It is always taken: the one last thing.
    Last,
}

/// What a flush came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Everything is written.
    Flushed,
    /// The reader did not read in time; something is still waiting.
    Blocked,
    /// Writing failed: nobody reads any more, or the disk is full.
    Closed(io::ErrorKind),
}

/// Something to write.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) file: Arc<File>,
    pub(super) text: String,
    /// Begin a new line first, unless one has just begun.
    pub(super) on_new_line: bool,
    /// It is a question: nothing is written after it until it is over.
    pub(super) question: Option<u64>,
}

/// What the handles and the thread share.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) queue: VecDeque<Piece>,
    pub(super) queued_bytes: usize,
    /// The thread is writing.
    pub(super) busy: bool,
    pub(super) failed: Option<io::ErrorKind>,
    /// Something was refused that nothing else says.
    pub(super) has_lost: bool,
    /// Lines below the text that change: the latest value, never queued.
    pub(super) running: Vec<Running>,
    pub(super) running_changed: bool,
    /// The line that a person types into, below those: the latest value, never queued.
    pub(super) entry: Option<Entry>,
    pub(super) changing: Changing,
    /// The terminal that both are on.
    pub(super) running_on: Option<Arc<File>>,
    /// The question that is on the terminal.
    pub(super) held_by: Option<u64>,
    pub(super) questions: u64,
    pub(super) life: Life,
}

/// True if lines that change are drawn.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Changing {
    #[default]
    Shown,
    /// The terminal is the shell's.
    Hidden,
}

/// How far a lane is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Life {
    #[default]
    Open,
    /// The process is about to end: no question holds anything up any more.
    Ending,
    /// The last handle is gone.
    Abandoned,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// There is something to do for the thread.
    pub(super) work: Condvar,
    /// The thread has done something.
    pub(super) done: Condvar,
}

/// A stream to write to. Pushing never waits; clones are the same stream.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    handle: Arc<Handle>,
    pub(super) file: Arc<File>,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.state.lock().life = Life::Abandoned;
        self.shared.work.notify_one();
    }
}

impl Lane {
    /// A lane with a thread of its own.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn new(file: File, name: &str) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        pump::start(Arc::clone(&shared), name)?;
        Ok(Self {
            handle: Arc::new(Handle { shared }),
            file: Arc::new(file),
        })
    }

    /// Another file of the same lane: what is pushed to either is written in the order of the pushes.
    pub(super) fn beside(&self, file: File) -> Self {
        Self {
            handle: Arc::clone(&self.handle),
            file: Arc::new(file),
        }
    }

    /// Pushes an answer, or a piece of it: harmless where it goes to a terminal, and as it is where it goes to a file.
    /// False: there was no room, and it will not be written. What goes to a closed stream counts as written: nobody
    /// misses it.
    pub(crate) fn answer(&self, text: &str, keep: Keep) -> bool {
        let text = if self.is_terminal() {
            escape::text(text)
        } else {
            text.into()
        };
        self.push(text.into_owned(), false, keep, None)
    }

    /// Pushes lines of JSON. False: there was no room.
    pub(crate) fn json(&self, json: &str, keep: Keep) -> bool {
        let mut json = escape::json(json).into_owned();
        if !json.ends_with('\n') {
            json.push('\n');
        }
        self.push(json, false, keep, None)
    }

    /// Pushes whole lines, which begin on a line of their own whatever was written before. A string is a text of
    /// several lines. False: there was no room.
    pub(crate) fn lines(&self, lines: impl Into<Styled>, keep: Keep) -> bool {
        let mut lines = lines.into().into_string();
        if !lines.ends_with('\n') {
            lines.push('\n');
        }
        self.push(lines, true, keep, None)
    }

    /// Ends the line that was begun, unless lines of somebody else have ended it.
    pub(crate) fn end_line(&self) {
        let mut state = self.handle.shared.state.lock();
        if state.failed.is_some() {
            return;
        }
        let file = Arc::clone(&self.file);
        state.queue.push_back(Piece {
            file,
            text: String::new(),
            on_new_line: true,
            question: None,
        });
        self.handle.shared.work.notify_one();
    }

    pub(super) fn push(
        &self,
        text: String,
        on_new_line: bool,
        keep: Keep,
        question: Option<u64>,
    ) -> bool {
        if text.is_empty() {
            return true;
        }
        let mut state = self.handle.shared.state.lock();
        if state.failed.is_some() {
            return true;
        }
        let room = match keep {
            Keep::IfRoom => ROOM_BYTES,
            Keep::Must => ROOM_BYTES_MAX,
            Keep::Last => usize::MAX,
        };
        // One piece alone is held by whoever pushes it anyway, however long it is.
        if !state.queue.is_empty() && state.queued_bytes.saturating_add(text.len()) > room {
            return false;
        }
        state.queued_bytes += text.len();
        let file = Arc::clone(&self.file);
        state.queue.push_back(Piece {
            file,
            text,
            on_new_line,
            question,
        });
        self.handle.shared.work.notify_one();
        true
    }

    /// Replaces the lines that change below the text. Only for terminals.
    pub(in crate::display) fn show_running(&self, running: Vec<Running>) {
        let mut state = self.handle.shared.state.lock();
        state.running = running;
        state.running_changed = true;
        state.running_on = Some(Arc::clone(&self.file));
        self.handle.shared.work.notify_one();
    }

    /// Replaces the line that a person types into, below everything else. Only for terminals.
    pub(crate) fn show_entry(&self, entry: Option<Entry>) {
        let mut state = self.handle.shared.state.lock();
        state.entry = entry;
        state.running_changed = true;
        state.running_on = Some(Arc::clone(&self.file));
        self.handle.shared.work.notify_one();
    }

    /// Takes what changes off the terminal, until [`Lane::show_changing`].
    pub(crate) fn hide_changing(&self) {
        self.set_changing(Changing::Hidden);
    }

    /// Draws again what changes.
    pub(crate) fn show_changing(&self) {
        self.set_changing(Changing::Shown);
    }

    fn set_changing(&self, changing: Changing) {
        let mut state = self.handle.shared.state.lock();
        state.changing = changing;
        state.running_changed = state.running_on.is_some();
        self.handle.shared.work.notify_one();
    }

    /// Waits until everything that was pushed is written, but no longer than the limit. It blocks the calling thread.
    pub(crate) fn settle(&self, limit: Duration) -> Flush {
        self.flush(super::deadline_of(limit))
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    #[cfg(test)]
    pub(super) fn is_held(&self) -> bool {
        self.handle.shared.state.lock().held_by.is_some()
    }

    /// Whether it is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.file.is_terminal()
    }

    /// How many columns it has; `None` where it is no terminal.
    pub(crate) fn columns(&self) -> Option<usize> {
        super::sink::size(&self.file).map(|(columns, _)| columns)
    }

    /// A writer of whole lines into this lane, for code that takes an `io::Write`.
    pub(crate) fn writer(&self) -> LaneWriter {
        LaneWriter::new(self.clone())
    }

    /// Lets go of questions and of the lines that change.
    pub(super) fn begin_flush(&self) {
        let mut state = self.handle.shared.state.lock();
        state.life = Life::Ending;
        state.held_by = None;
        state.running_changed = state.running_on.is_some();
        state.running.clear();
        state.entry = None;
        self.handle.shared.work.notify_one();
    }

    /// Marks the output as incomplete: a piece was refused, and nothing that was taken stands for it.
    pub(in crate::display) fn mark_lost(&self) {
        self.handle.shared.state.lock().has_lost = true;
    }

    /// Whether the output is incomplete, although its reader reads.
    pub(crate) fn has_lost(&self) -> bool {
        self.handle.shared.state.lock().has_lost
    }

    pub(super) fn flush(&self, deadline: Instant) -> Flush {
        let shared = &self.handle.shared;
        let mut state = shared.state.lock();
        loop {
            if let Some(kind) = state.failed {
                return Flush::Closed(kind);
            }
            if state.queue.is_empty() && !state.busy && !state.running_changed {
                return Flush::Flushed;
            }
            if shared.done.wait_until(&mut state, deadline).timed_out() {
                // What happened at the very last moment counts.
                let written = state.queue.is_empty() && !state.busy;
                return match state.failed {
                    Some(kind) => Flush::Closed(kind),
                    None if written => Flush::Flushed,
                    None => Flush::Blocked,
                };
            }
        }
    }
}
