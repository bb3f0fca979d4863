//! History of typed lines, in a file next to the store of the sessions.
//!
//! The file is read before the chat begins and written by a separate thread, so a blocked disk does not block typing.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rustyline::config::Config;
use rustyline::history::{FileHistory, History as _, SearchDirection};

use super::history_search::HistoryMatch;

/// Maximum number of kept lines. These lines are enough for some weeks of work, and a file of this size loads quickly.
const LINES_MAX: usize = 1_000;
/// Maximum bytes of a line in the file. A longer line is usually a pasted file, which only the history in memory keeps.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of lines that wait to be written. A person types fewer lines while a disk is busy. Further lines are
/// not kept in the file.
const WAITING_MAX: usize = 64;

/// History of typed lines.
pub struct InputHistory {
    lines: FileHistory,
    /// Sends lines to the thread that writes them; `None` if the history is only in memory.
    writer: Option<SyncSender<String>>,
    /// Number of the shown history line; `None` if the draft, the person's unsent text, is shown.
    at: Option<usize>,
    /// The draft, kept while the person goes back in the history.
    draft: String,
}

impl std::fmt::Debug for InputHistory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InputHistory")
            .field("lines", &self.lines.len())
            .finish_non_exhaustive()
    }
}

/// A history file: the lines that were read from the file, and a queue of lines to be appended to it.
pub struct HistoryFile {
    path: PathBuf,
    lines: FileHistory,
    waiting: Receiver<String>,
}

impl std::fmt::Debug for HistoryFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HistoryFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl HistoryFile {
    /// Appends lines until the [`InputHistory`] is dropped. Blocks while the disk blocks.
    pub fn write(mut self) {
        while let Ok(line) = self.waiting.recv() {
            // The file has private permissions, because messages to a model are private.
            if self.lines.add(&line).unwrap_or(false)
                && let Err(error) = self.lines.append(&self.path)
            {
                tracing::warn!(file = %self.path.display(), %error, "the history cannot be written");
            }
        }
    }
}

/// History without lines, with the limits of the file.
pub(super) fn empty_history() -> FileHistory {
    let config = Config::builder()
        .max_history_size(LINES_MAX)
        .map(|config| config.history_ignore_space(true).build());
    FileHistory::with_config(&config.unwrap_or_default())
}

fn read(file: Option<&Path>) -> FileHistory {
    let mut lines = empty_history();
    if let Some(file) = file.filter(|file| file.exists())
        && let Err(error) = lines.load(file)
    {
        tracing::warn!(file = %file.display(), %error, "the history cannot be read");
    }
    lines
}

impl InputHistory {
    /// Loads the history from this file, if the file can be read. Also returns the value that appends to the file.
    /// Blocks while the disk blocks.
    pub fn load(file: PathBuf) -> (Self, HistoryFile) {
        let (writer, waiting) = sync_channel(WAITING_MAX);
        let past = Self {
            lines: read(Some(&file)),
            writer: Some(writer),
            ..Self::in_memory()
        };
        let written = HistoryFile {
            lines: read(Some(&file)),
            path: file,
            waiting,
        };
        (past, written)
    }

    /// Creates an empty history in memory only.
    pub fn in_memory() -> Self {
        Self {
            lines: read(None),
            writer: None,
            at: None,
            draft: String::new(),
        }
    }

    /// Adds a sent line as the newest line of the history.
    pub fn add(&mut self, line: &str) {
        self.at = None;
        let is_new = self.lines.add(line).unwrap_or(false);
        if let Some(writer) = self
            .writer
            .as_ref()
            .filter(|_| is_new && line.len() <= LINE_BYTES_MAX)
        {
            // A full channel means that the disk is blocked. In that case, the file does not keep the line.
            drop(writer.try_send(line.to_owned()));
        }
    }

    /// Goes back to the previous line; `None` if there is no previous line. The first step back keeps `typed` as the
    /// draft.
    pub fn back(&mut self, typed: &str) -> Option<String> {
        let next = match self.at {
            None => {
                typed.clone_into(&mut self.draft);
                self.lines.len().checked_sub(1)?
            }
            Some(at) => at.checked_sub(1)?,
        };
        self.at = Some(next);
        self.line(next)
    }

    /// Goes forward to the next line, or from the last line to the draft; `None` if the draft is already shown.
    pub fn forward(&mut self) -> Option<String> {
        let next = self.at? + 1;
        if next < self.lines.len() {
            self.at = Some(next);
            return self.line(next);
        }
        self.at = None;
        Some(std::mem::take(&mut self.draft))
    }

    /// Finds the newest line that contains the query, at line `from` or before; `None` for `from` means the last line.
    pub fn find(&self, query: &str, from: Option<usize>) -> Option<HistoryMatch> {
        let last = self.lines.len().checked_sub(1)?;
        let from = from.unwrap_or(last);
        let found = self.lines.search(query, from, SearchDirection::Reverse);
        let found = found.ok()??;
        Some(HistoryMatch {
            index: found.idx,
            line: found.entry.into_owned(),
            at: found.pos,
        })
    }

    fn line(&self, at: usize) -> Option<String> {
        let found = self.lines.get(at, SearchDirection::Forward).ok()??;
        Some(found.entry.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_way_back_ends_where_it_began() {
        let mut past = InputHistory::in_memory();
        past.add("one");
        past.add("two");
        past.add("two");
        assert_eq!(past.back("draft").as_deref(), Some("two"));
        assert_eq!(past.back("two").as_deref(), Some("one"), "twice is once");
        assert_eq!(past.back("one"), None);
        assert_eq!(past.forward().as_deref(), Some("two"));
        assert_eq!(past.forward().as_deref(), Some("draft"));
        assert_eq!(past.forward(), None);
    }

    #[test]
    fn it_is_the_users_own_bounded_and_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("chat.history");
        let all: Vec<usize> = (0..LINES_MAX + 10).collect();
        for some in all.chunks(WAITING_MAX) {
            let (mut past, written) = InputHistory::load(file.clone());
            for number in some {
                past.add(&format!("line\n{number}"));
            }
            drop(past);
            written.write();
        }
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (mut again, _) = InputHistory::load(file);
        assert_eq!(again.lines.len(), LINES_MAX);
        assert_eq!(again.back("").as_deref(), Some("line\n1009"));
    }
}
