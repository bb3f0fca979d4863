//! The text of a line while its styles are collected.

use anstyle::{Effects, Style as TextStyle};

use super::theme::AnswerTheme;
use crate::Span;

/// Spans of the current line.
#[derive(Debug)]
pub(super) struct InlineText {
    theme: AnswerTheme,
    base: TextStyle,
    /// Effects of each open style, including the effects of the styles around it.
    effects: Vec<Effects>,
    spans: Vec<Span>,
    /// Start of each open link, and its target.
    links: Vec<(usize, String)>,
}

impl InlineText {
    pub(super) fn new(theme: AnswerTheme) -> Self {
        Self {
            theme,
            base: TextStyle::new(),
            effects: Vec::new(),
            spans: Vec::new(),
            links: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Sets the style of the whole line.
    pub(super) fn set_base(&mut self, base: TextStyle) {
        self.base = base;
    }

    pub(super) fn begin(&mut self, effects: Effects) {
        let around = self.effects.last().copied().unwrap_or_default();
        self.effects.push(around | effects);
    }

    pub(super) fn end(&mut self) {
        self.effects.pop();
    }

    fn style(&self, base: TextStyle) -> TextStyle {
        let effects = self.effects.last().copied().unwrap_or_default();
        base.effects(base.get_effects() | effects)
    }

    pub(super) fn push(&mut self, text: &str) {
        self.spans.push(Span::new(text, self.style(self.base)));
    }

    pub(super) fn push_span(&mut self, span: Span) {
        self.spans.push(span);
    }

    pub(super) fn push_code(&mut self, text: &str) {
        self.spans
            .push(Span::new(text, self.style(self.theme.inline_code())));
    }

    pub(super) fn push_dim(&mut self, text: &str) {
        self.spans.push(Span::new(text, self.theme.dim()));
    }

    pub(super) fn begin_link(&mut self, target: &str) {
        self.links.push((self.spans.len(), target.to_owned()));
        self.begin(Effects::UNDERLINE);
    }

    /// Ends a link or an image. The target of the link follows the text, so the text cannot hide the real target.
    pub(super) fn end_link(&mut self) {
        self.end();
        let Some((at, target)) = self.links.pop() else {
            return;
        };
        let shown = self.spans.get(at..).unwrap_or_default();
        let address = target.strip_prefix("mailto:");
        let is_shown = is_text(&target, shown) || address.is_some_and(|to| is_text(to, shown));
        match target.is_empty() || is_shown {
            true => {}
            false if shown.iter().all(|span| span.text().is_empty()) => self.push_dim(&target),
            false => self.push_dim(&format!(" ({target})")),
        }
        if let Some(link) = self.theme.link(&target) {
            let spans = self.spans.get_mut(at..).unwrap_or_default();
            for span in spans {
                span.set_link(&link);
            }
        }
    }

    /// Takes the spans so far. The styles stay open.
    pub(super) fn take(&mut self) -> Vec<Span> {
        for (at, _) in &mut self.links {
            *at = 0;
        }
        std::mem::take(&mut self.spans)
    }
}

/// True if spans have this text. The comparison stops at the first difference, because a text may be in many nested
/// links.
fn is_text(text: &str, spans: &[Span]) -> bool {
    let rest = spans
        .iter()
        .try_fold(text, |rest, span| rest.strip_prefix(span.text()));
    rest == Some("")
}
