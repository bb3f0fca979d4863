//! `grep`: lines by content.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use allstop_core::Effect;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::FileError;
use super::open;
use super::tool::{FileAnswer, FileTool, StopCheck};
use super::walk::{WalkItem, walk};
use super::workspace::{FolderAccess, LocatedPath, Workspace};
use crate::file_state::FileState;
use crate::names;

/// Maximum number of lines in one answer. The search ends at this number. If more lines match, the pattern is too
/// broad.
const LINES_MAX: usize = 200;
/// Maximum size of a shown line, in bytes.
const LINE_BYTES_MAX: usize = 300;
/// Maximum size of a searched line, in bytes. A limit is needed because the line is held in memory. A file with a
/// longer line is left out, and the answer counts such files.
const HEAP_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Arguments of `grep`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GrepArguments {
    /// A regular expression, matched within a line. `(?i)` at its start ignores case.
    pattern: String,
    /// The file or folder to search, relative to the working directory; the working directory by default.
    path: Option<String>,
}

impl FileTool for GrepArguments {
    const NAME: &'static str = names::GREP;
    const DESCRIPTION: &'static str = "Searches files for a regular expression; each match is `path:line:text`. \
        Binary files and files that .gitignore excludes are skipped.";
    const EFFECT: Effect = Effect::ReadOnly;

    fn run(
        self,
        workspace: &Workspace,
        stop: &StopCheck,
        _: Option<FileState>,
    ) -> Result<FileAnswer, FileError> {
        let located = workspace.locate(self.path.as_deref().unwrap_or("."), FolderAccess::Read)?;
        let matcher = RegexMatcherBuilder::new()
            .line_terminator(Some(b'\n'))
            .build(&self.pattern)
            .map_err(|error| FileError::Pattern(error.to_string()))?;
        let mut search = LineSearch::new(matcher, stop);
        match open::file(&located) {
            Ok((file, _)) => {
                // The caller asked for this one file, so its error is returned as the error of the call.
                search.file(file, &located.shown).map_err(|source| {
                    let path = located.shown.clone();
                    FileError::Io {
                        action: "could not search",
                        path,
                        source,
                    }
                })?;
            }
            Err(FileError::IsFolder { .. }) => walk(&located, stop, |item| {
                match item {
                    WalkItem::File(path) => search.file_of_walk(&path, &located, workspace),
                    WalkItem::Unreadable => search.unread += 1,
                }
                Ok(search.lines.len() < LINES_MAX)
            })?,
            Err(error) => return Err(error),
        }
        stop.check()?;
        Ok(search.into_text().into())
    }
}

struct LineSearch<'a> {
    searcher: Searcher,
    matcher: RegexMatcher,
    stop: &'a StopCheck,
    lines: Vec<String>,
    unread: usize,
}

impl<'a> LineSearch<'a> {
    fn new(matcher: RegexMatcher, stop: &'a StopCheck) -> Self {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(HEAP_BYTES_MAX))
            // Files are never mapped, because a file that shrinks while it is mapped causes SIGBUS.
            .memory_map(MmapChoice::never())
            .build();
        Self {
            searcher,
            matcher,
            stop,
            lines: Vec::new(),
            unread: 0,
        }
    }

    fn file_of_walk(&mut self, path: &Path, walked: &LocatedPath, workspace: &Workspace) {
        let shown = workspace.shown(path);
        let Ok(below) = path.strip_prefix(&walked.root) else {
            return;
        };
        let names = below.iter().map(OsStr::to_owned).collect();
        let located = LocatedPath {
            root: walked.root.clone(),
            names,
            shown,
            reserved: Arc::clone(&walked.reserved),
        };
        let is_read = match open::file(&located) {
            Ok((file, _)) => self.file(file, &located.shown).is_ok(),
            // A reserved file, which file tools must not access, is skipped like a binary file.
            Err(FileError::Reserved { .. }) => true,
            Err(_) => false,
        };
        if !is_read {
            self.unread += 1;
        }
    }

    fn file(&mut self, file: File, shown: &str) -> io::Result<()> {
        let reader = StoppableReader {
            file,
            stop: self.stop,
        };
        let sink = MatchingLines {
            lines: &mut self.lines,
            shown,
        };
        self.searcher.search_reader(&self.matcher, reader, sink)
    }

    fn into_text(mut self) -> String {
        if self.lines.is_empty() {
            self.lines.push("[no line matches]".to_owned());
        } else if self.lines.len() >= LINES_MAX {
            self.lines.push(format!(
                "[only the first {LINES_MAX} lines are shown; narrow the pattern or the path]"
            ));
        }
        if self.unread > 0 {
            self.lines.push(format!(
                "[{} files or folders could not be searched]",
                self.unread
            ));
        }
        self.lines.join("\n")
    }
}

/// A reader that fails after the call was stopped, so that a search of gigabytes ends soon after the stop.
struct StoppableReader<'a> {
    file: File,
    stop: &'a StopCheck,
}

impl io::Read for StoppableReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_stopped() {
            return Err(io::Error::other("stopped"));
        }
        self.file.read(buffer)
    }
}

struct MatchingLines<'a> {
    lines: &'a mut Vec<String>,
    shown: &'a str,
}

impl Sink for MatchingLines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let line = found.bytes().trim_ascii_end();
        let number = found.line_number().unwrap_or_default();
        let start = line.get(..LINE_BYTES_MAX);
        let text = OsStr::from_bytes(start.unwrap_or(line)).to_string_lossy();
        let cut = if start.is_some() && line.len() > LINE_BYTES_MAX {
            " …"
        } else {
            ""
        };
        self.lines
            .push(format!("{}:{number}:{text}{cut}", self.shown));
        Ok(self.lines.len() < LINES_MAX)
    }
}
