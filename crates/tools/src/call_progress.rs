//! Progress of a running call, reported by its tool.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum length of a message, in characters: a few lines on a screen.
const MESSAGE_CHARS_MAX: usize = 500;

/// Numbers from this one on are shown with an exponent, because longer numbers do not fit on a screen.
const SHOWN_MAX: f64 = 1e12;

/// Progress of a running call. The numbers are finite and not negative, and `progress` is never more than `total`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallProgress {
    /// Completed amount.
    pub progress: f64,
    /// Total amount, if it is known.
    pub total: Option<f64>,
    /// State of the work, as its tool describes it. Not escaped.
    #[schemars(with = "Option<String>")]
    pub message: Option<Arc<str>>,
}

impl CallProgress {
    /// Creates progress from unchecked numbers. `None` if `progress` is not a finite, non-negative number. An
    /// impossible total is left out.
    pub fn checked(progress: f64, total: Option<f64>, message: Option<&str>) -> Option<Self> {
        let is_amount = |amount: f64| amount.is_finite() && amount >= 0.0;
        let total = total.filter(|total| is_amount(*total) && *total > 0.0 && progress <= *total);
        let message = message.map(|message| message.chars().take(MESSAGE_CHARS_MAX).collect());
        is_amount(progress).then(|| Self {
            progress,
            total,
            message: message.map(|message: String| message.into()),
        })
    }

    /// Completed share, from 0 to 1, if the total is known.
    pub fn share(&self) -> Option<f64> {
        Some(self.progress / self.total?)
    }

    /// The numbers, such as `3/10`.
    pub fn amounts(&self) -> String {
        let progress = amount_text(self.progress);
        match self.total {
            Some(total) => format!("{progress}/{}", amount_text(total)),
            None => progress,
        }
    }
}

/// Writes one line, such as `linking (3/10)`.
impl fmt::Display for CallProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => write!(f, "{message} ({})", self.amounts()),
            None => write!(f, "progress {}", self.amounts()),
        }
    }
}

fn amount_text(amount: f64) -> String {
    if amount >= SHOWN_MAX {
        format!("{amount:.1e}")
    } else if amount.fract() == 0.0 {
        amount.to_string()
    } else {
        format!("{amount:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(progress: f64, total: Option<f64>) -> Option<String> {
        CallProgress::checked(progress, total, None).map(|progress| progress.amounts())
    }

    #[test]
    fn only_amounts_are_progress() {
        for garbage in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
            assert_eq!(checked(garbage, Some(10.0)), None);
            assert_eq!(checked(3.0, Some(garbage)).as_deref(), Some("3"));
        }
        assert_eq!(checked(11.0, Some(10.0)).as_deref(), Some("11"));
        assert_eq!(checked(0.0, Some(0.0)).as_deref(), Some("0"));
        assert_eq!(checked(10.0, Some(10.0)).as_deref(), Some("10/10"));
        assert_eq!(checked(0.3333, Some(1.0)).as_deref(), Some("0.33/1"));
        assert_eq!(
            checked(f64::MIN_POSITIVE, Some(f64::MAX)).as_deref(),
            Some("0.00/1.8e308")
        );
    }

    #[test]
    fn text_and_parts_are_those_of_the_numbers() {
        let long = "é".repeat(10_000);
        let progress = CallProgress::checked(3.0, Some(10.0), Some(&long)).unwrap();
        assert_eq!(progress.share(), Some(0.3));
        assert_eq!(
            progress.to_string(),
            format!("{} (3/10)", "é".repeat(MESSAGE_CHARS_MAX))
        );
        let counter = CallProgress::checked(7.0, None, None).unwrap();
        assert_eq!(counter.share(), None);
        assert_eq!(counter.to_string(), "progress 7");
    }
}
