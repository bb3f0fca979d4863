//! Output files that were removed to free space, as recorded paths show them.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use super::disk_limit::NOTE_BEGINNING;

/// Maximum length of a note in place of an output, in bytes. Notes have about 120 bytes.
const NOTE_BYTES_MAX: u64 = 512;

/// Describes the removal of an output file. `None` if the file has output. The disk may delay this function.
pub fn removed_output(path: &Path) -> Option<String> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Some("removed".to_owned()),
        Err(_) => return None,
    };
    if file.metadata().ok()?.len() > NOTE_BYTES_MAX {
        return None;
    }
    let mut note = String::new();
    file.read_to_string(&mut note).ok()?;
    let (_size, reason) = note.strip_prefix(NOTE_BEGINNING)?.split_once(": ")?;
    let reason = reason.strip_suffix("]\n")?;
    Some(format!("removed: {reason}"))
}
