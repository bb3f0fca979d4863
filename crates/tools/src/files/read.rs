//! `read`: a part of a text file, an image, or the entries of a folder.

use std::fs::File;
use std::io::{BufRead, BufReader};

use allstop_core::image::{IMAGE_BYTES_MAX, ImageType};
use allstop_core::{Effect, Image, ImageError};
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::FileError;
use super::tool::{FileAnswer, FileTool, StopCheck};
use super::workspace::{FolderAccess, Workspace};
use super::{list, open};
use crate::file_state::FileState;
use crate::names;

/// Default maximum number of lines in one answer: most source files fit.
const LINES_DEFAULT: u64 = 2_000;
/// Maximum size of one answer, in bytes: about 16,000 tokens, which fit into the context of a model.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of a shown line, in bytes. A limit is needed because minified files have lines of megabytes.
const LINE_BYTES_MAX: usize = 4 * 1024;
/// Number of bytes at the start that are searched for a NUL. A NUL there marks a binary file, as in grep and git.
const SNIFF_BYTES: usize = 8 * 1024;
/// Size of one read, in bytes. The tool checks for a stop after each read.
const BUFFER_BYTES: usize = 64 * 1024;

/// Arguments of `read`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    /// The file, relative to the working directory.
    path: String,
    /// The first line to read, counted from 1.
    #[schemars(range(min = 1))]
    offset: Option<u64>,
    /// The maximum number of lines to read.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

impl FileTool for ReadArguments {
    const NAME: &'static str = names::READ;
    const DESCRIPTION: &'static str = "Reads a text file, from line `offset` on if given. Long files come in parts: \
        the end of the answer names the offset of the next part. Also reads an image (PNG, JPEG, GIF or WebP): the \
        answer contains the image. Lists a folder.";
    const EFFECT: Effect = Effect::ReadOnly;

    fn run(
        self,
        workspace: &Workspace,
        stop: &StopCheck,
        _: Option<FileState>,
    ) -> Result<FileAnswer, FileError> {
        let located = workspace.locate(&self.path, FolderAccess::Read)?;
        let (file, stat) = match open::file(&located) {
            Err(FileError::IsFolder { .. }) => return list::entries(&located, stop),
            opened => opened?,
        };
        let path = located.shown;
        let io = |source| FileError::Io {
            action: "could not read",
            path: path.clone(),
            source,
        };
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);

        let sniffed = reader.fill_buf().map_err(io)?;
        if sniffed.is_empty() {
            return Ok("[the file is empty]".to_owned().into());
        }
        if ImageType::detect(sniffed).is_some() {
            let bytes = u64::try_from(stat.st_size).unwrap_or_default();
            return read_image(reader, bytes, &path, stop);
        }
        if memchr::memchr(0, sniffed.get(..SNIFF_BYTES).unwrap_or(sniffed)).is_some() {
            return Err(FileError::Binary {
                path,
                bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            });
        }
        let offset = self.offset.unwrap_or(1).max(1);
        let mut range = LineRange::new(offset, self.limit.unwrap_or(LINES_DEFAULT));
        loop {
            stop.check()?;
            let buffer = reader.fill_buf().map_err(io)?;
            let len = buffer.len();
            if len == 0 || range.take(buffer) == ReadProgress::Complete {
                break;
            }
            reader.consume(len);
        }
        if range.lines_taken == 0 && range.kept.is_empty() {
            return Err(FileError::PastTheEnd {
                path,
                lines: range.lines_seen(),
                offset,
            });
        }
        Ok(range.into_text().into())
    }
}

/// Reads an image that the file contains. The answer describes the image for people.
fn read_image(
    mut reader: BufReader<File>,
    bytes: u64,
    path: &str,
    stop: &StopCheck,
) -> Result<FileAnswer, FileError> {
    let failed = |error| FileError::Image {
        path: path.to_owned(),
        error,
    };
    let mut data = Vec::new();
    loop {
        stop.check()?;
        let buffer = reader.fill_buf().map_err(|source| FileError::Io {
            action: "could not read",
            path: path.to_owned(),
            source,
        })?;
        if buffer.is_empty() {
            break;
        }
        data.extend_from_slice(buffer);
        if data.len() > IMAGE_BYTES_MAX {
            let bytes = bytes.max(data.len() as u64);
            return Err(failed(ImageError::TooLarge { bytes }));
        }
        let len = buffer.len();
        reader.consume(len);
    }
    let image = Image::new(data).map_err(failed)?;
    Ok(FileAnswer {
        images: image.clone().into(),
        ..image.info().to_string().into()
    })
}

#[derive(PartialEq, Eq)]
enum ReadProgress {
    More,
    Complete,
}

/// The requested lines of a file whose content arrives in pieces of any size.
struct LineRange {
    first: u64,
    limit: u64,
    line: u64,
    line_bytes: u64,
    /// Number of omitted bytes of the current line.
    line_cut: u64,
    lines_taken: u64,
    kept: Vec<u8>,
    /// True if the answer ends before the end of the file.
    more: bool,
}

impl LineRange {
    fn new(first: u64, limit: u64) -> Self {
        Self {
            first,
            limit,
            line: 1,
            line_bytes: 0,
            line_cut: 0,
            lines_taken: 0,
            kept: Vec::new(),
            more: false,
        }
    }

    fn take(&mut self, buffer: &[u8]) -> ReadProgress {
        let mut rest = buffer;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest);
            let (piece, after) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
            rest = after;
            let wanted = self.line >= self.first;
            if wanted && (self.lines_taken >= self.limit || self.kept.len() >= ANSWER_BYTES_MAX) {
                self.more = true;
                return ReadProgress::Complete;
            }
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            if wanted {
                let room = LINE_BYTES_MAX.saturating_sub(self.line_bytes as usize);
                let shown = text.get(..room).unwrap_or(text);
                self.kept.extend_from_slice(shown);
                self.line_cut += (text.len() - shown.len()) as u64;
            }
            self.line_bytes += text.len() as u64;
            if end.is_some() {
                if wanted {
                    self.end_line();
                }
                self.line += 1;
                self.line_bytes = 0;
            }
        }
        ReadProgress::More
    }

    fn end_line(&mut self) {
        if self.line_cut > 0 {
            self.kept.extend_from_slice(
                format!(" [… {} more bytes in this line]", self.line_cut).as_bytes(),
            );
            self.line_cut = 0;
        }
        self.kept.push(b'\n');
        self.lines_taken += 1;
    }

    /// Number of lines seen. An unfinished last line counts if it has at least one byte.
    fn lines_seen(&self) -> u64 {
        if self.line_bytes > 0 {
            self.line
        } else {
            self.line - 1
        }
    }

    fn into_text(mut self) -> String {
        if self.line_cut > 0 {
            self.end_line();
        }
        let text = String::from_utf8(self.kept).unwrap_or_else(|error| {
            let lossy = String::from_utf8_lossy(error.as_bytes()).into_owned();
            lossy + "\n[some bytes are not UTF-8; they are shown as \u{fffd}]"
        });
        if !self.more {
            return text;
        }
        let (first, next) = (self.first, self.first + self.lines_taken);
        format!(
            "{text}\n[lines {first} to {}; continue with offset {next}]",
            next - 1
        )
    }
}
