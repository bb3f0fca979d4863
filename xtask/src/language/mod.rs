//! Checks of the language in comments and documents: phrases, the length of sentences, and spelling.

use std::process::Command;

use crate::{exec, parts, workspace};

mod phrases;
mod sentences;

pub(crate) fn run() -> anyhow::Result<()> {
    exec::check("phrases", phrases::check)?;
    exec::check("long sentences", sentences::check)?;
    let typos = parts::TOOLS.fetch()?.join("bin/typos");
    exec::step(
        "spelling",
        // The list of allowed words is in `typos.toml`.
        Command::new(typos).current_dir(workspace::root()),
    )
}
