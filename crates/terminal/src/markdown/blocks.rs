//! Converts Markdown blocks into the parts of a text.

use std::ops::Range;

use anstyle::{Effects, Style as TextStyle};
use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::code_block::code_line;
use super::highlight::{CodeHighlighter, HighlightBudget};
use super::inline::InlineText;
use super::theme::AnswerTheme;
use crate::{CellAlign, FlowLine, FlowPart, FlowTable, RowBreak, Span};

/// Maximum nesting of lists and quotes. Lists and quotes that are nested more deeply are drawn at this depth.
const DEPTH_MAX: usize = 12;
/// Maximum number of lists and quotes that one line may begin. A line that begins more of them is not Markdown for
/// human readers. The parser goes through all open lists and quotes at each line, and drawing them takes as much time
/// again.
const BEGUN_MAX: usize = 64;

/// Content above a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextAbove {
    /// No part of the answer.
    Nothing,
    /// The last row of a part, without a blank line.
    Adjacent,
    /// A part of the answer, and a blank line.
    Apart,
}

fn parser(source: &str) -> Parser<'_> {
    Parser::new_ext(
        source,
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS,
    )
}

/// Returns the start of the last block of a text, and true if that block is a table. An item of a list counts as a
/// block. Later text cannot change anything before the start.
pub(super) fn last_block(source: &str) -> (usize, bool) {
    let mut depth = 0;
    let mut last = (0, false);
    let mut in_list = false;
    for (event, range) in parser(source).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                let is_item = depth == 1 && in_list && matches!(tag, Tag::Item);
                if depth == 0 {
                    in_list = matches!(tag, Tag::List(_));
                }
                if depth == 0 || is_item {
                    last = (range.start, matches!(tag, Tag::Table(_)));
                }
                depth += 1;
            }
            Event::End(_) => depth -= 1,
            _ if depth == 0 => last = (range.start, false),
            _ => {}
        }
    }
    let line = source[..last.0].rfind('\n').map_or(0, |end| end + 1);
    (line, last.1)
}

/// True if a line begins more lists and quotes than can be drawn in time.
pub(super) fn nests_too_deep(line: &str) -> bool {
    let mut rest = line;
    for _ in 0..=BEGUN_MAX {
        match after_sign(rest.trim_start_matches([' ', '\t'])) {
            Some(text) => rest = text,
            None => return false,
        }
    }
    true
}

/// The text after the sign of a quote or of an item; `None` if the text begins with neither.
fn after_sign(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('>') {
        return Some(quoted);
    }
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let item = if number.len() < text.len() {
        number.strip_prefix(['.', ')'])
    } else {
        text.strip_prefix(['-', '+', '*'])
    };
    item?.strip_prefix([' ', '\t'])
}

/// Renders the parts of a text.
pub(super) fn render(
    source: &str,
    theme: AnswerTheme,
    above: TextAbove,
    budget: &mut HighlightBudget,
) -> Vec<FlowPart> {
    let mut blocks = BlockWriter {
        source,
        theme,
        parts: Vec::new(),
        containers: Vec::new(),
        lists: Vec::new(),
        line: InlineText::new(theme),
        code: None,
        budget,
        table: None,
        above,
        depth: 0,
        shown_until: 0,
        is_html: false,
    };
    for (event, range) in parser(source).into_offset_iter() {
        blocks.event(event, range);
    }
    blocks.end_line();
    blocks.show_gap(source.len());
    blocks.parts
}

/// A block that contains the text: an item of a list, or a quote.
#[derive(Debug)]
struct Container {
    first: Span,
    rest: Span,
    is_begun: bool,
}

struct BlockWriter<'a> {
    source: &'a str,
    theme: AnswerTheme,
    parts: Vec<FlowPart>,
    containers: Vec<Container>,
    /// Number of the next item of each open list.
    lists: Vec<Option<u64>>,
    line: InlineText,
    code: Option<CodeHighlighter>,
    budget: &'a mut HighlightBudget,
    table: Option<FlowTable>,
    above: TextAbove,
    depth: usize,
    /// End of the last block in the source. Text between two blocks is the definition of a link, and is shown
    /// unchanged.
    shown_until: usize,
    is_html: bool,
}

impl BlockWriter<'_> {
    fn event(&mut self, event: Event<'_>, range: Range<usize>) {
        if self.depth == 0 && !matches!(event, Event::End(_)) {
            self.show_gap(range.start);
        }
        match event {
            Event::Start(tag) => {
                self.depth += 1;
                self.start(tag, &range);
            }
            Event::End(tag) => {
                self.depth -= 1;
                self.end(tag);
                if self.depth == 0 {
                    self.shown_until = range.end;
                }
            }
            Event::Text(text) | Event::Html(text) => self.text(&text),
            Event::Code(text) => self.line.push_code(&text),
            Event::InlineHtml(text) => self.line.push_dim(&text),
            // Models end a line where they want a new line.
            Event::SoftBreak | Event::HardBreak => self.write_line(RowBreak::Words),
            Event::Rule => {
                self.blank_before(range.start);
                let (prefix, _) = self.prefixes();
                let dash = self.theme.dash();
                self.parts.push(FlowPart::Rule { prefix, dash });
                self.shown_until = range.end;
            }
            Event::TaskListMarker(done) => {
                let task = self.theme.task(done);
                self.line.push_span(task);
            }
            Event::FootnoteReference(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.text(&text);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>, range: &Range<usize>) {
        let is_inline = matches!(
            tag,
            Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Link { .. } | Tag::Image { .. }
        );
        let is_in_table = matches!(tag, Tag::TableHead | Tag::TableRow | Tag::TableCell);
        if !is_inline && !is_in_table {
            self.end_line();
            self.blank_before(range.start);
        }
        match tag {
            Tag::Emphasis => self.line.begin(Effects::ITALIC),
            Tag::Strong => self.line.begin(Effects::BOLD),
            Tag::Strikethrough => self.line.begin(Effects::STRIKETHROUGH),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.line.begin_link(&dest_url);
            }
            Tag::Heading { level, .. } => self.line.set_base(self.theme.heading(level_of(level))),
            Tag::CodeBlock(kind) => {
                let info = match &kind {
                    CodeBlockKind::Fenced(info) => info,
                    CodeBlockKind::Indented => "",
                };
                self.code = Some(CodeHighlighter::new(info));
            }
            Tag::HtmlBlock => self.is_html = true,
            Tag::List(number) => self.lists.push(number),
            Tag::Item => {
                let sign = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let sign = Span::new(&format!("{number}. "), self.theme.dim());
                        *number = number.saturating_add(1);
                        sign
                    }
                    _ => self.theme.bullet(),
                };
                let rest = Span::plain(&" ".repeat(sign.text().chars().count()));
                self.enter(sign, rest);
            }
            Tag::BlockQuote(_) => self.enter(self.theme.quote(), self.theme.quote()),
            Tag::Table(aligns) => {
                let align = |align: &Alignment| match align {
                    Alignment::None | Alignment::Left => CellAlign::Left,
                    Alignment::Center => CellAlign::Centre,
                    Alignment::Right => CellAlign::Right,
                };
                self.table = Some(FlowTable {
                    has_header: true,
                    aligns: aligns.iter().map(align).collect(),
                    lines: self.theme.table_lines(),
                    ..FlowTable::default()
                });
            }
            Tag::TableRow => self
                .table
                .iter_mut()
                .for_each(|table| table.rows.push(Vec::new())),
            Tag::TableHead => self.line.set_base(self.theme.heading(3)),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => self.line.end(),
            TagEnd::Link | TagEnd::Image => self.line.end_link(),
            TagEnd::Heading(_) => {
                self.end_line();
                self.line.set_base(TextStyle::new());
            }
            TagEnd::CodeBlock => self.code = None,
            TagEnd::HtmlBlock => {
                self.end_line();
                self.is_html = false;
            }
            TagEnd::List(_) => {
                self.end_line();
                self.lists.pop();
            }
            TagEnd::Item | TagEnd::BlockQuote(_) => {
                self.end_line();
                if self
                    .containers
                    .last()
                    .is_some_and(|container| !container.is_begun)
                {
                    self.write_line(RowBreak::Words);
                }
                self.containers.pop();
            }
            TagEnd::TableCell => {
                let cell = self.line.take();
                if let Some(table) = &mut self.table {
                    let row = table.rows.last_mut();
                    row.unwrap_or(&mut table.header).push(cell);
                }
            }
            TagEnd::TableHead => self.line.set_base(TextStyle::new()),
            TagEnd::Table => {
                if let Some(mut table) = self.table.take() {
                    table.measure();
                    table.prefix = self.prefixes().1;
                    self.parts.push(FlowPart::Table(table));
                }
            }
            _ => self.end_line(),
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(mut code) = self.code.take() {
            for line in text.lines() {
                let (first, rest) = self.prefixes();
                let tokens = code.line(line, self.budget);
                let part = code_line(tokens, self.theme, (&first, &rest));
                self.parts.push(part);
            }
            self.code = Some(code);
        } else if self.is_html {
            for line in text.lines() {
                self.line.push(line);
                self.write_line(RowBreak::Words);
            }
        } else {
            self.line.push(text);
        }
    }

    fn enter(&mut self, first: Span, rest: Span) {
        let is_begun = false;
        self.containers.push(Container {
            first,
            rest,
            is_begun,
        });
    }

    /// Prefix of the next row, and prefix of the rows after it.
    fn prefixes(&mut self) -> (Vec<Span>, Vec<Span>) {
        let mut first = Vec::new();
        let mut rest = Vec::new();
        for (depth, container) in self.containers.iter_mut().enumerate() {
            let is_begun = std::mem::replace(&mut container.is_begun, true);
            if depth >= DEPTH_MAX {
                continue;
            }
            first.push(
                if is_begun {
                    &container.rest
                } else {
                    &container.first
                }
                .clone(),
            );
            rest.push(container.rest.clone());
        }
        (first, rest)
    }

    fn end_line(&mut self) {
        if !self.line.is_empty() {
            self.write_line(RowBreak::Words);
        }
    }

    fn write_line(&mut self, breaks: RowBreak) {
        let text = self.line.take();
        let (first, rest) = self.prefixes();
        let line = FlowLine {
            first,
            rest,
            text,
            breaks,
        };
        self.parts.push(FlowPart::Line(line));
    }

    /// Writes an empty line if the source has an empty line before the block.
    fn blank_before(&mut self, start: usize) {
        let before = self.source[..start].trim_end_matches([' ', '\t', '>', '\n', '\r']);
        let ends = self.source[before.len()..start].matches('\n').count();
        let is_apart = match (self.parts.last(), self.above) {
            (Some(last), _) => ends >= 2 && !is_blank(last),
            (None, TextAbove::Nothing) => false,
            (None, TextAbove::Adjacent) => ends >= 1,
            (None, TextAbove::Apart) => true,
        };
        if !is_apart {
            return;
        }
        let begun = self
            .containers
            .iter()
            .take_while(|container| container.is_begun)
            .take(DEPTH_MAX);
        let prefix: Vec<Span> = begun.map(|container| container.rest.clone()).collect();
        self.parts.push(blank_line(prefix));
    }

    /// Shows source text outside of blocks: the definition of a link.
    fn show_gap(&mut self, end: usize) {
        let gap = self.source.get(self.shown_until..end).unwrap_or_default();
        let begin = self.shown_until;
        self.shown_until = self.shown_until.max(end);
        for line in gap.lines() {
            if line.trim().is_empty() {
                continue;
            }
            let at = line.as_ptr() as usize - self.source.as_ptr() as usize;
            self.blank_before(at.max(begin));
            self.line.push_dim(line.trim());
            self.write_line(RowBreak::Words);
        }
    }
}

/// An empty line after a prefix.
pub(super) fn blank_line(prefix: Vec<Span>) -> FlowPart {
    FlowPart::Line(FlowLine {
        first: prefix.clone(),
        rest: prefix,
        text: Vec::new(),
        breaks: RowBreak::Words,
    })
}

fn is_blank(part: &FlowPart) -> bool {
    matches!(part, FlowPart::Line(line) if line.text.is_empty())
}

fn level_of(level: HeadingLevel) -> u8 {
    level as u8
}
