//! States of files, to detect whether a file has changed since it was last seen.

use rustix::fs::Stat;

/// State of a file: its device, inode, length and time of the last modification; or the absence of a file. Equal states
/// mean equal content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState(Option<(u64, u64, i64, i64, u64)>);

impl FileState {
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "the types differ between platforms"
    )]
    pub(crate) fn of(stat: Option<&Stat>) -> Self {
        Self(stat.map(|stat| {
            (
                stat.st_dev as u64,
                stat.st_ino as u64,
                stat.st_size as i64,
                stat.st_mtime as i64,
                stat.st_mtime_nsec as u64,
            )
        }))
    }
}
