//! Runs the tests of the SDK in Go. Builds their test program once, and runs it for each file with tests.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use regex::Regex;
use serde_json::Value;

use super::go_example;
use super::options::{SdkLanguage, SuiteOptions};
use super::stand::Stand;
use super::suite::{self, FILE_MAX_S, TestResult, TestVerdict};
use crate::{exec, workspace};

/// Folder of the tests below the folder of the SDK in Go.
const TESTS: &str = "internal/e2e";

pub(super) fn run(options: &SuiteOptions, stand: &Stand) -> anyhow::Result<Vec<TestResult>> {
    let folder = options.sdk.join("go");
    let program = stand.path("report");
    let mut build = stand.command(&options.go, &folder);
    build
        .args(["test", "-c", "-o"])
        .arg(&program)
        .arg(format!("./{TESTS}"));
    if !suite::finish(SdkLanguage::Go, &mut build)?.success() {
        bail!("the test program of Go was not built: read the output and prepare the modules");
    }
    if options.test.is_none() {
        exec::check("example in Go", || go_example::check(options, stand))?;
    }
    let functions = test_functions(&folder.join(TESTS), options.test.as_deref())?;
    let files: Vec<String> = functions.keys().cloned().collect();
    suite::run_files(SdkLanguage::Go, options, &files, |file| {
        let subtests = options
            .test
            .as_deref()
            .and_then(|test| test.split_once('/'));
        let subtests = subtests.map_or(String::new(), |(_, text)| format!("/{text}"));
        let pattern = format!("^({})${subtests}", functions[file].join("|"));
        run_file(options, stand, &program, file, &pattern)
    })
}

/// Returns the test functions of each file. With the text of `--test`, only functions whose name contains the part before
/// the first `/`.
fn test_functions(
    folder: &Path,
    test: Option<&str>,
) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let function = Regex::new(r"(?m)^func (Test\w+)\(t \*testing\.T\)")?;
    let wanted = test.and_then(|test| test.split('/').next()).unwrap_or("");
    let mut functions = BTreeMap::new();
    for entry in fs::read_dir(folder).context("the tests of Go")? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.ends_with("_test.go") {
            continue;
        }
        let file = name.trim_end_matches(".go");
        let source = fs::read_to_string(&path)?;
        let names = function
            .captures_iter(&source)
            .map(|found| found[1].to_owned());
        let names: Vec<String> = names.filter(|name| name.contains(wanted)).collect();
        if !names.is_empty() {
            functions.insert(file.to_owned(), names);
        }
    }
    Ok(functions)
}

/// Runs the tests of one file. Each file has its own test program, so a hanging test costs only its file.
fn run_file(
    options: &SuiteOptions,
    stand: &Stand,
    program: &Path,
    file: &str,
    pattern: &str,
) -> anyhow::Result<Vec<TestResult>> {
    let path = workspace::target_dir()?.join(format!("copilot-suite-go-{file}.log"));
    let log = File::create(&path)?;
    let mut command = stand.command(&options.go, &options.sdk.join("go").join(TESTS));
    command
        .args(["tool", "test2json"])
        .arg(program)
        .args(["-test.v=test2json", "-test.run", pattern])
        .arg(format!("-test.timeout={FILE_MAX_S}s"));
    let errors = log.try_clone()?;
    let status = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .status();
    status.context("cannot start go")?;
    let results = results_of(file, &fs::read_to_string(&path)?);
    if results.is_empty() {
        bail!(
            "the tests of {file}.go reported no result: read {}",
            path.display()
        );
    }
    Ok(results)
}

/// Reads the events of a test program, one a line.
fn results_of(file: &str, events: &str) -> Vec<TestResult> {
    let mut printed: BTreeMap<String, String> = BTreeMap::new();
    let mut verdicts: BTreeMap<String, TestVerdict> = BTreeMap::new();
    for line in events.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let Some(test) = event["Test"].as_str() else {
            continue;
        };
        let output = printed.entry(test.to_owned()).or_default();
        let verdict = match event["Action"].as_str() {
            // A test has no result if its program ends at the limit, or if `test2json` loses it after a very long line.
            Some("run") => TestVerdict::Failed("the test reported no result".to_owned()),
            Some("output") => {
                output.push_str(event["Output"].as_str().unwrap_or_default());
                continue;
            }
            Some("pass") => TestVerdict::Passed,
            Some("skip") => TestVerdict::Skipped,
            Some("fail") => {
                let cause = output.lines().find(|line| line.contains(".go:"));
                TestVerdict::Failed(suite::first_line(cause.unwrap_or_default()))
            }
            _ => continue,
        };
        verdicts.insert(test.to_owned(), verdict);
    }
    // The result of a function with subtests only sums up theirs, except for a failure outside of the subtests.
    let is_failed = |verdict: &TestVerdict| matches!(verdict, TestVerdict::Failed(_));
    let all = verdicts.clone();
    verdicts.retain(|name, verdict| {
        let prefix = format!("{name}/");
        let mut subtests = all.iter().filter(|(name, _)| name.starts_with(&prefix));
        if is_failed(verdict) {
            !subtests.any(|(_, verdict)| is_failed(verdict))
        } else {
            subtests.next().is_none()
        }
    });
    let results = verdicts.into_iter().map(|(name, verdict)| TestResult {
        file: file.to_owned(),
        name,
        verdict,
    });
    results.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_of_subtests_and_of_failed_functions() {
        let events = r#"
            {"Action":"run","Test":"TestA"}
            {"Action":"run","Test":"TestA/one"}
            {"Action":"output","Test":"TestA/one","Output":"=== RUN\n"}
            {"Action":"output","Test":"TestA/one","Output":"    a_test.go:7: expected 1\n"}
            {"Action":"fail","Test":"TestA/one"}
            {"Action":"run","Test":"TestA/two"}
            {"Action":"pass","Test":"TestA/two"}
            {"Action":"run","Test":"TestA/three"}
            {"Action":"fail","Test":"TestA"}
            {"Action":"run","Test":"TestB"}
            {"Action":"run","Test":"TestB/one"}
            {"Action":"pass","Test":"TestB/one"}
            {"Action":"output","Test":"TestB","Output":"    b_test.go:9: left files\n"}
            {"Action":"fail","Test":"TestB"}
            {"Action":"fail"}"#;
        let results = results_of("a", events);
        let verdicts: Vec<(&str, &TestVerdict)> = results
            .iter()
            .map(|result| (&*result.name, &result.verdict))
            .collect();
        let failed = |text: &str| TestVerdict::Failed(text.to_owned());
        assert_eq!(
            verdicts,
            [
                ("TestA/one", &failed("a_test.go:7: expected 1")),
                ("TestA/three", &failed("the test reported no result")),
                ("TestA/two", &TestVerdict::Passed),
                ("TestB", &failed("b_test.go:9: left files")),
                ("TestB/one", &TestVerdict::Passed),
            ]
        );
    }
}
