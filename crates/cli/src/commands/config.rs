//! `allstop config show`: the configuration that applies, and the system prompt.

use std::path::Path;

use allstop_runtime::{ComposedPrompt, Config, PromptTools};
use anyhow::Context as _;

use crate::args::{ConfigAction, ConfigArgs, ConfigShowArgs};
use crate::display::instructions_in_words;
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::start::options::config_of;
use crate::terminal::OutputPriority;

/// Stands where a value may hold a key.
const HIDDEN: &str = "(hidden)";

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
    let mut config = config_of(&args.model)?;
    hide_secrets(&mut config);
    let settings = toml::to_string_pretty(&config).context("the configuration has no text form")?;
    Ok(format!("{}\n{settings}", origin(file.as_deref())))
}

/// Hides what may hold a key: people paste this output into reports.
fn hide_secrets(config: &mut Config) {
    let hide_url = |url: &mut String| {
        if url.contains(['@', '?']) {
            HIDDEN.clone_into(url);
        }
    };
    config.model.base_url.iter_mut().for_each(hide_url);
    for server in config.mcp.servers.values_mut() {
        server.url.iter_mut().for_each(hide_url);
        let values = server.headers.values_mut().chain(server.env.values_mut());
        values.for_each(|value| HIDDEN.clone_into(value));
    }
}

fn origin(file: Option<&Path>) -> String {
    match file {
        Some(file) => format!("# {}, with the flags and variables over it", file.display()),
        None => {
            "# no configuration file: defaults, with the flags and variables over them".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_shown() {
        let text = "[model]\nbase_url = 'http://me:secret@x/v1'\n\
                    [mcp.servers.a]\nurl = 'http://x/?key=secret'\nheaders = { X = 'secret' }\n\
                    [mcp.servers.b]\nurl = 'http://127.0.0.1:1/mcp'\nenv = { KEY = 'secret' }";
        let mut config = Config::parse(Path::new("test.toml"), text).unwrap();
        hide_secrets(&mut config);
        let shown = toml::to_string_pretty(&config).unwrap();
        assert!(!shown.contains("secret"), "{shown}");
        assert!(shown.contains("http://127.0.0.1:1/mcp"), "{shown}");
        assert_eq!(shown.matches(HIDDEN).count(), 4, "{shown}");
    }
}
