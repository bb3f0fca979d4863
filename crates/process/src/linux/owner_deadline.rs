//! Deadline at which the process trees of an owner (the process that launched them) end, unless the owner postpones the
//! deadline. Some owners must stop their work by a certain time, even if the owner itself is paused.
//!
//! The deadline is a number in a memory file, which the owner and its keepers share. So one write postpones the
//! deadline for all trees. The clock of the deadline also counts while the machine sleeps.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::time::{ClockId, clock_gettime};

/// Deadline of the trees of one owner.
#[derive(Debug)]
pub(super) struct OwnerDeadline(File);

impl OwnerDeadline {
    /// A deadline at this time from now.
    pub(super) fn new(left: Duration) -> io::Result<Self> {
        let deadline = Self(memfd_create("deadline", MemfdFlags::CLOEXEC)?.into());
        deadline.put_off(left)?;
        Ok(deadline)
    }

    /// The deadline in a file that an owner has sent.
    pub(super) fn of_file(file: OwnedFd) -> Self {
        Self(file.into())
    }

    /// The memory file, which can be sent to a keeper.
    pub(super) fn file(&self) -> &File {
        &self.0
    }

    /// Postpones the deadline to this time from now.
    pub(super) fn put_off(&self, left: Duration) -> io::Result<()> {
        let at = now_ns().saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
        self.0.write_all_at(&at.to_le_bytes(), 0)
    }

    /// Time until the deadline. Zero if the file cannot be read, because then no owner can postpone the deadline.
    pub(super) fn left(&self) -> Duration {
        let mut at = [0; 8];
        match self.0.read_exact_at(&mut at, 0) {
            Ok(()) => Duration::from_nanos(u64::from_le_bytes(at).saturating_sub(now_ns())),
            Err(_unreadable) => Duration::ZERO,
        }
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let part = |value: i64| u64::try_from(value).unwrap_or_default();
    part(now.tv_sec)
        .saturating_mul(1_000_000_000)
        .saturating_add(part(now.tv_nsec))
}
