//! Reads of small files that the operator has named, such as certificates and key sets.

use std::io::{Error, ErrorKind, Read as _};
use std::path::Path;

/// Maximum size of a file in bytes. Certificates and key sets have about 10 KiB; a larger file is the wrong file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file of at most [`FILE_BYTES_MAX`].
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let reason = format!("it has more than {FILE_BYTES_MAX} bytes: it is the wrong file");
        return Err(Error::new(ErrorKind::InvalidData, reason));
    }
    Ok(bytes)
}
