//! Results for the mutants (small mistakes in the code), read from the files that cargo-mutants writes.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::Context as _;

/// Sets of mutants by their result, for one package or for all packages.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    /// Mutants that made a test fail.
    caught: BTreeSet<String>,
    /// Mutants with which the tests exceeded their time limit.
    timed_out: BTreeSet<String>,
    /// Mutants that did not compile.
    unviable: BTreeSet<String>,
    /// Mutants with which all tests passed.
    pub(super) survived: BTreeSet<String>,
    /// Number of survivors that were not tried with the tests of the dependent crates.
    half_tried: usize,
    pub(super) untried: usize,
}

impl Outcomes {
    /// Reads the lists of mutants in the folder `mutants.out`. `count` is the number of all mutants.
    pub(super) fn read(output: &Path, count: usize) -> anyhow::Result<Self> {
        let list = |name: &str| -> anyhow::Result<BTreeSet<String>> {
            let file = output.join("mutants.out").join(name);
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        let mut outcomes = Self {
            caught: list("caught.txt")?,
            timed_out: list("timeout.txt")?,
            unviable: list("unviable.txt")?,
            survived: list("missed.txt")?,
            half_tried: 0,
            untried: 0,
        };
        let tried = outcomes.caught.len()
            + outcomes.timed_out.len()
            + outcomes.unviable.len()
            + outcomes.survived.len();
        outcomes.untried = count.saturating_sub(tried);
        Ok(outcomes)
    }

    /// Adds the results of a second round, which ran the tests of the dependent crates for each survivor. If the time
    /// was over before a survivor was tried again, the mutant stays a survivor.
    pub(super) fn catch_more(&mut self, second: Self) {
        self.survived
            .retain(|it| !second.caught.contains(it) && !second.timed_out.contains(it));
        self.half_tried = self.survived.difference(&second.survived).count();
        self.timed_out.retain(|it| !second.caught.contains(it));
        self.caught.extend(second.caught);
        self.timed_out.extend(second.timed_out);
    }

    /// Adds the number of mutants that were not tried because the time was over.
    pub(super) fn leave_out(&mut self, count: usize) {
        self.untried += count;
    }

    pub(super) fn add(&mut self, other: Self) {
        self.caught.extend(other.caught);
        self.timed_out.extend(other.timed_out);
        self.unviable.extend(other.unviable);
        self.survived.extend(other.survived);
        self.half_tried += other.half_tried;
        self.untried += other.untried;
    }
}

impl fmt::Display for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let caught = self.caught.len() + self.timed_out.len();
        let viable = caught + self.survived.len();
        let share = 100.0 * caught as f64 / viable.max(1) as f64;
        writeln!(
            f,
            "{caught} of {viable} viable mutants caught ({share:.0} %), {} of them by a timeout",
            self.timed_out.len()
        )?;
        writeln!(
            f,
            "{} did not compile, {} were not tried",
            self.unviable.len(),
            self.untried
        )?;
        if self.half_tried > 0 {
            let text = "survivors without a run of the tests of dependents, for lack of time";
            writeln!(f, "{text}: {}", self.half_tried)?;
        }
        for survivor in &self.survived {
            writeln!(f, "survived: {survivor}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(str::to_owned).into()
    }

    #[test]
    fn untried_survivor_still_counts() {
        let folder = std::env::temp_dir().join(format!("allstop-outcomes-{}", std::process::id()));
        let lists = folder.join("mutants.out");
        std::fs::create_dir_all(&lists).unwrap();
        for (name, text) in [
            ("caught.txt", "a\n"),
            ("timeout.txt", ""),
            ("unviable.txt", "u\n"),
            ("missed.txt", "b\nc\nd\n"),
        ] {
            std::fs::write(lists.join(name), text).unwrap();
        }
        let mut outcomes = Outcomes::read(&folder, 7).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        outcomes.catch_more(Outcomes {
            caught: set(["b"]),
            survived: set(["c"]),
            ..Outcomes::default()
        });
        assert_eq!(outcomes.survived, set(["c", "d"]));
        assert_eq!(
            outcomes.to_string(),
            "2 of 4 viable mutants caught (50 %), 0 of them by a timeout\n\
             1 did not compile, 2 were not tried\n\
             survivors without a run of the tests of dependents, for lack of time: 1\n\
             survived: c\nsurvived: d\n"
        );
    }
}
