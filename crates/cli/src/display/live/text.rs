//! The printed and the unprinted part of a step's answer.
//!
//! A step is one model call with its tool calls; its answer arrives in pieces (deltas). If deltas are missed, no more
//! text of the step is printed until the whole answer is available: text after a gap would misrepresent the answer.

/// Printed part of one step's answer.
#[derive(Debug, Default)]
pub(super) struct StepText {
    printed: String,
    /// True if text after `printed` was missed.
    hole: bool,
    /// True if the whole answer was printed.
    whole: bool,
}

/// Text to print when the whole answer is available.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest<'a> {
    /// Append this text to the printed text.
    Append(&'a str),
    /// The printed text is not the beginning of the answer: mark it as discarded and print this whole answer.
    Replace(&'a str),
}

impl StepText {
    /// True if a delta may be printed now.
    pub(super) fn takes_delta(&self) -> bool {
        !self.hole && !self.whole
    }

    /// Records a printed delta.
    pub(super) fn printed(&mut self, delta: &str) {
        self.printed.push_str(delta);
    }

    /// Records that the whole answer was printed.
    pub(super) fn printed_whole(&mut self, whole: &str) {
        *self = Self {
            printed: whole.to_owned(),
            hole: false,
            whole: true,
        };
    }

    /// Records missed deltas, or the missed beginning of another step.
    pub(super) fn missed(&mut self) {
        self.hole = true;
    }

    /// Forgets the step. True if text was printed, but the step did not end with an answer.
    pub(super) fn discard(&mut self) -> bool {
        let was = !self.printed.is_empty() && !self.whole;
        *self = Self::default();
        was
    }

    /// Part of the whole answer that is still to be printed.
    pub(super) fn rest<'a>(&self, whole: &'a str) -> Rest<'a> {
        match whole.strip_prefix(self.printed.as_str()) {
            Some("") if self.whole => Rest::Append(""),
            // A whole answer was already printed, so this answer belongs to the next step, whose beginning was missed.
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
    fn printed_answer_is_neither_repeated_nor_discarded() {
        let mut text = StepText::default();
        text.printed_whole("Hello");
        text.missed();
        assert_eq!(text.rest("Hello"), Rest::Append(""));
        assert_eq!(text.rest("Hello again"), Rest::Append("Hello again"));
        assert!(!text.discard());
    }
}
