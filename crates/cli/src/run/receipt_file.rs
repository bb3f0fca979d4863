//! `--receipt-file FILE`: the receipt of a run, in a file that does not depend on the reader of a pipe.
//!
//! A receipt is the report of a stop. A run without a receipt leaves no file, so the file never contains the receipt of
//! an earlier run. The file is written atomically, so readers never see a partial receipt.

use std::fs::{self, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_core::Receipt;
use allstop_core::receipt::ItemKind;
use allstop_runtime::link_target;
use allstop_scope::{Scope, WorkSpec};
use tempfile::NamedTempFile;

use crate::control::OUTPUT_WAIT_LAST;
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::supervise::Supervisor;

/// A file for the receipt of a run.
#[derive(Debug)]
pub(super) struct ReceiptFile {
    path: PathBuf,
    /// Permissions of the file that the receipt replaces.
    permissions: Option<Permissions>,
    /// True after [`ReceiptFile::prepare`].
    is_prepared: bool,
}

/// Number of bytes at the beginning of a file within which a receipt contains the name of its schema.
const BEGINNING_BYTES: u64 = 256;

/// True if the file is empty, or contains the receipt of an earlier run.
fn may_be_removed(path: &Path) -> io::Result<bool> {
    let mut beginning = Vec::new();
    let file = fs::File::open(path)?;
    file.take(BEGINNING_BYTES).read_to_end(&mut beginning)?;
    let beginning = String::from_utf8_lossy(&beginning);
    Ok(beginning.is_empty() || beginning.contains("\"allstop.receipt/"))
}

/// Removes the receipt of an earlier run because this run ends before it begins. A script would otherwise read the old
/// receipt as the receipt of this run. A file with any other content stays.
pub(crate) fn discard_receipt(path: &Path) {
    let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
    let file = link_target(path);
    if is_file && may_be_removed(&file).unwrap_or(false) {
        discard(&file);
    }
}

/// Removes the file, or empties it if its folder is not writable.
fn discard(file: &Path) {
    if fs::remove_file(file).is_err() {
        // The run fails in any case, and its error is more useful than the error of this attempt.
        drop(fs::File::create(file));
    }
}

impl ReceiptFile {
    /// A file that is not prepared yet. If a stop ends the run before [`ReceiptFile::prepare`], the file is prepared
    /// when the receipt is written.
    pub(super) fn named(path: PathBuf) -> Self {
        Self {
            path,
            permissions: None,
            is_prepared: false,
        }
    }

    /// Checks that the file can be written, and removes the receipt of an earlier run.
    ///
    /// # Errors
    /// If the file cannot be written, or the path is not a regular file.
    pub(super) fn prepare(path: &Path) -> Result<Self, CliError> {
        let failed = |why: &dyn std::fmt::Display| {
            let message = format!(
                "the receipt file `{}` cannot be written: {why}",
                path.display()
            );
            CliError::usage(message).hint("name another file: --receipt-file FILE")
        };
        let unwritable = |error: &io::Error| {
            CliError::unwritable("--receipt-file", "the receipt file", path, error)
        };
        let found = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(found.map_err(|error| unwritable(&error))?),
        };
        if found.as_ref().is_some_and(|found| !found.is_file()) {
            return Err(failed(&"it is not a regular file"));
        }
        let stdout = io::stdout();
        if let (Some(found), Ok(stdout)) = (&found, rustix::fs::fstat(&stdout))
            && (found.dev(), found.ino()) == (stdout.st_dev, stdout.st_ino)
        {
            return Err(failed(&"it is the output of this run"));
        }
        // If the path is a symbolic link, the target of the link is replaced, and the link stays.
        let file = link_target(path);
        if found.is_some() && !may_be_removed(&file).map_err(|error| unwritable(&error))? {
            return Err(failed(&"the file is not a receipt, and would be deleted"));
        }
        if let Err(error) = temporary(&file) {
            if found.is_some() {
                discard(&file);
            }
            return Err(unwritable(&error.kind().into()));
        }
        if found.is_some() {
            fs::remove_file(&file).map_err(|error| unwritable(&error))?;
        }
        Ok(Self {
            path: file,
            permissions: found.map(|found| found.permissions()),
            is_prepared: true,
        })
    }

    fn write(self, receipt: &Receipt) -> io::Result<()> {
        let mut file = temporary(&self.path)?;
        let json = serde_json::to_string(receipt)?;
        writeln!(file, "{json}")?;
        if let Some(permissions) = self.permissions {
            file.as_file().set_permissions(permissions)?;
        }
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        Ok(())
    }

    /// Writes the receipt, within the time until the exit. `is_stored` is true if the log of the session also contains
    /// the receipt.
    ///
    /// # Errors
    /// If the receipt could not be written to the file.
    pub(super) async fn save(
        self,
        receipt: Arc<Receipt>,
        is_stored: bool,
        host: &ProcessHost,
        supervisor: &mut Supervisor,
    ) -> Result<(), CliError> {
        let path = self.path.clone();
        let failed = |why: &dyn std::fmt::Display| {
            let message = format!("cannot write the receipt to {}: {why}", path.display());
            let failure = CliError::failure(message);
            if is_stored {
                failure.hint("the session keeps the receipt: allstop receipt last")
            } else {
                failure
            }
        };
        let scope = Scope::root("receipt", host.scopes());
        let spec = WorkSpec::new(ItemKind::Thread, "writing the receipt");
        let writing = scope.spawn_blocking(spec, move |_| {
            let prepared = if self.is_prepared {
                self
            } else {
                Self::prepare(&self.path)?
            };
            prepared
                .write(&receipt)
                .map_err(|error| CliError::failure(error.to_string()))
        });
        let mut writing = writing.map_err(|refused| failed(&refused))?;
        let written = match supervisor.wait_to_exit(&mut writing, |_| {}).await {
            Some(written) => written,
            // The exit time is reached. The write gets the short time that is reserved for the last output, which is
            // enough for a working disk.
            None => match tokio::time::timeout(OUTPUT_WAIT_LAST, writing).await {
                Ok(written) => written,
                Err(_) => return Err(failed(&"the disk did not answer in time")),
            },
        };
        let written = written.map_err(|lost| failed(&lost))?;
        written.map_err(|problem| failed(&problem.message))
    }
}

/// Creates a temporary file in the folder of `path`. The temporary file either replaces the file at `path` or is
/// removed.
fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    tempfile::Builder::new()
        // The umask applies, as for any new file.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
}
