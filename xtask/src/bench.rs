//! `cargo xtask bench`: runs all benchmarks of the workspace, and lists the goals that were missed.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, bail};

use crate::workspace;

pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let mut cargo = workspace::cargo();
    // Selects only benchmark targets. Without this argument, cargo would also start the tests of every library.
    cargo.args(["bench", "--no-fail-fast", "--bench", "*"]);
    if !args.iter().any(|arg| arg == "-p") {
        cargo.arg("--workspace");
    }
    cargo.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = cargo.spawn().context("cannot start cargo")?;
    let output = running.stdout.take().context("its output is piped")?;
    let mut verdicts = Verdicts::default();
    for line in BufReader::new(output).lines() {
        let line = line.context("cannot read what a benchmark printed")?;
        println!("{line}");
        verdicts.take(line);
    }
    let status = running.wait().context("cannot wait for cargo")?;
    println!(
        "\n{} goals met, {} missed",
        verdicts.met,
        verdicts.missed.len()
    );
    for row in &verdicts.missed {
        println!("{row}");
    }
    if verdicts.missed.is_empty() && !status.success() {
        bail!("the benchmarks failed with {status}, although no goal was missed");
    }
    if !verdicts.missed.is_empty() {
        bail!("goals were missed");
    }
    Ok(())
}

/// Verdicts (goal met or missed) in the rows that `allstop-bench` prints.
#[derive(Debug, Default)]
struct Verdicts {
    met: usize,
    missed: Vec<String>,
}

impl Verdicts {
    fn take(&mut self, line: String) {
        match line.split_whitespace().next() {
            Some("met") => self.met += 1,
            Some("missed") => self.missed.push(line),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_taken_from_rows() {
        let mut verdicts = Verdicts::default();
        for line in [
            "-       median (min)   product",
            "met     a durable step   0.70 ms (0.60 ms)   <= 0.80 ms",
            "missed  a shell call, to bare sh   4.5x",
            "running 1 benchmark",
            "",
        ] {
            verdicts.take(line.to_owned());
        }
        assert_eq!(verdicts.met, 1);
        assert_eq!(verdicts.missed.len(), 1);
    }
}
