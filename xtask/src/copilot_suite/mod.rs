//! `cargo xtask copilot-suite`: runs the end-to-end tests of the official Copilot SDKs with the binary of this workspace.
//!
//! The tests come from a checkout that the user has prepared; this repository contains none of their code. The tests
//! record a model's answers for one exact request. [`Stand`] therefore replaces their model server by `recorded_model.mjs`,
//! which serves the recorded answers for similar requests. The file `copilot_suite.txt` lists the tests that are left out,
//! each with its reason.

mod go;
mod go_example;
mod left_out;
mod options;
mod stand;
mod suite;
mod table;

use std::fs;
use std::process::ExitCode;

use anyhow::bail;

use left_out::LeftOutTests;
use options::SuiteOptions;
use stand::Stand;
use table::Comparison;

use crate::workspace;

/// Runs the suites. Fails if a test that is not listed fails, or if a listed test passes.
pub(crate) fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    let Some(options) = SuiteOptions::parse(args)? else {
        print!("{}", options::HELP);
        return Ok(ExitCode::SUCCESS);
    };
    if !options.binary.is_file() {
        bail!(
            "{} not found: run `cargo build -p allstop-cli`, or pass --binary",
            options.binary.display()
        );
    }
    let left_out = LeftOutTests::read()?;
    let mut is_good = true;
    for language in &options.languages {
        let stand = Stand::create(&options)?;
        let results = suite::run(*language, &options, &stand)?;
        let comparison = Comparison::new(*language, &results, &left_out, options.test.is_none());
        print!("{comparison}");
        let name = format!("copilot-suite-{}-left-out.txt", language.name());
        fs::write(workspace::target_dir()?.join(name), comparison.left_out())?;
        is_good &= comparison.is_good();
    }
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
