//! Runs the example of the documents in Go with the SDK of the checkout.

use std::fs;

use anyhow::bail;
use serde_json::json;

use super::options::SuiteOptions;
use super::stand::Stand;
use crate::{exec, workspace};

/// Folder of the example.
const EXAMPLE: &str = "docs/examples/copilot_go";

/// Package of the example in the module of the SDK. The folder does not exist: the compiler reads the file of this workspace
/// in its place, so the example needs no module and no other folder of the checkout changes.
const PACKAGE: &str = "cmd/allstop_example";

const EXPECTED: &str = "stopped: [{build unreachable}]\nthe function has ended\n";

/// Builds and runs the example. Fails if it does not print the receipt of its stop.
pub(super) fn check(options: &SuiteOptions, stand: &Stand) -> anyhow::Result<()> {
    let example = workspace::root().join(EXAMPLE);
    let sdk = fs::canonicalize(options.sdk.join("go"))?;
    let in_sdk = sdk.join(PACKAGE).join("main.go");
    let overlay = stand.path("example.json");
    let replaced = json!({"Replace": {in_sdk.display().to_string(): example.join("main.go")}});
    fs::write(&overlay, replaced.to_string())?;
    let program = stand.path("example");
    let mut build = stand.command(&options.go, &sdk);
    build.args(["build", "-overlay"]).arg(&overlay).arg("-o");
    build.arg(&program).arg(format!("./{PACKAGE}"));
    exec::output(&mut build)?;
    let script = format!("script:{}", example.join("script.yaml").display());
    let mut run = stand.command(&program, &sdk);
    let printed = exec::output(run.env("ALLSTOP_MODEL", script))?;
    if printed != EXPECTED {
        bail!("the example printed {printed:?}, but {EXPECTED:?} is expected");
    }
    Ok(())
}
