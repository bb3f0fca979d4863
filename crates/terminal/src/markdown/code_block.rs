//! Shows a block of code line by line.

use super::highlight::{CodeHighlighter, CodeToken, HighlightBudget};
use super::theme::AnswerTheme;
use crate::{FlowLine, FlowPart, RowBreak, Span};

/// A fenced block of code whose lines are shown one by one.
#[derive(Debug, Clone)]
pub(super) struct CodeBlock {
    /// Letter and length of the fence.
    fence: (char, usize),
    /// Number of blanks before the fence. The same number of blanks is removed from each line.
    indent: usize,
    highlighter: CodeHighlighter,
}

impl CodeBlock {
    /// Begins a block if the line is an opening fence; otherwise `None`.
    pub(super) fn begin(line: &str) -> Option<Self> {
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let info = text.trim_start_matches(mark);
        let len = text.len() - info.len();
        let is_inline = mark == '`' && info.contains('`');
        (len >= 3 && indent < 4 && !is_inline).then(|| Self {
            fence: (mark, len),
            indent,
            highlighter: CodeHighlighter::new(info.trim()),
        })
    }

    /// True if the line ends the block.
    pub(super) fn is_end(&self, line: &str) -> bool {
        let text = line.trim_start_matches(' ');
        let (mark, len) = self.fence;
        let rest = text.trim_start_matches(mark);
        line.len() - text.len() < 4 && text.len() - rest.len() >= len && rest.trim().is_empty()
    }

    /// The part for the next line.
    pub(super) fn line(
        &mut self,
        line: &str,
        theme: AnswerTheme,
        budget: &mut HighlightBudget,
    ) -> FlowPart {
        let blanks = line.len() - line.trim_start_matches(' ').len();
        let line = &line[blanks.min(self.indent)..];
        let tokens = self.highlighter.line(line, budget);
        code_line(tokens, theme, (&[], &[]))
    }
}

/// A line of code after prefixes. It is not indented, so that people can copy it.
pub(super) fn code_line(
    tokens: Vec<(&str, CodeToken)>,
    theme: AnswerTheme,
    (first, rest): (&[Span], &[Span]),
) -> FlowPart {
    let span = |(text, token): (&str, CodeToken)| Span::new(text, theme.code(token));
    FlowPart::Line(FlowLine {
        first: first.to_vec(),
        rest: rest.to_vec(),
        text: tokens.into_iter().map(span).collect(),
        breaks: RowBreak::Anywhere,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_begin_and_end_a_block() {
        let block = CodeBlock::begin("  ```rust").unwrap();
        assert!(block.is_end("```") && block.is_end("````  "));
        assert!(!block.is_end("``") && !block.is_end("``` x") && !block.is_end("    ```"));
        assert!(CodeBlock::begin("```a`").is_none() && CodeBlock::begin("``").is_none());
        assert!(CodeBlock::begin("~~~ a`").is_some());
        assert!(!CodeBlock::begin("~~~").unwrap().is_end("```"));
    }
}
