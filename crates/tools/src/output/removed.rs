//! Output files that were removed to free space, as recorded paths show them.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::disk_limit::NOTE_BEGINNING;

/// Maximum length of a note in place of an output, in bytes. Notes have about 120 bytes.
const NOTE_BYTES_MAX: u64 = 512;

/// Describes the removal of an output file. `None` without a note: the file has output, or was removed with its
/// session. The disk may delay this function.
pub fn removed_output(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    if file.metadata().ok()?.len() > NOTE_BYTES_MAX {
        return None;
    }
    let mut note = String::new();
    file.read_to_string(&mut note).ok()?;
    let (_size, reason) = note.strip_prefix(NOTE_BEGINNING)?.split_once(": ")?;
    let reason = reason.strip_suffix("]\n")?;
    Some(format!("removed: {reason}"))
}
