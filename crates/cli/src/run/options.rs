//! From flags and files to what a system is made of.

use std::path::PathBuf;
use std::sync::Arc;

use allstop_core::WrittenDuration;
use allstop_runtime::config::OnStop;
use allstop_runtime::{Config, SystemOptions};
use allstop_tools::Prompter;
use tokio::io::AsyncReadExt as _;

use crate::args::{LimitArgs, ModelArgs, OnStopArg, RunArgs, StoreArgs};
use crate::host::Host;
use crate::problem::Problem;

/// The longest prompt: no model takes more, and what is longer is a mistake (a log file, an image).
const PROMPT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// How to get a model: three ways, three lines.
const NO_MODEL: &str = "\
with a key: OPENAI_API_KEY=… allstop run --model gpt-5-mini \"hello\" (any provider: ANTHROPIC_API_KEY, GEMINI_API_KEY …)
with a local server: allstop run --base-url http://127.0.0.1:8080/v1 --model NAME \"hello\" (llama.cpp, Ollama, vLLM)
with a script: allstop run --model script:FILE \"hello\" (docs/scripted-model.md)";

/// The configuration, with the flags over it.
pub(super) fn config(args: &RunArgs) -> Result<Config, Problem> {
    let mut config = config_with_model(&args.model)?;
    limits(&mut config, &args.limits);
    Ok(config)
}

/// The configuration, with the model that is to be used.
pub(crate) fn config_with_model(args: &ModelArgs) -> Result<Config, Problem> {
    let file = args.config.clone().or_else(Host::config_file);
    let mut config = match file {
        Some(file) => Config::load(&file)?,
        None => Config::default(),
    };
    model(&mut config, args)?;
    Ok(config)
}

fn model(config: &mut Config, args: &ModelArgs) -> Result<(), Problem> {
    // A server and a model belong together: one from a flag is never mixed with another from the file.
    if args.base_url.is_some() {
        config.model.base_url.clone_from(&args.base_url);
        config.model.name.clone_from(&args.model);
        if args.model.is_none() {
            return Err(
                Problem::usage("--base-url needs the name of a model of that server")
                    .hint("add --model NAME; a llama.cpp server takes any name"),
            );
        }
    } else if args.model.is_some() {
        config.model.base_url = None;
        config.model.name.clone_from(&args.model);
    }
    if config.model.name.is_none() {
        return Err(Problem::usage("no model is configured").hint(NO_MODEL));
    }
    Ok(())
}

fn limits(config: &mut Config, args: &LimitArgs) {
    let take = |to: &mut Option<WrittenDuration>, flag: Option<WrittenDuration>| {
        *to = flag.or(*to);
    };
    take(&mut config.deadlines.run, args.timeout);
    take(&mut config.deadlines.grace, args.grace);
    if let Some(steps) = args.max_steps {
        config.limits.max_steps = steps.get();
    }
    if let Some(turns) = args.max_turns {
        config.limits.max_turns = Some(turns.get());
    }
    if let Some(tokens) = args.max_budget_tokens {
        config.limits.max_budget_tokens = Some(tokens.get());
    }
    match args.on_stop {
        Some(OnStopArg::Keep) => config.on_stop = Some(OnStop::Keep),
        Some(OnStopArg::Rollback) => config.on_stop = Some(OnStop::Rollback),
        None => {}
    }
}

/// The prompts, as text.
///
/// # Cancel safety
/// Dropping it loses what was read of standard input.
pub(super) async fn prompts(args: &RunArgs) -> Result<Vec<Arc<str>>, Problem> {
    let mut prompts = Vec::new();
    for prompt in &args.prompts {
        let bytes = if prompt == "-" {
            read_stdin().await?
        } else {
            std::os::unix::ffi::OsStringExt::into_vec(prompt.clone())
        };
        prompts.push(prompt_text(bytes)?);
    }
    Ok(prompts)
}

async fn read_stdin() -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    tokio::io::stdin()
        .take(PROMPT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .await
        .map_err(|error| Problem::failure(format!("standard input cannot be read: {error}")))?;
    Ok(bytes)
}

fn prompt_text(bytes: Vec<u8>) -> Result<Arc<str>, Problem> {
    if bytes.len() > PROMPT_BYTES_MAX {
        return Err(Problem::usage(format!(
            "the prompt is longer than {} MiB",
            PROMPT_BYTES_MAX / (1024 * 1024)
        ))
        .hint("write it to a file, and ask the model to read that"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Problem::usage(format!("the prompt is not UTF-8: byte {at} is not"))
            .hint("convert it: iconv -t utf-8")
    })?;
    if text.trim().is_empty() {
        return Err(Problem::usage("the prompt is empty").hint("say what to do: allstop run \"…\""));
    }
    Ok(text.into())
}

/// What the system is made of.
pub(crate) fn system(
    store: &StoreArgs,
    record: Option<PathBuf>,
    host: &Host,
    config: Config,
    prompter: Arc<dyn Prompter>,
) -> Result<SystemOptions, Problem> {
    let store = Host::store(store, config.store.path.clone())?;
    let spill_folder = Host::spill_folder(&store);
    let key_variable = config.model.api_key_env.clone();
    Ok(SystemOptions {
        config,
        model: None,
        record,
        keys: Host::keys(),
        store,
        folder: host.folder.clone(),
        spill_folder,
        scopes: host.scopes(),
        prompter,
        hidden_variables: Host::secret_variables(key_variable.as_deref()),
        owner: Host::owner(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_that_are_none_say_what_is_wrong_with_them() {
        for (bytes, says) in [
            (
                b"caf\xe9".to_vec(),
                "the prompt is not UTF-8: byte 3 is not",
            ),
            (b"  \n".to_vec(), "the prompt is empty"),
            (
                vec![b'x'; PROMPT_BYTES_MAX + 1],
                "the prompt is longer than 32 MiB",
            ),
        ] {
            let problem = prompt_text(bytes).unwrap_err();
            assert_eq!((problem.message.as_str(), problem.code), (says, 2));
            assert!(problem.hint.is_some());
        }
        assert_eq!(&*prompt_text(b"hello".to_vec()).unwrap(), "hello");
    }
}
