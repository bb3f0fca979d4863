//! The last lines of a call's output, as a terminal would show them: without colours, and with the current text of
//! overwritten lines.

use std::collections::VecDeque;

use vte::{Params, Parser, Perform};

/// Number of kept lines, which are shown after a call has failed.
const LINES_KEPT: usize = 10;

/// Number of lines that are shown during the call.
const LINES_LIVE: usize = 4;

/// Number of lines that are shown after a call has succeeded.
const LINES_BRIEF: usize = 4;

/// Maximum characters of a kept line; more than the width of a terminal.
const LINE_CHARS_MAX: usize = 500;

/// The last lines of a program's output. Control sequences are interpreted or left out.
#[derive(Default)]
pub struct OutputTail {
    parser: Parser,
    screen: TailScreen,
}

impl std::fmt::Debug for OutputTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OutputTail").field(&self.screen).finish()
    }
}

#[derive(Debug, Default)]
struct TailScreen {
    /// Number of ended lines that are not blank.
    count: usize,
    ended: VecDeque<String>,
    line: String,
    chars: usize,
    /// True after a carriage return: the next character overwrites the line.
    is_returned: bool,
}

impl OutputTail {
    /// Takes the next piece of the output.
    pub fn push(&mut self, output: &str) {
        self.parser.advance(&mut self.screen, output.as_bytes());
    }

    /// The lines to show during the call.
    pub fn live(&self) -> impl Iterator<Item = &str> {
        self.last(LINES_LIVE)
    }

    /// The lines to show of a call that failed, and the number of lines before them.
    pub fn kept(&self) -> (usize, impl Iterator<Item = &str>) {
        (
            self.count().saturating_sub(LINES_KEPT),
            self.last(LINES_KEPT),
        )
    }

    /// The lines to show of a call that succeeded, and the number of lines before them.
    pub fn brief(&self) -> (usize, impl Iterator<Item = &str>) {
        (
            self.count().saturating_sub(LINES_BRIEF),
            self.last(LINES_BRIEF),
        )
    }

    /// Number of lines that are not blank.
    fn count(&self) -> usize {
        self.screen.count + usize::from(!self.screen.line.is_empty())
    }

    fn last(&self, lines: usize) -> impl Iterator<Item = &str> {
        let open = Some(&self.screen.line).filter(|line| !line.is_empty());
        let all = self.screen.ended.len() + usize::from(open.is_some());
        let shown = self.screen.ended.iter().chain(open);
        shown.skip(all.saturating_sub(lines)).map(String::as_str)
    }
}

impl TailScreen {
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        (self.chars, self.is_returned) = (0, false);
        if line.trim().is_empty() {
            return;
        }
        self.count += 1;
        if self.ended.len() == LINES_KEPT {
            self.ended.pop_front();
        }
        self.ended.push_back(line);
    }
}

impl Perform for TailScreen {
    fn print(&mut self, c: char) {
        if std::mem::take(&mut self.is_returned) {
            self.line.clear();
            self.chars = 0;
        }
        if self.chars < LINE_CHARS_MAX {
            self.line.push(c);
            self.chars += 1;
        }
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' => self.end_line(),
            b'\r' => self.is_returned = true,
            b'\t' => self.print(' '),
            b'\x08' => {
                self.chars -= usize::from(self.line.pop().is_some());
            }
            _ => {}
        }
    }

    /// Clears the line if it is erased after a carriage return. Programs erase lines in this way to draw progress.
    fn csi_dispatch(
        &mut self,
        _params: &Params,
        _intermediates: &[u8],
        _ignore: bool,
        action: char,
    ) {
        if action == 'K' && self.is_returned {
            self.line.clear();
            self.chars = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(pieces: &[&str]) -> Vec<String> {
        let mut tail = OutputTail::default();
        for piece in pieces {
            tail.push(piece);
        }
        tail.kept().1.map(str::to_owned).collect()
    }

    #[test]
    fn lines_are_as_a_terminal_shows_them() {
        assert_eq!(kept(&["on", "e\ntw", "o"]), ["one", "two"]);
        assert_eq!(
            kept(&["\x1b[31mred\x1b[0m\r\n\n  \nb\x1b]0;title\x07"]),
            ["red", "b"]
        );
        assert_eq!(kept(&["10 %\r", "20 %\r", "30 %"]), ["30 %"]);
        assert_eq!(kept(&["10 %\r\x1b[Kdone\n"]), ["done"]);
        assert_eq!(kept(&["a\tb\x08c"]), ["a c"]);
        assert_eq!(kept(&["\x08\x08x"]), ["x"]);
        assert_eq!(kept(&[]), Vec::<String>::new());
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let lines: Vec<_> = (0..1_000).map(|line| line.to_string()).collect();
        let lines = lines.join("\n") + "\n";
        let all: Vec<_> = (990..1_000).map(|line| line.to_string()).collect();
        assert_eq!(kept(&[&lines]), all);
        let mut tail = OutputTail::default();
        tail.push(&lines);
        tail.push("open");
        assert_eq!(
            tail.live().collect::<Vec<_>>(),
            ["997", "998", "999", "open"]
        );
        let long = kept(&[&"x".repeat(1_000_000)]);
        assert_eq!(long[0].len(), LINE_CHARS_MAX);
    }
}
