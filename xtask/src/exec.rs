//! Runs programs as steps. Each step is announced and timed. If a step fails, the whole run ends.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail};

/// Runs a step with its output on the terminal.
pub(crate) fn step(name: &str, command: &mut Command) -> anyhow::Result<()> {
    println!("── {name}");
    let begin = Instant::now();
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{name}: {} ended with {status}", shown(command));
    }
    println!(
        "   {name}: passed in {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Runs a check that is Rust code, as a step.
pub(crate) fn check(name: &str, check: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    println!("── {name}");
    check().with_context(|| name.to_owned())?;
    println!("   {name}: passed");
    Ok(())
}

/// Runs a command and returns its standard output.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}", shown(command), output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("{} printed no UTF-8 text", shown(command)))
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    format!("`{}`", words.join(" "))
}
