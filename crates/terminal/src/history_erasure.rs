//! Removes lines from the file of the typed lines.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustyline::history::{FileHistory, History as _, SearchDirection};

use super::history::empty_history;

/// Lines of a history file, of which some are to be removed.
pub struct HistoryErasure {
    path: PathBuf,
    /// Lines for each text: a line is the text itself, or a command with the text as its argument.
    lines: HashMap<String, Vec<String>>,
    erased: HashSet<String>,
}

impl std::fmt::Debug for HistoryErasure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HistoryErasure")
            .field("path", &self.path)
            .field("erased", &self.erased.len())
            .finish_non_exhaustive()
    }
}

impl HistoryErasure {
    /// Reads the file. A missing file has no lines.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(path: PathBuf) -> io::Result<Self> {
        let mut lines: HashMap<String, Vec<String>> = HashMap::new();
        for line in lines_of(&load(&path)?) {
            let argument = line.strip_prefix('/').and_then(|line| line.split_once(' '));
            if let Some((_command, argument)) = argument {
                let argument = argument.trim().to_owned();
                lines.entry(argument).or_default().push(line.clone());
            }
            lines.entry(line.clone()).or_default().push(line);
        }
        Ok(Self {
            path,
            lines,
            erased: HashSet::new(),
        })
    }

    /// Marks the lines with this text.
    pub fn erase(&mut self, text: &str) {
        if let Some(lines) = self.lines.remove(text.trim_end()) {
            self.erased.extend(lines);
        }
    }

    /// Writes the file without the marked lines. Changes nothing if no line is marked. A line that a chat adds at the
    /// same moment may be lost.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn save(self) -> io::Result<()> {
        if self.erased.is_empty() {
            return Ok(());
        }
        let mut kept = empty_history();
        // A chat may have added lines since the first read.
        for line in lines_of(&load(&self.path)?) {
            if !self.erased.contains(&line) {
                kept.add(&line).map_err(io::Error::other)?;
            }
        }
        // A process that is killed meanwhile leaves the old file or the new one.
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        kept.save(&new).map_err(io::Error::other)?;
        fs::rename(new, &self.path)
    }
}

fn load(path: &Path) -> io::Result<FileHistory> {
    let mut lines = empty_history();
    if path.exists() {
        lines.load(path).map_err(io::Error::other)?;
    }
    Ok(lines)
}

fn lines_of(history: &FileHistory) -> Vec<String> {
    let line = |at| history.get(at, SearchDirection::Forward).ok().flatten();
    let lines = (0..history.len()).filter_map(line);
    lines.map(|found| found.entry.into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::history::InputHistory;
    use super::*;

    #[test]
    fn marked_lines_are_gone_and_the_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("chat.history");
        let add = |lines: &[&str]| {
            let (mut history, writer) = InputHistory::load(file.clone());
            for line in lines {
                history.add(line);
            }
            drop(history);
            writer.write();
        };
        add(&["my PIN\nis 4711", "/now my PIN\nis 4711", "hello"]);
        let mut erasure = HistoryErasure::read(file.clone()).unwrap();
        erasure.erase("my PIN\nis 4711");
        erasure.erase("never typed");
        add(&["later"]);
        erasure.save().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("4711"), "{text}");
        assert_eq!(lines_of(&load(&file).unwrap()), ["hello", "later"]);
    }

    #[test]
    fn missing_file_stays_missing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("chat.history");
        let mut erasure = HistoryErasure::read(file.clone()).unwrap();
        erasure.erase("hello");
        erasure.save().unwrap();
        assert!(!file.exists());
    }
}
