//! `allstop man`: manual pages, generated from the help.

use std::path::Path;

use allstop_core::error_chain;
use allstop_terminal::OutputPriority;
use anyhow::Context as _;
use clap::Command;
use clap_mangen::Man;

use crate::args::{ManArgs, command};
use crate::error::CliError;
use crate::host::ProcessHost;

/// Runs the command.
pub(crate) fn man(args: &ManArgs, host: &ProcessHost) -> Result<u8, CliError> {
    if let Some(folder) = &args.folder {
        write_all(folder)?;
        return Ok(0);
    }
    let page = page(&args.command)?;
    host.output.stdout().answer(&page, OutputPriority::Required);
    Ok(0)
}

/// Writes the page of every command into a folder.
fn write_all(folder: &Path) -> Result<(), CliError> {
    let written = clap_mangen::generate_to(command(), folder);
    written.map_err(|error| {
        let message = format!(
            "{} cannot be written: {}",
            folder.display(),
            error_chain(&error)
        );
        CliError::failure(message).hint("name a folder that exists")
    })
}

/// Returns the manual page of the command with this name.
fn page(words: &[String]) -> Result<String, CliError> {
    let mut root = command();
    // This call sets the full name of each command.
    root.build();
    let mut named: &Command = &root;
    for word in words {
        named = named.find_subcommand(word).ok_or_else(|| {
            let message = format!("command `{}` not found", words.join(" "));
            CliError::not_found(message).hint("`allstop --help` lists all commands")
        })?;
    }
    let mut page = Vec::new();
    let rendered = Man::new(named.clone()).render(&mut page);
    rendered.context("the page cannot be made")?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page() {
        let of_words = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
            page(&words)
        };
        assert!(of_words(&[]).unwrap().contains(".TH allstop 1"));
        let run = of_words(&["run"]).unwrap();
        assert!(
            run.contains(".TH allstop-run 1") && run.contains("Exit codes"),
            "{run}"
        );
        assert!(
            of_words(&["mcp", "add"])
                .unwrap()
                .contains(".TH allstop-mcp-add 1")
        );
        assert_eq!(of_words(&["nope"]).unwrap_err().code(), 2);
    }

    #[test]
    fn folder_gets_all_pages() {
        let place = tempfile::tempdir().unwrap();
        write_all(place.path()).unwrap();
        for name in ["allstop.1", "allstop-run.1", "allstop-sessions-show.1"] {
            assert!(place.path().join(name).exists(), "{name}");
        }
        assert_eq!(write_all(&place.path().join("none")).unwrap_err().code(), 1);
    }
}
