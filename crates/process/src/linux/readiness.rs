//! A descriptor whose readiness the runtime watches.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(super) type WatchedDescriptor = AsyncFd<Arc<OwnedFd>>;

/// Registers a descriptor. A socket is readable when it has a packet, the descriptor of a process when that process has
/// ended.
pub(super) fn watch(descriptor: Arc<OwnedFd>) -> io::Result<WatchedDescriptor> {
    #[expect(
        unsafe_code,
        reason = "the registration asks for a descriptor that stays open, which an owned one is"
    )]
    // SAFETY: the `Arc` keeps its one `OwnedFd`, and so the same open descriptor, as long as the `AsyncFd` exists.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    watched.map_err(|error| error.into_parts().1)
}
