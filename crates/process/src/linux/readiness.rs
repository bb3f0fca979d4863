//! A descriptor that is registered with the runtime, so that code can wait until it is readable.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(super) type WatchedDescriptor = AsyncFd<Arc<OwnedFd>>;

/// Registers a descriptor. A socket is readable when it has a packet. The descriptor of a process is readable when the
/// process has ended.
pub(super) fn watch(descriptor: Arc<OwnedFd>) -> io::Result<WatchedDescriptor> {
    #[expect(
        unsafe_code,
        reason = "the registration asks for a descriptor that stays open, which an owned one is"
    )]
    // SAFETY: the `Arc` keeps its one `OwnedFd`, and so the same open descriptor, as long as the `AsyncFd` exists.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    watched.map_err(|error| error.into_parts().1)
}
