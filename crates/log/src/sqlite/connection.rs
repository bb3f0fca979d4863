//! Opens the file of a store.
//!
//! ```text
//! streams   one row per stream: its name, its version, and the row of its last record
//! records   all records of all streams, in the order of the appends; each points to the previous one of its stream
//! ```
//!
//! The records are not sorted by stream, as an index would sort them. With an index, a commit with the appends of 64
//! sessions would write 64 pages at different places in the file. In this layout the commit writes one or two pages at
//! the end, so grouped appends are five times as fast. A read goes back from the last record, and this takes about half
//! a microsecond per record.

use std::path::Path;
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

use super::busy::{BUSY_PAUSE, BUSY_WAIT_MAX, wait_for_another};
use super::classify::{io_error, sqlite_error};
use super::erasure_mark::ErasureMark;
use super::files::{FileId, OpenFiles, is_repair_unfinished};
use super::new_store;
use super::open_mark::OpenMark;
use super::write_back::write_back;
use crate::{LogError, LogErrorKind};

/// Id in the file that marks it as a store (`AlSt`). The database of another program does not have this id, and is
/// refused.
pub(super) const APPLICATION_ID: i32 = 0x416c_5374;
/// Version of the tables. A store with a newer version is refused.
const SCHEMA: i32 = 3;
/// Changes a store of version 1, which has no checksums. Its records stay as they are.
const UPGRADE_1: &str = "
    ALTER TABLE records ADD COLUMN checksum INTEGER;
    PRAGMA user_version = 3;
";
/// Changes a store of version 2, whose checksums were slower. Its records stay, and have no checksum.
const UPGRADE_2: &str = "
    UPDATE records SET checksum = NULL;
    PRAGMA user_version = 3;
";
/// Pause before a damaged store or record is read again.
pub(super) const DAMAGE_PAUSE: Duration = Duration::from_millis(20);

/// Number of pages in the write-ahead log that cause a checkpoint: one megabyte. Each start reads these pages twice, to
/// check and to index them. They come from about a hundred commits, so a checkpoint adds about one percent of syncs.
const WAL_PAGES_MAX: u32 = 256;

const TABLES: &str = "
    CREATE TABLE streams (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        last_record INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE records (
        id INTEGER PRIMARY KEY,
        stream INTEGER NOT NULL,
        number INTEGER NOT NULL,
        previous INTEGER NOT NULL,
        append_id BLOB NOT NULL,
        checksum INTEGER,
        body BLOB NOT NULL
    ) STRICT;
";

/// A connection to a store, and the files that the connection holds open.
pub(super) struct OpenStore {
    pub(super) connection: Connection,
    pub(super) files: OpenFiles,
    /// Dropped after the connection. `None` if no other connection of this process can open the file.
    pub(super) mark: Option<OpenMark>,
}

/// Opens the store. If the file is missing or empty, creates the store first.
pub(super) fn open(path: &Path) -> Result<OpenStore, LogError> {
    let started = Instant::now();
    let mut is_second = false;
    loop {
        match try_open(path) {
            // A device that failed for a moment looks like damage: SQLite reports `EIO` as damage.
            Err(error) if error.kind() == LogErrorKind::Corrupt && !is_second => {
                is_second = true;
                park_timeout(DAMAGE_PAUSE);
            }
            // Two processes can create the store at the same time, and then disturb each other. SQLite waits only in
            // some of these cases.
            Err(error)
                if error.kind() == LogErrorKind::Busy && started.elapsed() < BUSY_WAIT_MAX =>
            {
                park_timeout(BUSY_PAUSE);
            }
            answer => return answer,
        }
    }
}

fn try_open(path: &Path) -> Result<OpenStore, LogError> {
    let failed = |error| sqlite_error(path, error);
    if is_repair_unfinished(path) {
        let place = path.display().to_string();
        return Err(LogError::new(LogErrorKind::RepairUnfinished, place).in_store(path));
    }
    new_store::make(path);
    let before = FileId::at(path).ok();
    let mut connection = Connection::open(path).map_err(failed)?;
    connection
        .busy_handler(Some(wait_for_another))
        .map_err(failed)?;
    // If SQLite has no permission to write a file, it opens the file read-only and reports no error.
    if connection.is_readonly(rusqlite::MAIN_DB).map_err(failed)? {
        return Err(LogError::new(
            LogErrorKind::ReadOnly,
            path.display().to_string(),
        ));
    }
    // Check the file before the first write, so that the file of another program does not change. Do the check in a
    // transaction: if another process is creating the store, the transaction sees either no store or a complete store.
    let look = connection.transaction().map_err(failed)?;
    let found = find_tables(&look, path)?;
    look.finish().map_err(failed)?;
    if found != FoundTables::Present {
        let make = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(failed)?;
        // Another process may have created or changed the tables since the first check.
        match find_tables(&make, path)? {
            FoundTables::Present => {}
            FoundTables::Earlier { upgrade } => make.execute_batch(upgrade).map_err(failed)?,
            FoundTables::None => make_tables(&make).map_err(failed)?,
        }
        make.commit().map_err(failed)?;
    }
    set_durability(&connection).map_err(failed)?;
    // The first read in this mode opens the write-ahead log and its index.
    find_tables(&connection, path)?;
    let files = OpenFiles::of(path)?;
    let now = FileId::at(path).map_err(|error| io_error(path, error))?;
    // If the file was replaced meanwhile, SQLite may have opened the old file or the new file. The caller must then
    // open the store again.
    if before.is_some_and(|before| before != now) {
        let place = path.display().to_string();
        return Err(LogError::new(LogErrorKind::Busy, place));
    }
    let mut erasure = ErasureMark::of(files.store());
    // If another connection uses the log now, the writer of this store or another process tries again.
    if erasure.is_set() && write_back(&mut connection).is_ok_and(|is_written| is_written) {
        erasure.clear();
    }
    Ok(OpenStore {
        connection,
        files,
        mark: None,
    })
}

/// Creates the tables and marks the file as a store.
pub(super) fn make_tables(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLES)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", SCHEMA)
}

/// Tables of a file.
#[derive(Debug, PartialEq, Eq)]
enum FoundTables {
    /// The file is empty.
    None,
    /// The tables of an earlier version, and the statements that change them.
    Earlier { upgrade: &'static str },
    /// The tables of the present version.
    Present,
}

/// Finds the tables of a store. Returns an error for a file that is neither a store nor empty.
fn find_tables(connection: &Connection, path: &Path) -> Result<FoundTables, LogError> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i32>(0));
    let found = (|| {
        Ok((
            number("PRAGMA application_id")?,
            number("PRAGMA user_version")?,
            number("SELECT count(*) FROM sqlite_schema")?,
        ))
    })();
    let refused = |kind| Err(LogError::new(kind, path.display().to_string()).in_store(path));
    match found.map_err(|error| sqlite_error(path, error))? {
        (APPLICATION_ID, SCHEMA, _) => Ok(FoundTables::Present),
        (APPLICATION_ID, 1, _) => Ok(FoundTables::Earlier { upgrade: UPGRADE_1 }),
        (APPLICATION_ID, 2, _) => Ok(FoundTables::Earlier { upgrade: UPGRADE_2 }),
        (APPLICATION_ID, newer, _) if newer > SCHEMA => refused(LogErrorKind::NewerVersion),
        (0, 0, 0) => Ok(FoundTables::None),
        _ => refused(LogErrorKind::Corrupt),
    }
}

/// Makes a commit return only after it is on the disk. Every commit syncs the write-ahead log. On macOS the sync also
/// uses the barrier that this system needs.
///
/// The write-ahead log is kept when the store is closed. To delete the log would take two syncs, and to create it again
/// two more syncs. Also, a commit that overwrites old pages of the log syncs in half the time of a commit that makes
/// the file longer. Each opening of the store reads the log, so the log is kept short.
fn set_durability(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    connection.pragma_update(None, "wal_autocheckpoint", WAL_PAGES_MAX)?;
    // The text of a removed session is overwritten, not only marked as free.
    connection.pragma_update(None, "secure_delete", true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(())
}
