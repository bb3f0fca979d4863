//! Collects the pieces of an answer into complete blocks.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::blocks::{self, TextAbove};
use super::code_block::CodeBlock;
use super::highlight::{self, HighlightBudget};
use super::long_table::LongTable;
use super::open_answer::OpenAnswer;
use super::theme::AnswerTheme;
use crate::flow::last_boundary;
use crate::{FlowLine, FlowPart, OpenText, RowBreak, Span, Style};

/// A line with more bytes than this is shown in parts. The limit allows some screens of text, and keeps the text that
/// is parsed repeatedly small.
const LINE_BYTES_MAX: usize = 4 * 1024;
/// A block with more bytes than this is shown in parts. A block is parsed again after each new line.
const BLOCK_BYTES_MAX: usize = 8 * 1024;
/// A block with at most this number of bytes is parsed at each line. A longer block is parsed only after it has grown
/// by a part of its size. Otherwise, for lines of one letter, the work would grow with the square of the number of
/// lines.
const EAGER_BYTES_MAX: usize = 256;
/// A longer block is parsed after it has grown by its size divided by this number. This growth is only a few lines, so
/// a complete block is shown soon.
const PARSED_AGAIN: usize = 8;
/// Maximum processor time for the Markdown of one piece. No stop is received during that time, and a person notices a
/// delay of a tenth of a second. A piece that a model streams takes a thousandth of this time. If a whole answer of
/// unusual Markdown takes longer, the rest of the answer is shown as plain text.
const PIECE_TIME_MAX: Duration = Duration::from_millis(30);
/// Bytes of a table after which its columns keep their widths.
const TABLE_BYTES_MAX: usize = 4 * 1024;

/// The format in which an answer is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerFormat {
    /// Headings, lists, tables and code are drawn.
    Markdown,
    /// The text is shown as the model wrote it.
    Plain,
}

/// An answer in progress.
#[derive(Debug, Clone)]
pub struct AnswerStream {
    theme: AnswerTheme,
    format: AnswerFormat,
    block: StreamBlock,
    /// The current line, which has no line end yet.
    line: String,
    above: TextAbove,
    budget: HighlightBudget,
    /// True if the last line was blank.
    ends_blank: bool,
    /// True if the current line is the rest of a line that was shown in parts.
    is_rest: bool,
    /// Size in bytes at which the incomplete block is parsed again.
    parse_at: usize,
    /// Processor time used so far for the Markdown of the current piece.
    piece_time: Duration,
}

/// The incomplete block.
#[derive(Debug, Clone)]
enum StreamBlock {
    /// Text, parsed as a whole when it is complete.
    Text(String),
    /// Code, shown line by line.
    Code(CodeBlock),
    /// A table that is too long to be drawn at once.
    Table(LongTable),
}

impl AnswerStream {
    /// Creates an answer without text.
    pub fn new(style: Style, format: AnswerFormat) -> Self {
        Self {
            theme: AnswerTheme::new(style),
            format,
            block: StreamBlock::Text(String::new()),
            line: String::new(),
            above: TextAbove::Nothing,
            budget: HighlightBudget::default(),
            ends_blank: false,
            is_rest: false,
            parse_at: 0,
            piece_time: Duration::ZERO,
        }
    }

    /// Takes the next piece. Returns the parts that are now complete.
    pub fn push(&mut self, mut text: &str) -> Vec<FlowPart> {
        let mut parts = Vec::new();
        self.piece_time = Duration::ZERO;
        while !text.is_empty() {
            let room = text.floor_char_boundary(LINE_BYTES_MAX.saturating_sub(self.line.len()));
            let end = memchr::memchr(b'\n', &text.as_bytes()[..room]);
            let (piece, rest) = text.split_at(end.unwrap_or(room));
            self.line.push_str(piece);
            text = rest;
            if end.is_some() {
                text = &text[1..];
                let line = std::mem::take(&mut self.line);
                self.end_line(line.trim_end_matches('\r'), &mut parts);
            } else if !text.is_empty() {
                self.cut_line(&mut parts);
            }
        }
        parts
    }

    /// Ends the answer, complete or not. Returns the rest.
    pub fn finish(&mut self) -> Vec<FlowPart> {
        let mut parts = Vec::new();
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_line(&line, &mut parts);
        }
        self.flush(&mut parts);
        *self = Self {
            theme: self.theme,
            ..Self::new(Style::default(), self.format)
        };
        parts
    }

    /// Returns the answer so far without an incomplete word, because other output follows below it. The answer
    /// continues below that output, in the same block of code or table.
    pub fn interrupt(&mut self) -> Vec<FlowPart> {
        let mut parts = Vec::new();
        // Without a complete word, the line may be the beginning of a sign, such as the sign of a list item or of a
        // block of code.
        let blank = self.line.rfind(' ').map(|blank| blank + 1);
        let end = blank.filter(|end| self.line[..*end].contains(char::is_alphabetic));
        if let Some(end) = end {
            let rest = self.line.split_off(end);
            let line = std::mem::replace(&mut self.line, rest);
            self.end_line(&line, &mut parts);
        }
        self.flush(&mut parts);
        self.is_rest |= end.is_some();
        parts
    }

    /// The incomplete part, to be drawn below the complete parts; `None` if this part is blank.
    pub fn open(&self) -> Option<Arc<dyn OpenText>> {
        let is_empty = match &self.block {
            StreamBlock::Text(text) => text.trim().is_empty(),
            StreamBlock::Code(_) | StreamBlock::Table(_) => true,
        };
        if is_empty && self.line.trim().is_empty() {
            return None;
        }
        Some(Arc::new(OpenAnswer::new(self.clone())))
    }

    fn end_line(&mut self, line: &str, parts: &mut Vec<FlowPart>) {
        let is_rest = std::mem::take(&mut self.is_rest);
        if is_rest && line.is_empty() {
            return;
        }
        if self.format == AnswerFormat::Plain {
            return parts.push(plain_line(line));
        }
        match &mut self.block {
            StreamBlock::Code(code) if !is_rest && code.is_end(line) => {
                self.block = StreamBlock::Text(String::new());
            }
            StreamBlock::Code(code) => {
                parts.push(code.line(line, self.theme, &mut self.budget));
            }
            StreamBlock::Table(table) => {
                if let Some(part) = table.row(line, self.theme) {
                    parts.push(part);
                } else {
                    self.block = StreamBlock::Text(String::new());
                    self.text_line(line, parts);
                }
            }
            StreamBlock::Text(_) => self.text_line(line, parts),
        }
    }

    fn text_line(&mut self, line: &str, parts: &mut Vec<FlowPart>) {
        if self.piece_time > PIECE_TIME_MAX {
            // In the rest of a piece that takes too long, only fences are recognised. Fences matter because a later
            // piece may contain the end of a block of code.
            return match CodeBlock::begin(line) {
                Some(code) => {
                    self.flush(parts);
                    self.begin_code(code, parts);
                }
                None => self.odd_line(line, parts),
            };
        }
        if line.contains("```") || line.contains("~~~") {
            // The grammars are loaded only once, and highlighting has a separate time limit. Neither counts as time of
            // this piece.
            highlight::load_grammars();
        }
        let (began, left) = (processor_time(), self.budget.left());
        self.timed_text_line(line, parts);
        let highlighting = left.saturating_sub(self.budget.left());
        let took = processor_time().saturating_sub(began);
        self.piece_time += took.saturating_sub(highlighting);
    }

    fn timed_text_line(&mut self, line: &str, parts: &mut Vec<FlowPart>) {
        if blocks::nests_too_deep(line) {
            return self.odd_line(line, parts);
        }
        let StreamBlock::Text(text) = &mut self.block else {
            return;
        };
        let is_blank = line.trim().is_empty();
        // After a line that is not blank, a line that begins with a letter belongs to the block above it.
        let may_begin = std::mem::replace(&mut self.ends_blank, is_blank)
            || !line.trim_start().starts_with(char::is_alphabetic);
        let begin = text.len();
        text.push_str(line);
        text.push('\n');
        if is_blank || !may_begin {
            if text.len() > BLOCK_BYTES_MAX {
                self.flush(parts);
            }
            return;
        }
        let code = CodeBlock::begin(line);
        if text.len() > EAGER_BYTES_MAX && text.len() < self.parse_at && code.is_none() {
            if text.len() > BLOCK_BYTES_MAX {
                self.flush(parts);
            }
            return;
        }
        let (last, is_table) = blocks::last_block(text);
        if last > 0 {
            let rest = text.split_off(last);
            let complete = std::mem::replace(text, rest);
            self.write(&complete, parts);
        }
        let StreamBlock::Text(text) = &self.block else {
            return;
        };
        self.parse_at = text.len() + text.len() / PARSED_AGAIN;
        if last == begin
            && let Some(code) = code
        {
            self.begin_code(code, parts);
        } else if is_table && text.len() > TABLE_BYTES_MAX {
            let table = LongTable::begin(text, self.theme);
            self.flush(parts);
            self.block = table.map_or(StreamBlock::Text(String::new()), StreamBlock::Table);
        } else if text.len() > BLOCK_BYTES_MAX {
            self.flush(parts);
        }
    }

    fn begin_code(&mut self, code: CodeBlock, parts: &mut Vec<FlowPart>) {
        self.blank_above(parts);
        self.block = StreamBlock::Code(code);
    }

    /// Shows a line unchanged.
    fn odd_line(&mut self, line: &str, parts: &mut Vec<FlowPart>) {
        self.flush(parts);
        self.blank_above(parts);
        parts.push(plain_line(line));
    }

    /// Shows the pending blank line above a part.
    fn blank_above(&mut self, parts: &mut Vec<FlowPart>) {
        if self.above == TextAbove::Apart {
            parts.push(blocks::blank_line(Vec::new()));
        }
        self.above = TextAbove::Adjacent;
    }

    /// Shows the beginning of a line that is too long.
    fn cut_line(&mut self, parts: &mut Vec<FlowPart>) {
        let end = last_boundary(&self.line);
        let rest = self.line.split_off(end);
        let line = std::mem::replace(&mut self.line, rest);
        self.end_line(&line, parts);
        self.flush(parts);
        self.is_rest = true;
    }

    /// Shows all of the block so far. A block of code stays open.
    fn flush(&mut self, parts: &mut Vec<FlowPart>) {
        if let StreamBlock::Text(text) = &mut self.block {
            let text = std::mem::take(text);
            self.write(&text, parts);
        }
    }

    fn write(&mut self, text: &str, parts: &mut Vec<FlowPart>) {
        self.parse_at = 0;
        let written = blocks::render(text, self.theme, self.above, &mut self.budget);
        let end = &text[text.trim_end().len()..];
        let ends_blank = end.matches('\n').count() > usize::from(!written.is_empty());
        self.above = match self.above {
            TextAbove::Nothing if written.is_empty() => TextAbove::Nothing,
            _ if ends_blank => TextAbove::Apart,
            above if written.is_empty() => above,
            _ => TextAbove::Adjacent,
        };
        parts.extend(written);
    }
}

fn plain_line(line: &str) -> FlowPart {
    FlowPart::Line(FlowLine {
        first: Vec::new(),
        rest: Vec::new(),
        text: vec![Span::plain(line)],
        breaks: RowBreak::Words,
    })
}

/// Processor time of this thread, without the time of other threads and processes.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
