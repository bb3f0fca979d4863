//! State that the handles of a queue and its writer thread share.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::attention::AttentionCall;
use super::flow::{FlowPart, OpenText};
use super::input_line::InputLine;
use super::live_region::RunningLine;
use super::narrowing::Narrowing;
use super::status_line::StatusLine;

/// Treatment of text for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputPriority {
    /// Dispensable: a delta that comes again in the whole answer.
    IfRoom,
    /// Refused only when memory is at stake.
    Must,
    /// Always taken: the very last output.
    Last,
}

/// Result of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushResult {
    /// Everything is written.
    Flushed,
    /// The reader did not read in time; something is still waiting.
    Blocked,
    /// Writing failed: nobody reads any more, or the disk is full.
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
    /// Text that was not complete, as it was at the end.
    Open(Arc<dyn OpenText>),
}

impl TextBody {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Flow(parts) => parts.iter().map(FlowPart::len).sum(),
            Self::Open(_) => 0,
        }
    }
}

/// Beginning of a queued text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineStart {
    /// Behind what was written before.
    Anywhere,
    /// On a new line.
    NewLine,
    /// On a new line, which the terminal began itself by showing an Enter.
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
    /// The thread is writing.
    pub(super) busy: bool,
    pub(super) failed: Option<io::ErrorKind>,
    /// Text was refused that nothing else replaces.
    pub(super) has_lost: bool,
    /// Lines below the text that change: the latest value, never queued.
    pub(super) running: Vec<RunningLine>,
    pub(super) region_changed: bool,
    /// Text that is not complete, above those: the latest value, never queued.
    pub(super) open: Option<Arc<dyn OpenText>>,
    /// It has changed, and nothing else of the region has: a frame may wait.
    pub(super) open_changed: bool,
    /// Line that a person types into, below those: the latest value, never queued.
    pub(super) input_line: Option<InputLine>,
    /// The row at the very bottom: the latest value, never queued.
    pub(super) status: Option<StatusLine>,
    /// Treatment of rows by a terminal that becomes narrower.
    /// A call that is not written yet: the latest one.
    pub(super) attention: Option<AttentionCall>,
    pub(super) narrowing: Narrowing,
    pub(super) visibility: RegionVisibility,
    /// Terminal of the region.
    pub(super) region_on: Option<Arc<File>>,
    pub(super) handles: QueueHandles,
}

impl QueueState {
    /// True if so many bytes more stay below the limit, or nothing waits: the caller holds a single text in memory
    /// anyway, however long it is.
    pub(super) fn has_room(&self, bytes: usize, limit: usize) -> bool {
        self.queue.is_empty() || self.queued_bytes.saturating_add(bytes) <= limit
    }
}

/// Drawing of the region below the text.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegionVisibility {
    #[default]
    Shown,
    /// The terminal is the shell's.
    Hidden,
}

/// Existence of handles that can push.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueHandles {
    #[default]
    Held,
    /// The last one was dropped: the thread ends when everything is written.
    Dropped,
}

/// A queue as its handles and its thread see it.
#[derive(Debug, Default)]
pub(super) struct SharedQueue {
    pub(super) state: Mutex<QueueState>,
    /// Wakes the thread: there is work.
    pub(super) work: Condvar,
    /// Wakes those who flush: the thread has done something.
    pub(super) done: Condvar,
}
