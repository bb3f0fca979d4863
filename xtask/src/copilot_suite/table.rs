//! Comparison of a run with the list of the tests that are left out.

use std::collections::BTreeMap;
use std::fmt;

use super::left_out::LeftOutTests;
use super::options::SdkLanguage;
use super::suite::{TestResult, TestVerdict};

/// Reasons of tests that no change of Allstop can make pass.
const OUT_OF_SCOPE: [&str; 2] = ["github", "recording"];

#[derive(Debug, Default, Clone, Copy)]
struct FileCounts {
    passed: usize,
    failed: usize,
    left_out: usize,
    skipped: usize,
}

/// Results of one suite, compared with the list.
#[derive(Debug)]
pub(super) struct Comparison {
    language: SdkLanguage,
    files: BTreeMap<String, FileCounts>,
    /// Failed tests that are not listed, each with its failure.
    failed: Vec<String>,
    /// Listed tests that pass.
    passed: Vec<String>,
    /// Listed tests that fail, each with its reason in the list and its failure.
    left_out: Vec<String>,
    /// Number of listed tests that fail because they need GitHub, or compare a request with a recording.
    out_of_scope: usize,
    /// Lines of the list without a test.
    unknown: Vec<String>,
}

impl Comparison {
    /// Compares the results with the list. `is_whole` is false if only some tests ran.
    pub(super) fn new(
        language: SdkLanguage,
        results: &[TestResult],
        list: &LeftOutTests,
        is_whole: bool,
    ) -> Self {
        let mut comparison = Self {
            language,
            files: BTreeMap::new(),
            failed: Vec::new(),
            passed: Vec::new(),
            left_out: Vec::new(),
            out_of_scope: 0,
            unknown: Vec::new(),
        };
        for TestResult {
            file,
            name,
            verdict,
        } in results
        {
            let counts = comparison.files.entry(file.clone()).or_default();
            let line = list.find(language, file, name);
            match (verdict, line) {
                (TestVerdict::Skipped, _) => counts.skipped += 1,
                (TestVerdict::Failed(failure), Some(line)) => {
                    counts.left_out += 1;
                    if OUT_OF_SCOPE.contains(&&*line.reason) {
                        comparison.out_of_scope += 1;
                    }
                    let reason = &line.reason;
                    let left_out = format!("{file} | {name} | {reason} | {failure}");
                    comparison.left_out.push(left_out);
                }
                (TestVerdict::Failed(failure), None) => {
                    counts.failed += 1;
                    comparison
                        .failed
                        .push(format!("{file} | {name} | {failure}"));
                }
                (TestVerdict::Passed, None) => counts.passed += 1,
                (TestVerdict::Passed, Some(line)) => {
                    counts.passed += 1;
                    if line.name != "*" {
                        comparison
                            .passed
                            .push(format!("{file} | {name} | {}", line.reason));
                    }
                }
            }
        }
        if is_whole {
            let lines = list.of(language);
            let unknown = lines.filter(|line| {
                !results.iter().any(|result| {
                    result.file == line.file && (result.name == line.name || line.name == "*")
                })
            });
            comparison.unknown = unknown
                .map(|line| format!("{} | {}", line.file, line.name))
                .collect();
        }
        comparison
    }

    /// The listed tests that fail, one a line, each with its reason in the list and its failure. So a reader can check the
    /// reasons.
    pub(super) fn left_out(&self) -> String {
        self.left_out.join("\n") + "\n"
    }

    pub(super) fn is_good(&self) -> bool {
        self.failed.is_empty() && self.passed.is_empty() && self.unknown.is_empty()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.files.keys().map(String::len).max().unwrap_or_default();
        writeln!(
            f,
            "{:width$}  passed  failed  left out  skipped",
            self.language.name()
        )?;
        let mut total = FileCounts::default();
        let row = |f: &mut fmt::Formatter<'_>, name: &str, counts: &FileCounts| {
            let FileCounts {
                passed,
                failed,
                left_out,
                skipped,
            } = counts;
            writeln!(
                f,
                "{name:width$}  {passed:6}  {failed:6}  {left_out:8}  {skipped:7}"
            )
        };
        for (file, counts) in &self.files {
            row(f, file, counts)?;
            total.passed += counts.passed;
            total.failed += counts.failed;
            total.left_out += counts.left_out;
            total.skipped += counts.skipped;
        }
        row(f, "total", &total)?;
        let possible = total.passed + total.failed + total.left_out - self.out_of_scope;
        let share = 100.0 * total.passed as f64 / possible.max(1) as f64;
        writeln!(
            f,
            "{}: {} of {possible} tests pass ({share:.1} %), without the {} tests of GitHub and of recordings",
            self.language.name(),
            total.passed,
            self.out_of_scope,
        )?;
        for (title, tests) in [
            ("failed, not listed", &self.failed),
            ("passed, but listed", &self.passed),
            ("listed, but unknown", &self.unknown),
        ] {
            for test in tests {
                writeln!(f, "{title}: {} | {test}", self.language.name())?;
            }
        }
        Ok(())
    }
}
