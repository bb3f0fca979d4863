//! Key set of an issuer in a file, which an operator can replace while the server runs.

use std::path::PathBuf;

use super::jwks::{JwksError, JwtKeySet};
use crate::bounded_file;

/// File of a key set.
#[derive(Debug)]
pub struct JwksFile {
    path: PathBuf,
    /// Content at the last read, so that a broken file is reported only once.
    last_read: Vec<u8>,
}

impl JwksFile {
    /// Reads a key set. Reads from disk, so call it on a thread that may block.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is not a key set.
    pub fn open(path: impl Into<PathBuf>) -> Result<(Self, JwtKeySet), JwksError> {
        let path = path.into();
        let json = bounded_file::read(&path).map_err(|e| JwksError::Read(path.clone(), e))?;
        let keys = JwtKeySet::parse(&json)?;
        let last_read = json;
        Ok((Self { path, last_read }, keys))
    }

    /// Reads the file again, and returns its keys if it has changed. Reads from disk, so call it on a thread that may
    /// block.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or has changed and is not a key set.
    pub fn reload(&mut self) -> Result<Option<JwtKeySet>, JwksError> {
        let json = bounded_file::read(&self.path);
        let json = json.map_err(|error| JwksError::Read(self.path.clone(), error))?;
        if json == self.last_read {
            return Ok(None);
        }
        self.last_read = json;
        JwtKeySet::parse(&self.last_read).map(Some)
    }
}
