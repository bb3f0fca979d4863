//! One measured figure: the compared operations, their samples, and the goals.

use std::fmt;
use std::time::Duration;

use crate::row::{FigureRow, Samples};

/// Default number of rounds of a figure. With 30 rounds, a second of other load on the machine does not change the
/// median.
const ROUNDS: usize = 30;

type Sample<'a> = Box<dyn FnMut() -> Duration + 'a>;

/// One measured operation, with its goals.
#[must_use = "a figure is measured by `BenchSuite::run`"]
pub struct Figure<'a> {
    pub(crate) name: String,
    rounds: usize,
    product: Sample<'a>,
    times: Vec<(Percentile, Duration)>,
    baselines: Vec<Baseline<'a>>,
}

struct Baseline<'a> {
    name: String,
    sample: Sample<'a>,
    ratio_max: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Percentile(usize);

impl<'a> Figure<'a> {
    /// Creates a figure with this name. The closure returns one sample of the product.
    pub fn new(name: impl Into<String>, product: impl FnMut() -> Duration + 'a) -> Self {
        Self {
            name: name.into(),
            rounds: ROUNDS,
            product: Box::new(product),
            times: Vec::new(),
            baselines: Vec::new(),
        }
    }

    /// Takes this number of samples of each compared operation. One warm-up sample before these samples does not count.
    pub fn rounds(mut self, rounds: usize) -> Self {
        self.rounds = rounds.max(1);
        self
    }

    /// Goal: half of the samples take at most this long.
    pub fn median_at_most(self, goal: Duration) -> Self {
        self.time_goal(50, goal)
    }

    /// Goal: 99 of 100 samples take at most this long. Needs several hundred rounds.
    pub fn p99_at_most(self, goal: Duration) -> Self {
        self.time_goal(99, goal)
    }

    fn time_goal(mut self, percentile: usize, goal: Duration) -> Self {
        self.times.push((Percentile(percentile), goal));
        self
    }

    /// Also takes samples of this baseline, in the same rounds.
    pub fn against(
        mut self,
        name: impl Into<String>,
        sample: impl FnMut() -> Duration + 'a,
    ) -> Self {
        self.baselines.push(Baseline {
            name: name.into(),
            sample: Box::new(sample),
            ratio_max: None,
        });
        self
    }

    /// Goal: the median of the product is at most this number times the median of the last added baseline.
    ///
    /// # Panics
    /// Panics if no baseline was added.
    pub fn ratio_at_most(mut self, goal: f64) -> Self {
        let baseline = self.baselines.last_mut();
        baseline
            .expect("a ratio is one to a baseline: call `against` first")
            .ratio_max = Some(goal);
        self
    }

    pub(crate) fn measure(self) -> Vec<FigureRow> {
        let Self {
            name,
            rounds,
            product,
            times,
            baselines,
        } = self;
        let mut contenders = vec![product];
        let mut goals = Vec::with_capacity(baselines.len());
        for baseline in baselines {
            contenders.push(baseline.sample);
            goals.push((baseline.name, baseline.ratio_max));
        }
        let mut samples = interleaved(&mut contenders, rounds).into_iter();
        let product = samples.next().expect("the product is the first contender");
        let mut rows: Vec<FigureRow> = times
            .into_iter()
            .map(|(Percentile(at), goal)| FigureRow::time(&name, &product, at, goal))
            .collect();
        rows.extend(
            goals.into_iter().zip(samples).map(|((to, goal), samples)| {
                FigureRow::ratio(&name, &product, &to, &samples, goal)
            }),
        );
        if rows.is_empty() {
            rows.push(FigureRow::bare(&name, &product));
        }
        rows
    }
}

/// Takes one sample of each compared operation in each round. Every second round runs in reverse order.
fn interleaved(contenders: &mut [Sample<'_>], rounds: usize) -> Vec<Samples> {
    let mut taken: Vec<Vec<Duration>> = contenders.iter().map(|_| Vec::new()).collect();
    for contender in contenders.iter_mut() {
        contender();
    }
    for round in 0..rounds {
        for at in 0..contenders.len() {
            let at = match round % 2 {
                0 => at,
                _ => contenders.len() - 1 - at,
            };
            if let (Some(contender), Some(taken)) = (contenders.get_mut(at), taken.get_mut(at)) {
                taken.push(contender());
            }
        }
    }
    taken.into_iter().map(Samples::new).collect()
}

impl fmt::Debug for Figure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figure")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn every_other_round_runs_in_reverse() {
        let order = RefCell::new(String::new());
        let letter_source = |letter| {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(letter);
                Duration::ZERO
            }) as Sample<'_>
        };
        let samples = interleaved(&mut [letter_source('a'), letter_source('b')], 3);
        assert_eq!(*order.borrow(), "ab ab ba ab".replace(' ', ""));
        assert_eq!(samples.len(), 2);
    }

    #[test]
    fn each_goal_has_a_row_and_a_verdict() {
        let ms = Duration::from_millis;
        let rows = Figure::new("work", || ms(30))
            .rounds(3)
            .median_at_most(ms(40))
            .p99_at_most(ms(20))
            .against("bare", || ms(10))
            .ratio_at_most(2.0)
            .against("other", || ms(60))
            .measure();
        let rows: Vec<String> = rows.iter().map(ToString::to_string).collect();
        let starts = ["met ", "missed ", "missed ", "- "];
        for (row, start) in rows.iter().zip(starts) {
            assert!(row.starts_with(start), "{start}: {rows:#?}");
        }
        assert_eq!(rows.len(), starts.len());
        assert!(rows[2].contains("3.0x"), "{}", rows[2]);
    }
}
