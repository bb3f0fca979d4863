//! The status line: one row at the bottom that never wraps. If the items have no room, the least important items are
//! left out.

use std::time::Instant;

use super::duration::whole_seconds;
use super::text::{Style, Styled, TextRole, styled};

/// The items of a status, from left to right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusLine {
    /// The items.
    pub items: Vec<StatusItem>,
    /// Colours and symbols.
    pub style: Style,
}

/// An item of a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusItem {
    /// The text.
    pub text: Styled,
    /// Order of removal if there is no room: the item with the highest rank is removed first.
    pub rank: u8,
    /// Short form, which replaces the text if there is no room. Its rank decides the order, like a removal.
    pub short: Option<(u8, Styled)>,
    /// If set, the time since this moment is shown after the text.
    pub since: Option<Instant>,
}

impl StatusLine {
    /// True if the status changes with time.
    pub(super) fn ticks(&self) -> bool {
        self.items.iter().any(|item| item.since.is_some())
    }

    /// The row, for tests.
    #[cfg(any(test, feature = "test-screen"))]
    pub fn shown(&self, columns: usize) -> String {
        self.draw(Instant::now(), columns).shown().to_owned()
    }

    pub(super) fn draw(&self, now: Instant, columns: usize) -> Styled {
        let room = columns.saturating_sub(1);
        let mut items: Vec<ShownItem> = self
            .items
            .iter()
            .map(|item| {
                let time = item
                    .since
                    .map(|since| whole_seconds(now.saturating_duration_since(since)));
                ShownItem {
                    text: styled![item.text, time.unwrap_or_default()],
                    rank: item.rank,
                    short: item.short.clone(),
                }
            })
            .filter(|item| !item.text.is_empty())
            .collect();
        let between = self.style.pick(" · ", " - ");
        let width = |items: &[ShownItem]| {
            let text: usize = items.iter().map(|item| item.text.widest()).sum();
            text + items.len().saturating_sub(1) * 3
        };
        while width(&items) > room {
            let ranks = items.iter().map(ShownItem::next_rank).enumerate();
            let Some((last, _)) = ranks.max_by_key(|(at, rank)| (*rank, *at)) else {
                break;
            };
            if let Some((_, short)) = items.get_mut(last).and_then(|item| item.short.take()) {
                if let Some(item) = items.get_mut(last) {
                    item.text = short;
                }
            } else if items.len() > 1 {
                items.remove(last);
            } else {
                break;
            }
        }
        let mut line = Styled::default();
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                line.push(between);
            }
            line.push(&item.text);
        }
        let line = line.cut(room, self.style.pick("…", "..."));
        self.style.paint(TextRole::Dim, line)
    }
}

/// An item while the row is made.
struct ShownItem {
    text: Styled,
    rank: u8,
    short: Option<(u8, Styled)>,
}

impl ShownItem {
    /// Rank of the next change of the item: to its short form, then its removal.
    fn next_rank(&self) -> u8 {
        self.short.as_ref().map_or(self.rank, |(rank, _)| *rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(texts: &[(&str, u8)]) -> StatusLine {
        let item = |(text, rank): &(&str, u8)| StatusItem {
            text: (*text).into(),
            rank: *rank,
            short: None,
            since: None,
        };
        let items = texts.iter().map(item).collect();
        StatusLine {
            items,
            style: Style::new(false, true),
        }
    }

    #[test]
    fn least_important_parts_are_omitted_first() {
        let line = status(&[
            ("gpt-5-mini", 1),
            ("~/work/allstop", 3),
            ("ask", 0),
            ("1.2k in", 2),
        ]);
        let at = |columns| line.draw(Instant::now(), columns).shown().to_owned();
        assert_eq!(at(80), "gpt-5-mini · ~/work/allstop · ask · 1.2k in");
        assert_eq!(at(38), "gpt-5-mini · ask · 1.2k in");
        assert_eq!(at(20), "gpt-5-mini · ask");
        assert_eq!(at(10), "ask");
        assert_eq!(at(3), "a…");
        assert!(status(&[("你好你好", 0)]).draw(Instant::now(), 6).widest() < 6);
    }

    #[test]
    fn short_forms_come_before_the_removal_of_important_items() {
        let mut line = status(&[("ask (Shift-Tab)", 0), ("gpt-5-mini", 2), ("~/work", 4)]);
        line.items[0].short = Some((3, "ask".into()));
        let at = |columns| line.draw(Instant::now(), columns).shown().to_owned();
        assert_eq!(at(40), "ask (Shift-Tab) · gpt-5-mini · ~/work");
        assert_eq!(at(30), "ask (Shift-Tab) · gpt-5-mini");
        assert_eq!(at(20), "ask · gpt-5-mini");
        assert_eq!(at(10), "ask");
    }
}
