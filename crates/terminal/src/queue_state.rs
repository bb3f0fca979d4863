//! State shared by the handles of a queue and its writer thread.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::flow::{FlowPart, OpenText};
use super::input_line::InputLine;
use super::live_region::RunningLine;
use super::margin::Margin;
use super::narrowing::Narrowing;
use super::notification::Notification;
use super::status_line::StatusLine;
use super::window_title::TurnMark;

/// Treatment of text that has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputPriority {
    /// Dispensable, such as a piece of an answer that is printed again with the complete answer.
    IfRoom,
    /// Refused only if the queue is near its memory limit.
    Required,
    /// Always accepted. For the very last output.
    Last,
}

/// Result of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushResult {
    /// Everything is written.
    Flushed,
    /// The reader did not read in time, so some output is still waiting.
    Blocked,
    /// A write failed, because the stream has no reader any more or the disk is full.
    Closed(io::ErrorKind),
}

/// Text in the queue.
#[derive(Debug)]
pub(super) struct QueuedText {
    pub(super) file: Arc<File>,
    pub(super) text: TextBody,
    pub(super) start: LineStart,
}

/// Text, or parts that are broken into rows when they are written.
#[derive(Debug)]
pub(super) enum TextBody {
    Text(String),
    Flow(Vec<FlowPart>),
    /// A mark without text.
    Mark(TurnMark),
    /// Text that was still incomplete when the process was about to end.
    Open(Arc<dyn OpenText>),
}

impl TextBody {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Flow(parts) => parts.iter().map(FlowPart::len).sum(),
            Self::Open(_) | Self::Mark(_) => 0,
        }
    }
}

/// Position at which a queued text begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineStart {
    /// Directly after the previous output.
    Anywhere,
    /// On a new line.
    NewLine,
    /// On a new line that the terminal itself began by echoing an Enter.
    EchoedEnter,
}

/// State of a queue, under its lock.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is about something else"
)]
pub(super) struct QueueState {
    pub(super) queue: VecDeque<QueuedText>,
    pub(super) queued_bytes: usize,
    /// True if the thread is writing.
    pub(super) busy: bool,
    /// True while another program has the terminal. Nothing is written.
    pub(super) is_held: bool,
    pub(super) failed: Option<io::ErrorKind>,
    /// True if text was refused, and no other text replaces it.
    pub(super) has_lost: bool,
    /// Changing lines below the text. Only the latest value is kept, and never queued.
    pub(super) running: Vec<RunningLine>,
    pub(super) region_changed: bool,
    /// Incomplete text above the changing lines. Only the latest value is kept, and never queued.
    pub(super) open: Option<Arc<dyn OpenText>>,
    /// True if `open` has changed. The change may wait for the next frame.
    pub(super) open_changed: bool,
    /// Input line below the changing lines. Only the latest value is kept, and never queued.
    pub(super) input_line: Option<InputLine>,
    /// The row at the very bottom. Only the latest value is kept, and never queued.
    pub(super) status: Option<StatusLine>,
    /// Title of the window; `None` for the title that the window had before.
    pub(super) title: Option<String>,
    /// The latest notification that is not written yet.
    pub(super) notification: Option<Notification>,
    pub(super) narrowing: Narrowing,
    pub(super) margin: Margin,
    pub(super) visibility: RegionVisibility,
    /// Terminal that shows the region.
    pub(super) region_on: Option<Arc<File>>,
    pub(super) handles: QueueHandles,
}

impl QueueState {
    /// True if `bytes` more bytes stay within the limit, or if the queue is empty. A single text of any length is
    /// accepted because the caller holds it in memory anyway.
    pub(super) fn has_room(&self, bytes: usize, limit: usize) -> bool {
        self.queue.is_empty() || self.queued_bytes.saturating_add(bytes) <= limit
    }
}

/// Visibility of the live region below the text.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegionVisibility {
    #[default]
    Shown,
    /// Not drawn, because the terminal belongs to the shell.
    Hidden,
}

/// Existence of handles that can push.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueHandles {
    #[default]
    Held,
    /// The last handle was dropped. The thread ends when all output is written.
    Dropped,
}

/// A queue, shared by its handles and its thread.
#[derive(Debug, Default)]
pub(super) struct SharedQueue {
    pub(super) state: Mutex<QueueState>,
    /// Wakes the thread when there is work.
    pub(super) work: Condvar,
    /// Wakes flushing callers after the thread has written.
    pub(super) done: Condvar,
}
