//! Finds damage in the write-ahead log, and a cut of the store, before SQLite reads the files.
//!
//! SQLite reads the frames (the pages in the log) up to the first frame with a wrong checksum, because a crash can leave
//! such a frame at the end. SQLite reports nothing, even if committed frames follow. Then each process continues without
//! these commits, and the next commit overwrites them. So this module counts the frames first, and finds two proofs of
//! damage:
//!
//! 1. The index of the log, which SQLite keeps in `-shm`, names more frames. The index is written after the frames are on
//!    the disk.
//! 2. If there is no index for this log: an intact commit follows the first wrong frame. SQLite overwrites a frame only
//!    from the first one that is not committed, so a later commit was complete.
//!
//! A page is missing if the file of the store is too short and the page is not in the log.
//!
//! The formats are in the section "WAL-mode File Format" of the documentation of SQLite.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread::park_timeout;
use std::time::Duration;

use super::classify::io_error;
use super::connection::APPLICATION_ID;
use super::files::beside;
use super::lock_folder::LockFolder;
use crate::{LogError, LogErrorKind};

/// First bytes of the file of a store (SQLite, "Database File Format", 1.3).
const STORE_MAGIC: &[u8; 16] = b"SQLite format 3\0";
const STORE_HEADER_LEN: usize = 100;

/// First bytes of a log. The byte after them names the byte order of the checksums.
const MAGIC: [u8; 3] = [0x37, 0x7f, 0x06];
const HEADER_LEN: usize = 32;
const FRAME_HEADER_LEN: usize = 24;
/// Length of one of the two equal headers of the index.
const INDEX_HEADER_LEN: usize = 48;
const PAGE_LEN_MAX: usize = 65_536;
/// Number of bytes that are read at once. Each start reads the whole log.
const READ_LEN: usize = 64 << 10;
/// Length of a page of a store.
const PAGE_LEN: usize = 4_096;

/// Number of checks that must find the same damage. Another process may write to the log at the time of one check.
const CHECKS: usize = 3;
const PAUSE: Duration = Duration::from_millis(20);

/// Damage of a store.
#[derive(Debug, PartialEq, Eq)]
enum Damage {
    /// The log has fewer readable frames than it had.
    Log {
        /// Number of the first wrong frame, from 1.
        frame: u64,
        /// Number of commits after the last readable frame that can be recognised.
        commits: u64,
        salts: Salts,
    },
    /// This page is neither in the file of the store nor in the log.
    Cut { page: u32 },
    /// The file of the store is empty, but the store was in use before. SQLite would take it for a new store, and would
    /// also empty the log.
    Empty { frames: u64 },
}

/// Two random values that a log and each of its frames have. Frames of an earlier content of the file have others.
type Salts = [u8; 8];

/// Returns an error if the log of the store at this path is damaged. This process must not have the store open.
pub(super) fn check(store: &Path) -> Result<(), LogError> {
    let Ok(store) = store.canonicalize() else {
        return Ok(());
    };
    let log = beside(&store, "-wal");
    let find = || find(&store, &log).map_err(|error| io_error(&log, error));
    let Some(damage) = find()? else {
        return Ok(());
    };
    for _ in 1..CHECKS {
        park_timeout(PAUSE);
        if find()?.as_ref() != Some(&damage) {
            return Ok(());
        }
    }
    let error = match damage {
        Damage::Log { frame, commits, .. } => {
            let log = log.display();
            let place = format!("frame {frame} of {log}, commits lost: at least {commits}");
            LogError::new(LogErrorKind::DamagedLog, place)
        }
        Damage::Cut { page } => {
            let place = format!("page {page} of {} is missing", store.display());
            LogError::new(LogErrorKind::Incomplete, place)
        }
        Damage::Empty { frames } => {
            let (store, log) = (store.display(), log.display());
            let place = format!("{store} is empty; pages of it in {log}: {frames}");
            LogError::new(LogErrorKind::Incomplete, place)
        }
    };
    Err(error.in_store(&store))
}

fn find(store: &Path, log: &Path) -> io::Result<Option<Damage>> {
    // Read before the log, because frames that the index names are complete.
    let index = read_index(&beside(store, "-shm"))?;
    let frames = match File::open(log) {
        Ok(file) => LogFrames::count(file, index)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => LogFrames::default(),
        // SQLite reports this better.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(error),
    };
    match frames.damage(index) {
        None => find_cut(store, &frames),
        damage => Ok(damage),
    }
}

/// Finds a page that is missing because the file of the store was cut. SQLite reads a missing page as zeros, and takes an
/// empty file for a new store.
fn find_cut(store: &Path, frames: &LogFrames) -> io::Result<Option<Damage>> {
    let file = File::open(store)?;
    // SQLite also takes a file with one byte for an empty file.
    if file.metadata()?.len() <= 1 {
        let frames = frames.readable;
        // The folder of the locks exists as soon as a process has had a session open.
        let was_used = frames > 0 || LockFolder::beside(store).path().exists();
        return Ok(was_used.then_some(Damage::Empty { frames }));
    }
    let mut header = [0; STORE_HEADER_LEN];
    let has_header = file.read_exact_at(&mut header, 0).is_ok();
    let is_store =
        header[..16] == *STORE_MAGIC && part(&header, 68) == APPLICATION_ID.to_be_bytes();
    if !has_header || !is_store {
        // A file that is no store is reported later.
        return Ok(None);
    }
    let page_len = match u16::from_be_bytes(part(&header, 16)) {
        1 => PAGE_LEN_MAX as u64,
        len => u64::from(len),
    };
    let pages = match frames.store_pages {
        0 => u32::from_be_bytes(part(&header, 28)),
        pages => pages,
    };
    let whole = file.metadata()?.len().checked_div(page_len).unwrap_or(0);
    let first_missing = u32::try_from(whole + 1).unwrap_or(u32::MAX);
    if first_missing > pages {
        return Ok(None);
    }
    let in_log: HashSet<_> = frames.pages.iter().collect();
    let mut missing = (first_missing..=pages).filter(|page| !in_log.contains(page));
    Ok(missing.next().map(|page| Damage::Cut { page }))
}

/// State of the log as its index names it.
#[derive(Debug, Clone, Copy)]
struct LogIndex {
    frames: u64,
    salts: Salts,
}

/// Reads the index. `None` if it does not exist, or is not complete.
fn read_index(path: &Path) -> io::Result<Option<LogIndex>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let mut headers = [0; 2 * INDEX_HEADER_LEN];
    let read = file.read_exact_at(&mut headers, 0);
    Ok(read.ok().and_then(|()| parse_index(&headers)))
}

fn parse_index(headers: &[u8; 2 * INDEX_HEADER_LEN]) -> Option<LogIndex> {
    let (one, two) = headers.split_at(INDEX_HEADER_LEN);
    let (hashed, checksum) = one.split_at(40);
    let expected = Checksum::default().add(hashed, u32::from_ne_bytes);
    let is_initialised = one[12] != 0;
    let is_whole = one == two && is_initialised && checksum == expected.bytes(u32::to_ne_bytes);
    is_whole.then(|| LogIndex {
        frames: u64::from(u32::from_ne_bytes(part(one, 16))),
        salts: part(one, 32),
    })
}

/// Frames of a log. The default is an empty log.
#[derive(Debug, Default)]
struct LogFrames {
    is_header_intact: bool,
    salts: Salts,
    /// Number of frames up to the last intact commit before the first wrong frame.
    readable: u64,
    /// Number of the first wrong frame; `None` if all frames of this content are intact.
    first_wrong: Option<u64>,
    /// Number of intact commits after the first wrong frame.
    commits_after: u64,
    /// Number of pages of the store after the last readable commit; 0 if the log has no readable commit.
    store_pages: u32,
    /// Pages in the readable frames.
    pages: Vec<u32>,
}

impl LogFrames {
    /// Counts the frames of a log. Does not read the frames after the last one of the index, if the frames up to there
    /// are intact.
    fn count(file: File, index: Option<LogIndex>) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(READ_LEN, file);
        let mut header = [0; HEADER_LEN];
        if !read_whole(&mut file, &mut header)? {
            return Ok(Self::default());
        }
        let is_big_endian = header[3] & 1 == 1;
        let add = |sum: Checksum, bytes: &[u8]| {
            if is_big_endian {
                sum.add(bytes, u32::from_be_bytes)
            } else {
                sum.add(bytes, u32::from_le_bytes)
            }
        };
        let mut sum = add(Checksum::default(), &header[..24]);
        let mut counted = Self {
            is_header_intact: header[..3] == MAGIC && sum.is_at(&header, 24),
            salts: part(&header, 16),
            ..Self::default()
        };
        let page_len = match u32::from_be_bytes(part(&header, 8)) as usize {
            len if counted.is_header_intact => len.min(PAGE_LEN_MAX),
            _ => PAGE_LEN,
        };
        let mut frame = vec![0; FRAME_HEADER_LEN + page_len];
        let (mut number, mut commits, mut committed_pages) = (0, 0, 0);
        let is_of_log = |index: &LogIndex| counted.is_header_intact && index.salts == counted.salts;
        let last = index.filter(is_of_log).map(|index| index.frames);
        while last.is_none_or(|last| counted.readable < last) && read_whole(&mut file, &mut frame)?
        {
            number += 1;
            let is_of_log = frame[8..16] == counted.salts;
            // Without the header, a frame is compared with the frame before it.
            if !counted.is_header_intact {
                counted.salts = part(&frame, 8);
            }
            // Most logs end with frames of an earlier content. Their checksums do not matter.
            let is_intact = is_of_log && {
                let expected = add(sum, &frame[..8]);
                add(expected, &frame[FRAME_HEADER_LEN..]).is_at(&frame, 16)
            };
            let store_pages = u32::from_be_bytes(part(&frame, 4));
            let is_commit = store_pages != 0;
            match counted.first_wrong {
                None if is_intact => {
                    counted.pages.push(u32::from_be_bytes(part(&frame, 0)));
                    if is_commit {
                        commits += 1;
                        counted.readable = number;
                        counted.store_pages = store_pages;
                        committed_pages = counted.pages.len();
                    }
                }
                None => counted.first_wrong = Some(number),
                Some(_) => counted.commits_after += u64::from(is_intact && is_commit),
            }
            // After a wrong frame, the next frame is compared with the checksum that the wrong frame has.
            sum = Checksum::at(&frame, 16);
        }
        if !counted.is_header_intact {
            // SQLite reads no frame of this log.
            counted.commits_after += commits;
            counted.first_wrong = Some(1);
            counted.readable = 0;
            counted.store_pages = 0;
            committed_pages = 0;
        }
        counted.pages.truncate(committed_pages);
        Ok(counted)
    }

    fn damage(&self, index: Option<LogIndex>) -> Option<Damage> {
        let is_of_log = |index: &LogIndex| index.salts == self.salts || !self.is_header_intact;
        let commits = match index.filter(is_of_log) {
            Some(index) if index.frames > self.readable => self.commits_after.max(1),
            None if self.commits_after > 0 => self.commits_after,
            Some(_) | None => return None,
        };
        Some(Damage::Log {
            frame: self.first_wrong.unwrap_or(self.readable + 1),
            commits,
            salts: self.salts,
        })
    }
}

/// Checksum of the log: two sums over 32-bit words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Checksum(u32, u32);

impl Checksum {
    fn add(self, bytes: &[u8], to_u32: impl Fn([u8; 4]) -> u32) -> Self {
        let Self(mut one, mut two) = self;
        for pair in bytes.chunks_exact(8) {
            one = one.wrapping_add(to_u32(part(pair, 0))).wrapping_add(two);
            two = two.wrapping_add(to_u32(part(pair, 4))).wrapping_add(one);
        }
        Self(one, two)
    }

    /// The checksum that is stored at this position.
    fn at(bytes: &[u8], position: usize) -> Self {
        let number = |at| u32::from_be_bytes(part(bytes, at));
        Self(number(position), number(position + 4))
    }

    fn is_at(self, bytes: &[u8], position: usize) -> bool {
        self == Self::at(bytes, position)
    }

    fn bytes(self, from_u32: fn(u32) -> [u8; 4]) -> [u8; 8] {
        let (one, two) = (from_u32(self.0), from_u32(self.1));
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&one);
        bytes[4..].copy_from_slice(&two);
        bytes
    }
}

fn part<const LEN: usize>(bytes: &[u8], at: usize) -> [u8; LEN] {
    let mut part = [0; LEN];
    part.copy_from_slice(&bytes[at..at + LEN]);
    part
}

/// Fills the buffer. Returns false at the end of the file.
fn read_whole(file: &mut BufReader<File>, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
