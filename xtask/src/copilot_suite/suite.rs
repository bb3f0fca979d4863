//! Runs the tests of one language, and reads the report of the test program.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail};
use regex::Regex;
use serde_json::Value;

use super::go;
use super::options::{SdkLanguage, SuiteOptions};
use super::stand::Stand;
use crate::workspace;

/// Limit for one test. The slowest tests with the official runtime need 30 seconds.
const TEST_MAX_S: u32 = 60;

/// Limit for the tests of one file in Python and Go. The longest files have forty tests.
pub(super) const FILE_MAX_S: u32 = 600;

/// Maximum length of a failure's text in the table.
const FAILURE_LEN_MAX: usize = 160;

/// Result of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TestVerdict {
    Passed,
    /// The suite itself leaves the test out.
    Skipped,
    /// Failed, with the first line of the failure.
    Failed(String),
}

/// A test with its result.
#[derive(Debug)]
pub(super) struct TestResult {
    pub(super) file: String,
    pub(super) name: String,
    pub(super) verdict: TestVerdict,
}

/// Runs the end-to-end tests of a language.
pub(super) fn run(
    language: SdkLanguage,
    options: &SuiteOptions,
    stand: &Stand,
) -> anyhow::Result<Vec<TestResult>> {
    let results = match language {
        SdkLanguage::Python => python(options, stand)?,
        SdkLanguage::Node => node(options, stand)?,
        SdkLanguage::Go => go::run(options, stand)?,
    };
    if results.is_empty() {
        bail!("the suite of {} ran no test", language.name());
    }
    Ok(results)
}

/// Runs a test program, whose exit code reports failed tests. Its output is in a file of the build folder.
pub(super) fn finish(language: SdkLanguage, command: &mut Command) -> anyhow::Result<ExitStatus> {
    let name = format!("copilot-suite-{}.log", language.name());
    let path = workspace::target_dir()?.join(name);
    println!("── {}: output in {}", language.name(), path.display());
    let log = File::create(&path)?;
    let errors = log.try_clone()?;
    let status = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .status();
    status.with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))
}

pub(super) fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let line = line.unwrap_or("no message");
    line.chars().take(FAILURE_LEN_MAX).collect()
}

/// Returns the text of an attribute in XML.
fn unescaped(text: &str) -> String {
    let escapes = [
        ("&#10;", "\n"),
        ("&quot;", "\""),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"),
    ];
    let replace = |text: String, (escape, plain)| text.replace(escape, plain);
    escapes.into_iter().fold(text.to_owned(), replace)
}

fn python(options: &SuiteOptions, stand: &Stand) -> anyhow::Result<Vec<TestResult>> {
    let folder = options.sdk.join("python");
    let mut files: Vec<String> = Vec::new();
    for entry in fs::read_dir(folder.join("e2e")).context("the tests of Python")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        files.extend(
            name.strip_prefix("test_")
                .and(name.strip_suffix(".py"))
                .map(str::to_owned),
        );
    }
    files.sort();
    run_files(SdkLanguage::Python, options, &files, |file| {
        python_file(options, stand, &folder, file)
    })
}

/// Runs the tests of all files, some files at a time.
pub(super) fn run_files(
    language: SdkLanguage,
    options: &SuiteOptions,
    files: &[String],
    run_file: impl Fn(&str) -> anyhow::Result<Vec<TestResult>> + Sync,
) -> anyhow::Result<Vec<TestResult>> {
    println!("── {}: {} files", language.name(), files.len());
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let run_next = || -> anyhow::Result<()> {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let of_file = run_file(file)?;
            results.lock().expect("no test run panics").extend(of_file);
        }
        Ok(())
    };
    std::thread::scope(|threads| {
        let jobs = options.jobs.parse().unwrap_or(1);
        let running: Vec<_> = (0..jobs).map(|_| threads.spawn(run_next)).collect();
        let ended = running
            .into_iter()
            .map(|run| run.join().expect("no test run panics"));
        ended.collect::<anyhow::Result<Vec<()>>>()
    })?;
    Ok(results.into_inner().expect("no test run panics"))
}

/// Runs the tests of one file. Each file has its own test program, so a hanging test costs only its file.
fn python_file(
    options: &SuiteOptions,
    stand: &Stand,
    folder: &Path,
    file: &str,
) -> anyhow::Result<Vec<TestResult>> {
    let report = stand.path("report").with_extension(file);
    let log = File::create(workspace::target_dir()?.join(format!("copilot-suite-{file}.log")))?;
    let mut command = stand.command("timeout", folder);
    command
        .arg("-k5")
        .arg(FILE_MAX_S.to_string())
        .arg(&options.python)
        .args(["-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"])
        // The other method ends the whole test program.
        .args([
            format!("--timeout={TEST_MAX_S}"),
            "--timeout-method=signal".to_owned(),
        ])
        .arg(format!("--junitxml={}", report.display()))
        .arg(format!("e2e/{file}.py"));
    if let Some(test) = &options.test {
        command.args(["-k", test]);
    }
    let errors = log.try_clone()?;
    let status = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .status();
    status.context("cannot start pytest")?;
    let Ok(text) = fs::read_to_string(&report) else {
        let failure = format!("the test program wrote no report in {FILE_MAX_S} s");
        return Ok(vec![TestResult {
            file: file.to_owned(),
            name: "all tests".to_owned(),
            verdict: TestVerdict::Failed(failure),
        }]);
    };
    let case = Regex::new(
        r#"(?s)<testcase classname="([^"]*)" name="([^"]*)"[^>]*?(?:/>|>(.*?)</testcase>)"#,
    )?;
    let message = Regex::new(r#"<(?:failure|error)(?: message="([^"]*)")?"#)?;
    let cases = case.captures_iter(&text).map(|case| {
        let class: Vec<&str> = case[1].split('.').collect();
        let outer = class.get(2..).unwrap_or_default();
        let mut name = String::new();
        for part in outer.iter().chain([&&case[2]]) {
            if !name.is_empty() {
                name.push_str("::");
            }
            name.push_str(part);
        }
        let body = case.get(3).map_or("", |body| body.as_str());
        let verdict = if let Some(failed) = message.captures(body) {
            let text = failed.get(1).map_or("", |text| text.as_str());
            TestVerdict::Failed(first_line(&unescaped(text)))
        } else if body.contains("<skipped") {
            TestVerdict::Skipped
        } else {
            TestVerdict::Passed
        };
        TestResult {
            file: file.to_owned(),
            name,
            verdict,
        }
    });
    Ok(cases.collect())
}

fn node(options: &SuiteOptions, stand: &Stand) -> anyhow::Result<Vec<TestResult>> {
    let report = stand.path("report");
    let folder = options.sdk.join("nodejs");
    let mut command = stand.command("node", &folder);
    command
        .args(["node_modules/vitest/vitest.mjs", "run", "test/e2e"])
        .args(["--reporter=json", "--maxWorkers", &options.jobs])
        .arg(format!("--outputFile={}", report.display()));
    if let Some(test) = &options.test {
        command.args(["-t", test]);
    }
    finish(SdkLanguage::Node, &mut command)?;
    let text = fs::read_to_string(&report).context("vitest wrote no report")?;
    let text: Value = serde_json::from_str(&text).context("the report of vitest is no JSON")?;
    let mut results = Vec::new();
    for file in text["testResults"].as_array().into_iter().flatten() {
        let path = file["name"].as_str().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        for test in file["assertionResults"].as_array().into_iter().flatten() {
            let failure = test["failureMessages"][0].as_str().unwrap_or_default();
            let verdict = match test["status"].as_str() {
                Some("passed") => TestVerdict::Passed,
                Some("failed") => TestVerdict::Failed(first_line(failure)),
                _ if options.test.is_some() => continue,
                _ => TestVerdict::Skipped,
            };
            results.push(TestResult {
                file: name.trim_end_matches(".ts").to_owned(),
                name: test["fullName"].as_str().unwrap_or_default().to_owned(),
                verdict,
            });
        }
    }
    Ok(results)
}
