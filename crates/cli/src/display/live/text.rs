//! What of a step's answer has been printed, and what is still to print.
//!
//! Deltas may be missed: then nothing more of the step is printed until its whole answer is there, because what comes
//! after a hole is not what the model said.

/// The answer of one step, as far as it was printed.
#[derive(Debug, Default)]
pub(super) struct StepText {
    printed: String,
    /// Something after `printed` was missed.
    hole: bool,
}

/// What the whole answer asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest<'a> {
    /// Print this behind what is there.
    Append(&'a str),
    /// What is there is not the beginning of the answer: mark it as discarded and print all of this.
    Replace(&'a str),
}

impl StepText {
    /// Whether a delta may be printed now.
    pub(super) fn takes_delta(&self) -> bool {
        !self.hole
    }

    /// A delta was printed.
    pub(super) fn printed(&mut self, delta: &str) {
        self.printed.push_str(delta);
    }

    /// A delta was missed.
    pub(super) fn missed(&mut self) {
        self.hole = true;
    }

    /// Forgets the step, and says whether anything of it was printed.
    pub(super) fn discard(&mut self) -> bool {
        let was = !self.printed.is_empty();
        *self = Self::default();
        was
    }

    /// What is still to print, now that the whole answer is there.
    pub(super) fn rest<'a>(&self, whole: &'a str) -> Rest<'a> {
        match whole.strip_prefix(self.printed.as_str()) {
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
}
