//! `cargo xtask gates`: all checks of the source except tests. The fastest checks run first.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{
    book, crate_order, documented_commands, exec, facade, language, links, packages, parts,
    sources, workspace,
};

pub(crate) fn run() -> anyhow::Result<()> {
    exec::step(
        "format",
        workspace::cargo().args(["fmt", "--all", "--check"]),
    )?;
    exec::check("crate order", crate_order::check)?;
    exec::check("packages of the library", facade::check)?;
    exec::check("packages to publish", packages::check)?;
    sources::run()?;
    language::run()?;
    exec::check("links in documents", links::check)?;
    exec::check("book", book::check)?;
    exec::check(
        "xtask commands in documents",
        documented_commands::check_xtask,
    )?;
    let deny = parts::TOOLS.fetch()?.join("bin/cargo-deny");
    exec::step(
        "licences, sources and duplicates",
        Command::new(deny).current_dir(workspace::root()).args([
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
        unlinked("clippy").args(["--all-targets", "--", "-D", "warnings"]),
    )?;
    exec::step(
        "docs",
        unlinked("doc")
            .args(["--no-deps", "--document-private-items"])
            // With `--examples`, Cargo enables the features that development dependencies need. Clippy has already
            // checked the dependencies with these features. Without the argument, Cargo would check the dependencies
            // again.
            .args(["--lib", "--examples"])
            // Selects all binaries, but not the fuzz targets.
            .args(["--bin", "allstop*", "--bin", "xtask"])
            .env("RUSTDOCFLAGS", "-D warnings")
            // `cargo clippy` also sets these variables. If their values are equal, Cargo reuses the crates that clippy
            // has checked.
            .env("RUSTC_WORKSPACE_WRAPPER", clippy_driver()?)
            .env(
                "CLIPPY_ARGS",
                "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
            ),
    )
}

/// Returns a Cargo command for the whole workspace. The command links no programs.
fn unlinked(command: &str) -> Command {
    let mut cargo = workspace::cargo();
    cargo
        .args([command, "--workspace", "--all-features"])
        // With this variable, `libfuzzer-sys` does not compile its C++ code.
        .env("CUSTOM_LIBFUZZER_PATH", "/not/linked/libfuzzer.a");
    cargo
}

/// Path of the program that `cargo clippy` runs instead of the compiler.
fn clippy_driver() -> anyhow::Result<PathBuf> {
    let sysroot = exec::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    Ok(Path::new(sysroot.trim()).join("bin/clippy-driver"))
}
