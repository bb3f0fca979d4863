//! Repair of a damaged store.
//!
//! ```text
//! store.db.repair          marks a repair that is not complete: the name of the copies, and a hash of the damaged file
//! store.db.damaged-TIME    copies of the damaged files, which stay
//! store.db.repaired        the new store, until it replaces the old one
//! ```
//!
//! 1. The mark is written. From now on, the store refuses to open. If a process uses the store, the repair ends here.
//! 2. The copies are made.
//! 3. The new store gets every readable record of the copies.
//! 4. The write-ahead log and its index are removed, and the new store replaces the old one.
//! 5. The mark is removed.
//!
//! If the repair is interrupted, the next repair uses the same copies, unless the file of the store is another one.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use twox_hash::XxHash3_64;

use super::super::classify::{io_error, sqlite_error};
use super::super::connection::{self, APPLICATION_ID};
use super::super::files::{INDEX, LOG, REPAIR_MARK, beside};
use super::super::lock_folder::LockFolder;
use super::super::new_store::{TemporaryStoreFile, image, private};
use super::super::record_chain::{NameHash, checksum};
use super::super::streams::INSERT;
use super::super::write_back::write_back;
use super::copy::in_use;
use super::readable::{ReadablePart, ReadableParts, RecordRow, streams, visit_rows};
use super::stop::MaintenanceStop;
use crate::{AppendIds, LogError, RecordBytes, StreamName, Version};

const REPAIRED: &str = ".repaired";

/// Length of a page of a store, in bytes.
const PAGE_LEN: u64 = 4_096;

/// First bytes of each store: the format of the file, the length of a page, the use of a write-ahead log, and constants
/// (SQLite, "Database File Format", 1.3).
const HEADER_START: &[u8] = b"SQLite format 3\0\x10\x00\x02\x02\x00\x40\x20\x20";

/// Position of the id of the program in the header.
const APPLICATION_ID_AT: usize = 68;

/// Position of the number of pages in the header.
const PAGES_AT: u64 = 28;

/// Length of the header up to the end of this id.
const HEADER_LEN: usize = 72;

/// Number of bytes that are hashed together.
const HASHED_PART_LEN: u64 = 1 << 20;

/// Result of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairReport {
    /// Copy of the damaged file. The copy of the write-ahead log has the same name and `-wal`.
    pub damaged: PathBuf,
    /// Number of records in the new store.
    pub records: u64,
    /// Streams that lost records.
    pub cut: Vec<CutStream>,
}

/// A stream that lost its last records in a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutStream {
    /// The stream.
    pub stream: StreamName,
    /// The last record that is left; 0 if the stream is gone.
    pub version: Version,
    /// The last record before the repair, if it is known.
    pub before: Option<Version>,
}

/// Returns the records that end a stream that was cut, from the records that are left. The stream's reader must learn that
/// records are missing. Empty if the stream needs no end.
pub type EndOfCut = Box<dyn FnMut(&StreamName, &[RecordBytes]) -> Vec<RecordBytes> + Send>;

pub(super) fn repair(
    path: &Path,
    stop: &MaintenanceStop,
    mut end: EndOfCut,
) -> Result<RepairReport, LogError> {
    let failed = |error| io_error(path, error);
    let mark = beside(path, REPAIR_MARK);
    let present = FileHash::of(path).map_err(failed)?;
    let unfinished = match fs::read_to_string(&mark) {
        Ok(text) => RepairMark::read(path, &text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    // If the file is another one, the user has restored a back-up since, or the repair was complete except for its mark.
    let unfinished = unfinished.filter(|found| found.original.is_none_or(|it| it == present));
    let is_first = unfinished.is_none();
    let damaged = match unfinished {
        Some(unfinished) => unfinished.damaged,
        None => begin(path, &mark, present).map_err(failed)?,
    };
    let repaired = beside(path, REPAIRED);
    let report = match prepare(path, &damaged, &repaired, stop, &mut end) {
        Ok(report) => report,
        Err(error) => {
            // An earlier repair may have removed the write-ahead log. Otherwise the files are as before.
            if is_first {
                let removed = remove_store(&repaired)
                    .and_then(|()| remove_store(&damaged))
                    .and_then(|()| remove(&mark));
                removed.map_err(failed)?;
            }
            return Err(error);
        }
    };
    for end in [LOG, INDEX] {
        remove(&beside(path, end)).map_err(failed)?;
    }
    fs::rename(&repaired, path).map_err(failed)?;
    sync_folder(path).map_err(failed)?;
    remove(&mark).map_err(failed)?;
    Ok(report)
}

/// Makes the copies and the new store. Does not change the damaged files.
fn prepare(
    path: &Path,
    damaged: &Path,
    repaired: &Path,
    stop: &MaintenanceStop,
    end: &mut EndOfCut,
) -> Result<RepairReport, LogError> {
    let failed = |error| io_error(path, error);
    if LockFolder::beside(path).is_in_use().map_err(failed)? {
        return Err(in_use(path));
    }
    keep_copies(path, damaged).map_err(failed)?;
    remove_store(repaired).map_err(failed)?;
    mend_header(damaged).map_err(failed)?;
    rewrite(path, damaged, repaired, stop, end)
}

/// Makes the copy a file that SQLite opens: it would remove the log of an empty file, and refuses a damaged header.
fn mend_header(damaged: &Path) -> io::Result<()> {
    let mut file = File::options().read(true).write(true).open(damaged)?;
    let len = file.metadata()?.len();
    // SQLite also takes a file with one byte for an empty file.
    if len <= 1 {
        return fs::write(damaged, image().map_err(io::Error::other)?);
    }
    let mut header = [0; HEADER_LEN];
    if len % PAGE_LEN != 0 || file.read_exact(&mut header).is_err() {
        return Ok(());
    }
    // The file of another program is not changed.
    if header.get(APPLICATION_ID_AT..) != Some(&APPLICATION_ID.to_be_bytes()) {
        return Ok(());
    }
    file.write_all_at(HEADER_START, 0)?;
    if has_tables(damaged) {
        return Ok(());
    }
    // The first page of each store has the same tables, so it is replaced as a whole.
    let image = image().map_err(io::Error::other)?;
    let first = image.get(..PAGE_LEN as usize).unwrap_or_default();
    file.write_all_at(first, 0)?;
    let pages = u32::try_from(len / PAGE_LEN).unwrap_or(u32::MAX);
    file.write_all_at(&pages.to_be_bytes(), PAGES_AT)
}

/// True if SQLite finds the tables of a store in this file.
fn has_tables(damaged: &Path) -> bool {
    let open = || {
        let copy = Connection::open(damaged)?;
        copy.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        copy.prepare("SELECT 1 FROM records, streams").map(drop)
    };
    open().is_ok()
}

/// Hash of a file, to recognise it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileHash(u64);

impl FileHash {
    fn of(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let (mut hash, mut part) = (0, Vec::new());
        loop {
            part.clear();
            (&mut file).take(HASHED_PART_LEN).read_to_end(&mut part)?;
            if part.is_empty() {
                return Ok(Self(hash));
            }
            hash = XxHash3_64::oneshot_with_seed(hash, &part);
        }
    }
}

/// Content of the mark of a repair: the name of the copy, and the hash of the damaged file on a second line.
struct RepairMark {
    damaged: PathBuf,
    /// `None` in the mark of an earlier version.
    original: Option<FileHash>,
}

impl RepairMark {
    fn read(path: &Path, text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let damaged = path.with_file_name(lines.next()?);
        let hash = lines.next().map(|hash| u64::from_str_radix(hash, 16));
        let original = hash.transpose().ok()?.map(FileHash);
        Some(Self { damaged, original })
    }
}

/// Writes the mark, so that no process opens the store. Returns the path of the copy.
fn begin(path: &Path, mark: &Path, original: FileHash) -> io::Result<PathBuf> {
    let damaged = beside(path, &format!(".damaged-{}", ulid::Ulid::generate()));
    let name = damaged.file_name().unwrap_or_default();
    // The mark gets its name when it is complete: a mark without the name of the copies would be useless.
    let complete = TemporaryStoreFile::of(mark)?;
    let mut file = File::options().write(true).open(complete.path())?;
    file.write_all(name.as_encoded_bytes())?;
    write!(file, "\n{:016x}", original.0)?;
    file.sync_all()?;
    fs::rename(complete.path(), mark)?;
    sync_folder(path)?;
    Ok(damaged)
}

/// Copies the damaged files. The copy of the store is the last one, so if it exists, an earlier repair has made all
/// copies.
fn keep_copies(path: &Path, damaged: &Path) -> io::Result<()> {
    if fs::symlink_metadata(damaged).is_ok() {
        return Ok(());
    }
    // The log that an earlier repair has copied may belong to another file.
    remove_store(damaged)?;
    for end in [LOG, ""] {
        copy(&beside(path, end), &beside(damaged, end))?;
    }
    sync_folder(path)
}

/// Copies a file that exists, and waits until the copy is on the disk.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = match File::open(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let part = TemporaryStoreFile::of(to)?;
    let mut file = File::options().write(true).open(part.path())?;
    io::copy(&mut from, &mut file)?;
    file.sync_all()?;
    fs::rename(part.path(), to)
}

/// Writes every readable record of the damaged store into a new store.
fn rewrite(
    path: &Path,
    damaged: &Path,
    repaired: &Path,
    stop: &MaintenanceStop,
    end: &mut EndOfCut,
) -> Result<RepairReport, LogError> {
    let failed = |error| sqlite_error(path, error);
    let old = Connection::open_with_flags(damaged, OpenFlags::SQLITE_OPEN_READ_WRITE);
    let mut old = old.map_err(failed)?;
    stop.watch(&mut old).map_err(failed)?;
    // Without this setting, SQLite reads nothing of a file that was cut.
    old.pragma_update(None, "writable_schema", true)
        .map_err(failed)?;
    // The copies stay as they are.
    old.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(failed)?;
    drop(private(repaired).map_err(|error| io_error(repaired, error))?);
    let mut new = connection::open(repaired)?.connection;
    let failed_new = |error| sqlite_error(repaired, error);
    let transaction = new.transaction().map_err(failed_new)?;
    let known = streams(&old).map_err(failed)?;
    let mut parts = ReadableParts::new(&known);
    let mut records = 0;
    {
        let mut insert = transaction
            .prepare(
                "INSERT INTO records (id, stream, number, previous, append_id, checksum, body) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )
            .map_err(failed_new)?;
        let visit = |row: RecordRow| {
            if parts.add(&row) {
                records += 1;
                insert.execute((
                    row.id,
                    row.stream,
                    row.number.cast_signed(),
                    row.previous,
                    row.append_id,
                    row.checksum,
                    row.body,
                ))?;
            }
            Ok(())
        };
        visit_rows(&old, visit, |_, _| {}).map_err(failed)?;
    }
    let mut cut = Vec::new();
    for (id, stream) in &known {
        let id = *id;
        let mut part = parts.of(id);
        let before = stream.end.map(|(version, _)| Version(version));
        if before != Some(Version(part.version)) {
            let name = StreamName::new(stream.name.as_str());
            let version = Version(part.version);
            if part.version > 0 {
                let added = append_end(&transaction, id, &mut part, &name, end);
                records += added.map_err(failed_new)?;
            }
            cut.push(CutStream {
                stream: name,
                version,
                before,
            });
        }
        if part.version > 0 {
            transaction
                .execute(
                    "INSERT INTO streams (id, name, version, last_record) VALUES (?1, ?2, ?3, ?4)",
                    (
                        id,
                        &stream.name,
                        part.version.cast_signed(),
                        part.last_record,
                    ),
                )
                .map_err(failed_new)?;
        }
    }
    // Records of a stream whose name is lost cannot be reached.
    let orphaned = "DELETE FROM records WHERE stream NOT IN (SELECT id FROM streams)";
    records -= transaction.execute(orphaned, []).map_err(failed_new)? as u64;
    transaction.commit().map_err(failed_new)?;
    write_back(&mut new).map_err(failed_new)?;
    drop(new);
    drop(old);
    let left = [LOG, INDEX].map(|end| beside(repaired, end));
    for path in left.into_iter().chain([beside(damaged, INDEX)]) {
        remove(&path).map_err(|error| io_error(&path, error))?;
    }
    let file = File::open(repaired).and_then(|file| file.sync_all());
    file.map_err(|error| io_error(repaired, error))?;
    cut.sort_by(|one, other| one.stream.cmp(&other.stream));
    Ok(RepairReport {
        damaged: damaged.to_owned(),
        records,
        cut,
    })
}

/// Appends the end of a stream that was cut. Returns the number of its records.
fn append_end(
    new: &Connection,
    id: i64,
    part: &mut ReadablePart,
    name: &StreamName,
    end: &mut EndOfCut,
) -> rusqlite::Result<u64> {
    let mut rows = new.prepare_cached("SELECT body FROM records WHERE stream = ?1 ORDER BY id")?;
    let kept = rows.query_map([id], |row| row.get::<_, Vec<u8>>(0))?;
    let kept: Vec<RecordBytes> = kept
        .map(|body| body.map(RecordBytes::from))
        .collect::<Result<_, _>>()?;
    let end = end(name, &kept);
    let name_hash = NameHash::of(name.as_str());
    let append_id = AppendIds::new().next_id().0.to_be_bytes();
    let mut insert = new.prepare_cached(INSERT)?;
    for body in &end {
        let number = part.version + 1;
        let checksum = checksum(name_hash, number, &append_id, body);
        let row = (
            id,
            number.cast_signed(),
            part.last_record,
            append_id,
            checksum,
            &body[..],
        );
        part.last_record = insert.insert(row)?;
        part.version = number;
    }
    Ok(end.len() as u64)
}

/// Removes a store with its write-ahead log and its index, as far as they exist.
fn remove_store(path: &Path) -> io::Result<()> {
    let mut ends = ["", LOG, INDEX].iter();
    ends.try_for_each(|end| remove(&beside(path, end)))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
