//! `cargo xtask gates`: all checks of the source except tests, cheapest first.

use crate::{arrows, documented_commands, exec, links, parts, sources, workspace};

pub(crate) fn run() -> anyhow::Result<()> {
    exec::step(
        "format",
        workspace::cargo().args(["fmt", "--all", "--check"]),
    )?;
    exec::check("crate arrows", arrows::check)?;
    sources::run()?;
    exec::check("links in documents", links::check)?;
    exec::check(
        "xtask commands in documents",
        documented_commands::check_xtask,
    )?;
    let deny = parts::TOOLS.fetch()?.join("bin/cargo-deny");
    exec::step(
        "licences, sources and duplicates",
        std::process::Command::new(deny)
            .current_dir(workspace::root())
            .args([
                "--log-level",
                "error",
                "check",
                "licenses",
                "bans",
                "sources",
            ]),
    )?;
    exec::step(
        "clippy",
        workspace::cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--",
            "-D",
            "warnings",
        ]),
    )?;
    exec::step(
        "docs",
        workspace::cargo()
            .args([
                "doc",
                "--workspace",
                "--no-deps",
                "--all-features",
                "--document-private-items",
            ])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}
