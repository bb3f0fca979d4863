//! From flags and files to what a system is made of.

use std::path::PathBuf;
use std::sync::Arc;

use allstop_runtime::{Config, StoreChoice, SystemOptions};
use allstop_scope::RootOptions;
use allstop_tools::Prompter;

use crate::args::ModelArgs;
use crate::error::CliError;
use crate::host::ProcessHost;

/// The three ways to a model, a line each. `command`: the words that were given without one.
fn how_to_get_a_model(command: &str) -> String {
    let prompt = if command.starts_with("run") {
        " \"hello\""
    } else {
        ""
    };
    format!(
        "\
with a key: OPENAI_API_KEY=… allstop {command} --model gpt-5-mini{prompt} (any provider: ANTHROPIC_API_KEY, GEMINI_API_KEY …)
with a local server: allstop {command} --base-url http://127.0.0.1:8080/v1 --model NAME{prompt} (llama.cpp, Ollama, vLLM)
with a script: allstop {command} --model script:FILE{prompt} (docs/scripted-model.md)"
    )
}

/// The configuration, with the chosen model. `command`: as in [`how_to_get_a_model`].
pub(crate) fn config_with_model(args: &ModelArgs, command: &str) -> Result<Config, CliError> {
    let config = config_of(args)?;
    if config.model.name.is_none() {
        return Err(no_model(command));
    }
    Ok(config)
}

/// The error where nothing names a model.
pub(super) fn no_model(command: &str) -> CliError {
    CliError::usage("no model is configured").hint(how_to_get_a_model(command))
}

/// The configuration, with the model of the flags if they name one.
pub(crate) fn config_of(args: &ModelArgs) -> Result<Config, CliError> {
    let file = args.config.clone().or_else(ProcessHost::config_file);
    let mut config = match file {
        Some(file) => Config::load(&file)?,
        None => Config::default(),
    };
    model(&mut config, args)?;
    if let Some(file) = &args.prompt.system {
        config.system_prompt_file = Some(file.clone());
        config.read_system_prompt()?;
    }
    if args.prompt.no_project_instructions {
        config.project_instructions = Some(false);
    }
    Ok(config)
}

fn model(config: &mut Config, args: &ModelArgs) -> Result<(), CliError> {
    // A server and a model belong together: one from a flag is never mixed with another from the file.
    if args.base_url.is_some() {
        config.model.base_url.clone_from(&args.base_url);
        config.model.name.clone_from(&args.model);
        if args.model.is_none() {
            return Err(
                CliError::usage("--base-url needs the name of a model of that server")
                    .hint("add --model NAME; a llama.cpp server takes any name"),
            );
        }
    } else if args.model.is_some() {
        config.model.base_url = None;
        config.model.name.clone_from(&args.model);
    }
    Ok(())
}

/// The process's own part of what a system is made of.
pub(crate) struct Given {
    pub(crate) scopes: RootOptions,
    pub(crate) folder: PathBuf,
}

/// Options of the system.
pub(crate) fn system(
    store: StoreChoice,
    record: Option<PathBuf>,
    given: Given,
    config: Config,
    prompter: Arc<dyn Prompter>,
) -> SystemOptions {
    let spill_folder = ProcessHost::spill_folder(&store);
    let servers = config.mcp.servers.values();
    let of_servers = servers.filter_map(|server| server.bearer_token_env.as_deref());
    let with_keys: Vec<&str> = of_servers
        .chain(config.model.api_key_env.as_deref())
        .collect();
    let hidden_variables = ProcessHost::secret_variables(&with_keys);
    SystemOptions {
        config,
        model: None,
        record,
        keys: ProcessHost::keys(),
        store,
        folder: given.folder,
        spill_folder,
        scopes: given.scopes,
        prompter,
        hidden_variables,
        owner: ProcessHost::owner(),
    }
}
