//! One row of the results: the measured value, the goal, and the verdict.

use std::fmt;
use std::time::Duration;

/// The sorted samples of one compared operation.
#[derive(Debug)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn new(mut taken: Vec<Duration>) -> Self {
        taken.sort_unstable();
        Self(taken)
    }

    /// The smallest sample that is at least as large as `at` percent of all samples.
    fn percentile(&self, at: usize) -> Duration {
        let rank = (self.0.len() * at).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    fn median(&self) -> Duration {
        self.percentile(50)
    }

    fn min(&self) -> Duration {
        self.percentile(0)
    }
}

/// One row of the results. The verdict comes first, so that people and programs always find the verdict in the same
/// place.
#[derive(Debug)]
pub(crate) struct FigureRow {
    name: String,
    product: String,
    baseline: String,
    ratio: String,
    goal: String,
    met: Option<bool>,
}

impl FigureRow {
    /// Row of a time goal.
    pub(crate) fn time(name: &str, product: &Samples, percentile: usize, goal: Duration) -> Self {
        let found = product.percentile(percentile);
        Self {
            name: match percentile {
                50 => name.to_owned(),
                _ => format!("{name}, p{percentile}"),
            },
            product: shown(found, product.min()),
            goal: format!("<= {}", time(goal)),
            met: Some(found <= goal),
            ..Self::empty()
        }
    }

    /// Row of a comparison between the product and a baseline.
    pub(crate) fn ratio(
        name: &str,
        product: &Samples,
        to: &str,
        baseline: &Samples,
        goal: Option<f64>,
    ) -> Self {
        let ratio = |ours: Duration, theirs: Duration| ours.as_secs_f64() / theirs.as_secs_f64();
        let of_medians = ratio(product.median(), baseline.median());
        let of_minima = ratio(product.min(), baseline.min());
        Self {
            name: format!("{name}, to {to}"),
            product: shown(product.median(), product.min()),
            baseline: shown(baseline.median(), baseline.min()),
            ratio: format!("{} ({})", times(of_medians), times(of_minima)),
            goal: goal.map_or_else(String::new, |goal| format!("<= {}", times(goal))),
            met: goal.map(|goal| of_medians <= goal),
        }
    }

    /// Row of samples without a goal.
    pub(crate) fn bare(name: &str, product: &Samples) -> Self {
        Self {
            name: name.to_owned(),
            product: shown(product.median(), product.min()),
            ..Self::empty()
        }
    }

    /// Row of a counted value.
    pub(crate) fn count(name: &str, found: f64, goal: Option<f64>) -> Self {
        Self {
            name: name.to_owned(),
            product: number(found),
            goal: goal.map_or_else(String::new, |goal| format!("<= {}", number(goal))),
            met: goal.map(|goal| found <= goal),
            ..Self::empty()
        }
    }

    pub(crate) fn heading() -> Self {
        Self {
            name: "median (min)".to_owned(),
            product: "product".to_owned(),
            baseline: "baseline".to_owned(),
            ratio: "ratio".to_owned(),
            goal: "goal".to_owned(),
            met: None,
        }
    }

    fn empty() -> Self {
        Self {
            name: String::new(),
            product: String::new(),
            baseline: String::new(),
            ratio: String::new(),
            goal: String::new(),
            met: None,
        }
    }

    pub(crate) fn missed(&self) -> bool {
        self.met == Some(false)
    }
}

impl fmt::Display for FigureRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "-",
        };
        let Self {
            name,
            product,
            baseline,
            ratio,
            goal,
            ..
        } = self;
        let row =
            format!("{verdict:<7} {name:<62} {product:<20} {baseline:<20} {ratio:<15} {goal}");
        f.write_str(row.trim_end())
    }
}

fn shown(middle: Duration, min: Duration) -> String {
    format!("{} ({})", time(middle), time(min))
}

/// A duration, printed with three significant digits.
fn time(time: Duration) -> String {
    let nanoseconds = time.as_nanos() as f64;
    let (value, unit) = match nanoseconds {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", number(value))
}

fn times(ratio: f64) -> String {
    let digits = if ratio < 2.0 { 2 } else { 1 };
    format!("{ratio:.digits$}x")
}

/// A number, printed with three significant digits. An integer is printed without a fraction.
fn number(value: f64) -> String {
    let digits = match value {
        value if value.fract() == 0.0 || value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let samples = Samples::new((1..=200).rev().map(Duration::from_millis).collect());
        let at = |at| samples.percentile(at).as_millis();
        assert_eq!((at(0), at(50), at(99), at(100)), (1, 100, 198, 200));
        assert_eq!(Samples::new(Vec::new()).median(), Duration::ZERO);
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = |ns| time(Duration::from_nanos(ns));
        assert_eq!(
            [999, 1_240_000, 842_000_000, 2_000_000_000].map(shown),
            ["999 ns", "1.24 ms", "842 ms", "2 s"]
        );
        assert_eq!([19.44, 1.239, 10.0].map(times), ["19.4x", "1.24x", "10.0x"]);
    }

    #[test]
    fn counts_are_judged() {
        let row = |found| FigureRow::count("syncs", found, Some(4.0));
        assert!(!row(4.0).missed() && row(4.5).missed());
        assert!(!FigureRow::count("bytes", 9.0, None).missed());
        assert!(row(7.0).to_string().starts_with("missed  syncs"));
    }
}
