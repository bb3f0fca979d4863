//! The JSON schema of the answer: the file of `--output-schema`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use allstop_agent::AnswerSchema;

use crate::error::CliError;

/// Maximum bytes of the file. Providers refuse much shorter schemas, so a longer file is a mistake.
const SCHEMA_BYTES_MAX: usize = 1024 * 1024;

/// Reads the schema. May wait for a slow disk or a pipe.
pub(super) fn read(path: &Path) -> Result<AnswerSchema, CliError> {
    let shown = path.display();
    let hint = "--output-schema needs the path of a file with a JSON schema";
    let problem = |said: String| CliError::usage(format!("`{shown}` {said}")).hint(hint);
    let bytes = read_bytes(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => problem("does not exist".to_owned()),
        _ => problem(format!("cannot be read: {error}")),
    })?;
    if bytes.len() > SCHEMA_BYTES_MAX {
        return Err(problem("is longer than 1 MiB".to_owned()));
    }
    let schema =
        serde_json::from_slice(&bytes).map_err(|error| problem(format!("is not JSON: {error}")))?;
    AnswerSchema::from_schema(schema)
        .map_err(|error| problem(format!("is no valid JSON schema: {}", error.reason)))
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(SCHEMA_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
