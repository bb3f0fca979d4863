//! The output of a command while it runs: a bounded copy for the result, and the newest text for progress messages.

use allstop_task::LiveTextWriter;
use allstop_tools::output::{without_cut_end, without_cut_start};
use allstop_tools::{BoundedOutput, OutputLimits};

use crate::result::RESULT_ARTIFACT;

/// Maximum size of one piece of live text, in bytes. Progress messages show only the last lines.
const LIVE_PIECE_BYTES_MAX: usize = 4 * 1024;

/// Size of the live text after which it starts again, in bytes: a quarter of the limit of the task manager, after which
/// subscribers would receive no more pieces.
const LIVE_TEXT_BYTES_MAX: usize = 64 * 1024;

/// Output of a running command. Memory is bounded by the [`OutputLimits`].
pub(crate) struct CommandOutput {
    kept: BoundedOutput,
    live: LiveTextWriter,
    live_bytes: usize,
}

impl CommandOutput {
    pub(crate) fn new(limits: OutputLimits, live: LiveTextWriter) -> Self {
        live.restart(RESULT_ARTIFACT, None);
        Self {
            kept: BoundedOutput::in_memory(limits),
            live,
            live_bytes: 0,
        }
    }

    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.kept.push(piece);
        if self.live_bytes > LIVE_TEXT_BYTES_MAX {
            self.live.restart(RESULT_ARTIFACT, None);
            self.live_bytes = 0;
        }
        let begin = piece.len().saturating_sub(LIVE_PIECE_BYTES_MAX);
        let newest = piece.get(begin..).unwrap_or_default();
        let newest = without_cut_start(without_cut_end(newest));
        self.live.push(&String::from_utf8_lossy(newest));
        self.live_bytes += newest.len();
    }

    /// Number of bytes so far.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.kept.total_bytes()
    }

    /// The whole output, or its head and its tail with a note about the omitted bytes.
    pub(crate) fn text(&self) -> String {
        self.kept.text()
    }
}
