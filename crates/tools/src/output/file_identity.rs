//! Name and identity of an output file.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Beginning of the names of output files.
pub(super) const NAME_BEGINNING: &str = "output-";

/// True if this name is the name of an output file.
pub(super) fn is_output_name(name: &OsStr) -> bool {
    name.as_encoded_bytes()
        .starts_with(NAME_BEGINNING.as_bytes())
}

/// True if the path still refers to the open file.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let at_path = std::fs::symlink_metadata(path).map(identity);
    match (file.metadata().map(identity), at_path) {
        (Ok(open), Ok(at_path)) => open == at_path,
        _ => false,
    }
}
