//! `allstop config show`: the configuration that applies, and the system prompt.

use std::path::Path;

use allstop_runtime::{ComposedPrompt, PromptTools};
use anyhow::Context as _;

use crate::args::{ConfigAction, ConfigArgs, ConfigShowArgs};
use crate::display::instructions_in_words;
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::start::options::config_of;
use crate::terminal::OutputPriority;

/// Runs the command. Reads files, and blocks as long as they do; nothing is under way that a stop would have to end.
pub(crate) fn config(args: &ConfigArgs, host: &ProcessHost) -> Result<u8, CliError> {
    let ConfigAction::Show(args) = &args.action;
    let text = if args.prompt {
        prompt(args, host)?
    } else {
        settings(args)?
    };
    host.output.stdout().answer(&text, OutputPriority::Must);
    Ok(0)
}

/// The system prompt, as the model receives it.
fn prompt(args: &ConfigShowArgs, host: &ProcessHost) -> Result<String, CliError> {
    let config = config_of(&args.model)?;
    let now = std::time::SystemTime::now().into();
    let composed = ComposedPrompt::compose(&config, &host.folder, PromptTools::Builtin, now);
    for line in instructions_in_words(&composed.instructions) {
        host.note(&line);
    }
    let Some(text) = composed.text else {
        host.note("the system prompt is empty");
        return Ok(String::new());
    };
    Ok(format!("{text}\n"))
}

/// The settings as TOML. Keys that are not set are left out.
fn settings(args: &ConfigShowArgs) -> Result<String, CliError> {
    let file = args.model.config.clone().or_else(ProcessHost::config_file);
    let config = config_of(&args.model)?;
    let settings = toml::to_string_pretty(&config).context("the configuration has no text form")?;
    Ok(format!("{}\n{settings}", origin(file.as_deref())))
}

fn origin(file: Option<&Path>) -> String {
    match file {
        Some(file) => format!("# {}, with the flags and variables over it", file.display()),
        None => {
            "# no configuration file: defaults, with the flags and variables over them".to_owned()
        }
    }
}
