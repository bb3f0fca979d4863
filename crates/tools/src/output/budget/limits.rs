//! Limits on the output files of a store.

use crate::output::disk_limit::DiskLimit;

/// Limits on the output files of a store, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputBudgetLimits {
    /// Limit of the files of one session.
    pub session_bytes_max: u64,
    /// Limit of the files of all sessions.
    pub store_bytes_max: u64,
}

impl OutputBudgetLimits {
    /// Sets the limit of the files of one session.
    #[must_use]
    pub fn session_bytes_max(mut self, session_bytes_max: u64) -> Self {
        self.session_bytes_max = session_bytes_max;
        self
    }

    /// Sets the limit of the files of all sessions.
    #[must_use]
    pub fn store_bytes_max(mut self, store_bytes_max: u64) -> Self {
        self.store_bytes_max = store_bytes_max;
        self
    }

    /// Default limit of one session: 1 GiB, which holds 16 of the longest outputs.
    pub const SESSION_BYTES_DEFAULT: u64 = 1 << 30;
    /// Default limit of all sessions: 8 GiB, a small part of the disk of a developer.
    pub const STORE_BYTES_DEFAULT: u64 = 8 << 30;
}

/// Number of bytes that are freed in addition to a claim, and smallest step between two listings: small against the
/// limit, but at least one pipe of output.
pub(super) fn step_min(limit: DiskLimit) -> u64 {
    (limit.bytes_max() / 256).max(64 * 1024)
}

impl Default for OutputBudgetLimits {
    fn default() -> Self {
        Self {
            session_bytes_max: Self::SESSION_BYTES_DEFAULT,
            store_bytes_max: Self::STORE_BYTES_DEFAULT,
        }
    }
}
