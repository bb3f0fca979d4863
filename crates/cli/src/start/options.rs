//! Converts flags and files to the options of a system.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use allstop_agent::SpanLinks;
use allstop_runtime::config::ModelConfig;
use allstop_runtime::{
    Config, StoreChoice, SystemOptions, rules_of_absent_servers, unusable_project_servers,
};
use allstop_scope::RootOptions;
use allstop_tools::Prompter;

use crate::args::{ModelArgs, run_variables};
use crate::error::CliError;
use crate::host::{ProcessHost, variable};
use crate::start::StartReporter;
use crate::start::default_model::{DefaultModel, OTHER_SERVER};
use crate::start::trusted_project::TrustedProject;
use crate::telemetry::TraceExporter;

/// Lists the ways to get a model, one per line. `command` is the command that the user typed without a model.
fn how_to_get_a_model(command: &str) -> String {
    let prompt = prompt_of(command);
    format!(
        "\
with a key: OPENAI_API_KEY=… allstop {command}{prompt} (or another provider's: ANTHROPIC_API_KEY, GEMINI_API_KEY …; --model chooses the model)
with a local server: allstop {command} --base-url http://127.0.0.1:8080/v1 --model NAME{prompt} (llama.cpp, Ollama, vLLM)
to choose a model and save it: allstop init
without a model, to look around: allstop {command} --model script:demo{prompt}"
    )
}

fn prompt_of(command: &str) -> &'static str {
    if command.starts_with("run") {
        " \"hello\""
    } else {
        ""
    }
}

/// The configuration, with the chosen model. `command` has the same meaning as for [`how_to_get_a_model`].
pub(crate) fn config_with_model(
    args: &ModelArgs,
    command: &str,
    given: &HostOptions,
    project: &TrustedProject,
) -> Result<Config, CliError> {
    let mut config = config_of(args, project)?;
    if config.model.name.is_none() {
        choose_default(&mut config.model, command, &given.reporter)?;
    }
    Ok(config)
}

/// If the configuration has no model, chooses a model by the environment variables, and prints the reason.
pub(crate) fn choose_default(
    model: &mut ModelConfig,
    command: &str,
    reporter: &StartReporter,
) -> Result<(), CliError> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let (name, why) = default_model(DefaultModel::choose(is_set), command)?;
    reporter.note(&why);
    model.name = Some(name);
    Ok(())
}

/// The model that the environment variables select, and a line with the reason.
fn default_model(choice: DefaultModel, command: &str) -> Result<(String, String), CliError> {
    let prompt = prompt_of(command);
    let problem = match choice {
        DefaultModel::One(known) => {
            let why = format!(
                "model {}, because {} is set; --model chooses another",
                known.model, known.key
            );
            return Ok((known.model.to_owned(), why));
        }
        DefaultModel::Several(set) => {
            let keys: Vec<&str> = set.iter().map(|known| known.key).collect();
            let ways = set.iter().map(|known| {
                format!(
                    "with {}: allstop {command} --model {}{prompt}",
                    known.key, known.model
                )
            });
            let mut ways: Vec<String> = ways.collect();
            ways.push(
                "permanently: `name` in the section `[model]` of the configuration".to_owned(),
            );
            let message = format!(
                "several models are possible: {} are set",
                keys.join(" and ")
            );
            CliError::usage(message).hint(ways.join("\n"))
        }
        DefaultModel::OtherServer => {
            let message = format!("no model is chosen for the server of {OTHER_SERVER}");
            CliError::usage(message).hint(format!(
                "name one: allstop {command} --base-url \"${OTHER_SERVER}\" --model NAME{prompt}"
            ))
        }
        DefaultModel::Missing => {
            CliError::usage("no model is configured").hint(how_to_get_a_model(command))
        }
    };
    Err(problem)
}

/// The user's configuration, overridden by the project's configuration and then by the flags.
pub(crate) fn config_of(args: &ModelArgs, project: &TrustedProject) -> Result<Config, CliError> {
    let file = args.config.clone().or_else(ProcessHost::config_file);
    let mut config = project.config(file.as_deref())?;
    model(&mut config, args)?;
    if let Some(file) = &args.prompt.system {
        config.system_prompt_file = Some(file.clone());
        let read = config.read_system_prompt().map_err(CliError::from);
        read.map_err(|problem| CliError {
            message: format!("--system {}", problem.message),
            ..problem
        })?;
    }
    if args.prompt.no_project_instructions {
        config.project_instructions = Some(false);
    }
    Ok(config)
}

fn model(config: &mut Config, args: &ModelArgs) -> Result<(), CliError> {
    // A model belongs to a server. If a flag sets one of the two, the other does not come from the file, because the
    // two would not fit together.
    if args.base_url.is_some() {
        config
            .model
            .choose(args.model.clone(), args.base_url.clone());
        if args.model.is_none() {
            return Err(
                CliError::usage("--base-url needs the name of a model of that server")
                    .hint("add --model NAME; a llama.cpp server takes any name"),
            );
        }
    } else if args.model.is_some() {
        config.model.choose(args.model.clone(), None);
    }
    Ok(())
}

/// Options of a system that come from the process itself.
pub(crate) struct HostOptions {
    pub(crate) scopes: RootOptions,
    pub(crate) folder: PathBuf,
    pub(crate) reporter: StartReporter,
    pub(crate) spans: Option<Arc<dyn SpanLinks>>,
}

impl HostOptions {
    pub(crate) fn of(host: &ProcessHost) -> Self {
        Self {
            scopes: host.scopes(),
            folder: host.folder.clone(),
            reporter: StartReporter::new(host),
            spans: host.traces.as_ref().map(TraceExporter::links),
        }
    }
}

/// Prints the servers of `.mcp.json` that the system leaves out, and the rules about tools of absent servers.
pub(crate) fn note_unusable_servers(config: &Config, reporter: &StartReporter) {
    for server in unusable_project_servers(config, &ProcessHost::keys()) {
        reporter.note(&server.to_string());
    }
    for line in rules_of_absent_servers(config) {
        reporter.note(&line);
    }
}

/// Options of the system, without definitions of commands, skills and agents.
pub(crate) fn system(
    store: StoreChoice,
    record: Option<PathBuf>,
    given: HostOptions,
    config: Config,
    prompter: Arc<dyn Prompter>,
) -> SystemOptions {
    let spill_folder = ProcessHost::spill_folder(&store);
    let servers = config.mcp.servers.values();
    let of_servers = servers.flat_map(|server| {
        let variables = [&server.bearer_token_env, &server.login.client_secret_env];
        variables
            .into_iter()
            .filter_map(|variable| variable.as_deref())
    });
    let with_keys: Vec<&str> = of_servers
        .chain(config.model.api_key_env.as_deref())
        .collect();
    let mut hidden_variables = ProcessHost::secret_variables(&with_keys);
    // A run within a command would otherwise write to the files of this run, and allow its own calls.
    hidden_variables.extend(run_variables().map(OsString::from));
    // Without a data folder, no answers of the user about projects are stored.
    let trust = ProcessHost::project_trust().ok();
    // The folder of the user's answers about projects is closed to tools. If a tool could store an answer, it could trust
    // the settings of a project in place of the user, and so start any command.
    let reserved = trust.iter().map(|trust| trust.folder().to_owned());
    // A tool could otherwise read the tokens of logins.
    let login_folder = ProcessHost::login_folder();
    let reserved = reserved.chain(login_folder.clone());
    SystemOptions::new(config, given.folder)
        .record(record)
        .keys(ProcessHost::keys())
        .store(store)
        .spill_folder(spill_folder)
        .login_folder(login_folder)
        .reserved(reserved.collect())
        .scopes(given.scopes)
        .prompter(prompter)
        .hidden_variables(hidden_variables)
        .owner(ProcessHost::owner())
        .spans(given.spans)
}

#[cfg(test)]
mod tests {
    use super::super::default_model::DEFAULT_MODELS;
    use super::*;

    #[test]
    fn one_key_is_reported_and_several_are_listed() {
        let [openai, anthropic, ..] = DEFAULT_MODELS;
        let (name, why) = default_model(DefaultModel::One(openai), "run").unwrap();
        assert_eq!(name, "gpt-5-mini");
        assert_eq!(
            why,
            "model gpt-5-mini, because OPENAI_API_KEY is set; --model chooses another"
        );
        let several = DefaultModel::Several(vec![openai, anthropic]);
        let problem = default_model(several, "chat").unwrap_err();
        assert_eq!(
            problem.message,
            "several models are possible: OPENAI_API_KEY and ANTHROPIC_API_KEY are set"
        );
        let hint = problem.hint.unwrap();
        assert!(hint.contains("with OPENAI_API_KEY: allstop chat --model gpt-5-mini\n"));
        assert!(hint.contains("--model claude-"));
        let other = default_model(DefaultModel::OtherServer, "chat").unwrap_err();
        assert!(
            other
                .hint
                .unwrap()
                .contains("--base-url \"$OPENAI_BASE_URL\" --model NAME")
        );
    }
}
