//! `cargo xtask picture`: draws the picture in the README again.
//!
//! The test that draws the picture runs the program at a terminal. Without the variable, the test compares.

use crate::{exec, workspace};

/// Variable with which the test writes the picture.
const UPDATE: &str = "UPDATE_PICTURE";

pub(crate) fn run() -> anyhow::Result<()> {
    let mut test = workspace::cargo();
    test.args([
        "test",
        "--package=allstop-cli",
        "--all-features",
        "--test=it",
        "picture",
    ]);
    exec::step("picture", test.env(UPDATE, "1"))
}
