//! Language of comments and documents: phrases, the length of sentences, spelling.

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
        // Its word list is `typos.toml`.
        Command::new(typos).current_dir(workspace::root()),
    )
}
