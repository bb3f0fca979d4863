//! The printed and the unprinted part of a step's answer.
//!
//! Deltas may be missed: then nothing more of the step is printed until its whole answer is there, because what comes
//! after a hole is not what the model said.

/// The answer of one step, as far as it was printed.
#[derive(Debug, Default)]
pub(super) struct StepText {
    printed: String,
    /// Something after `printed` was missed.
    hole: bool,
    /// All of it was printed.
    whole: bool,
}

/// Next output, once the whole answer is there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest<'a> {
    /// Print this behind what is there.
    Append(&'a str),
    /// The printed text is not the beginning of the answer: mark it as discarded and print all of this.
    Replace(&'a str),
}

impl StepText {
    /// True if a delta may be printed now.
    pub(super) fn takes_delta(&self) -> bool {
        !self.hole && !self.whole
    }

    /// A delta was printed.
    pub(super) fn printed(&mut self, delta: &str) {
        self.printed.push_str(delta);
    }

    /// All of it was printed.
    pub(super) fn printed_whole(&mut self, whole: &str) {
        *self = Self {
            printed: whole.to_owned(),
            hole: false,
            whole: true,
        };
    }

    /// A delta was missed, or many, or the beginning of another step.
    pub(super) fn missed(&mut self) {
        self.hole = true;
    }

    /// Forgets the step, and says whether something of it was printed that is not an answer.
    pub(super) fn discard(&mut self) -> bool {
        let was = !self.printed.is_empty() && !self.whole;
        *self = Self::default();
        was
    }

    /// Unprinted part, once the whole answer is there.
    pub(super) fn rest<'a>(&self, whole: &'a str) -> Rest<'a> {
        match whole.strip_prefix(self.printed.as_str()) {
            Some("") if self.whole => Rest::Append(""),
            // Of another step: its beginning was missed.
            _ if self.whole => Rest::Append(whole),
            Some(rest) => Rest::Append(rest),
            None => Rest::Replace(whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_is_filled_by_the_whole_answer() {
        let mut text = StepText::default();
        assert!(text.takes_delta());
        text.printed("Hello");
        text.missed();
        assert!(!text.takes_delta());
        assert_eq!(text.rest("Hello, world"), Rest::Append(", world"));
    }

    #[test]
    fn another_answer_replaces_what_was_printed() {
        let mut text = StepText::default();
        text.printed("Hullo");
        assert_eq!(text.rest("Hello"), Rest::Replace("Hello"));
        assert!(text.discard());
        assert!(!text.discard());
        assert_eq!(text.rest("Hello"), Rest::Append("Hello"));
    }

    #[test]
    fn an_answer_that_stands_there_is_neither_repeated_nor_discarded() {
        let mut text = StepText::default();
        text.printed_whole("Hello");
        text.missed();
        assert_eq!(text.rest("Hello"), Rest::Append(""));
        assert_eq!(text.rest("Hello again"), Rest::Append("Hello again"));
        assert!(!text.discard());
    }
}
