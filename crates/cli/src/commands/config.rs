//! `allstop config`: shows the effective configuration and the system prompt, and stores the user's trust in the
//! configuration of a project.

use std::path::Path;

use allstop_runtime::config::{McpJsonFile, ProjectFile, ProjectFileSearch};
use allstop_runtime::{ComposedPrompt, Config, PromptTools};
use allstop_terminal::{OutputPriority, Styled};
use anyhow::Context as _;

use crate::args::{ConfigAction, ConfigArgs, ConfigShowArgs};
use crate::display::describe_instructions;
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::project_trust::TrustAnswer;
use crate::start::StartReporter;
use crate::start::options::config_of;
use crate::start::project::{self, ProjectPart, TrustedProject};

/// Placeholder for a value that may contain a key.
const HIDDEN: &str = "(hidden)";

/// Runs the command. Blocks the thread while it reads files. This is harmless, because the command starts no work that
/// a stop has to end.
pub(crate) fn config(args: &ConfigArgs, host: &ProcessHost) -> Result<u8, CliError> {
    let text = match &args.action {
        ConfigAction::Show(args) if args.prompt => prompt(args, host)?,
        ConfigAction::Show(args) => settings(args, host)?,
        ConfigAction::Trust => return trust(host),
        ConfigAction::Untrust => return untrust(host),
    };
    host.output.stdout().answer(&text, OutputPriority::Required);
    Ok(0)
}

/// Trusts the files of the project, and shows their effects.
fn trust(host: &ProcessHost) -> Result<u8, CliError> {
    let mut parts = Vec::new();
    match ProjectFile::find(&host.folder)? {
        ProjectFileSearch::Found(file) => parts.push(ProjectPart::Settings(file)),
        ProjectFileSearch::Absent => {}
        ProjectFileSearch::ForeignOwner(path, user) => {
            let message = format!("{} belongs to another user (uid {user})", path.display());
            return Err(
                CliError::usage(message).hint("copy the file: you can trust only your own files")
            );
        }
    }
    match McpJsonFile::find(&host.folder) {
        Ok(ProjectFileSearch::Found(file)) => {
            file.left_out.iter().for_each(|line| host.note(line));
            if !file.servers.is_empty() {
                parts.push(ProjectPart::Servers(file));
            }
        }
        Ok(ProjectFileSearch::Absent) => {}
        Ok(ProjectFileSearch::ForeignOwner(path, user)) => {
            let path = path.display();
            host.note(&format!("{path} belongs to another user (uid {user})"));
        }
        Err(error) => host.note(&project::unusable(&error)),
    }
    let definitions = ProjectPart::definitions_of(&host.folder);
    for problem in &definitions.problems {
        host.note(problem);
    }
    if !definitions.files.is_empty() {
        parts.push(ProjectPart::Definitions(host.folder.clone(), definitions));
    }
    if parts.is_empty() {
        let message =
            "this folder has no .allstop.toml, no .mcp.json, and no commands, skills or agents";
        return Err(CliError::usage(message).hint("change to the folder of the project"));
    }
    let trust = ProcessHost::project_trust()?;
    let mut names = Vec::new();
    for part in &parts {
        let remembered = trust.remember(&part.subject(), TrustAnswer::Trusted);
        remembered.context("the answer cannot be stored")?;
        names.push(match part {
            ProjectPart::Settings(file) => file.path.display().to_string(),
            ProjectPart::Servers(file) => file.path.display().to_string(),
            ProjectPart::Definitions(..) => part.name(),
        });
    }
    let mut text = format!(
        "trusted: {}. Each session in this folder now:\n",
        names.join(", ")
    );
    for line in parts.iter().flat_map(ProjectPart::describe) {
        text.extend(["  - ", &line, "\n"]);
    }
    text.push_str(
        "After a change of a file Allstop asks again; `allstop config untrust` withdraws the trust.\n",
    );
    let stdout = host.output.stdout();
    stdout.sentences(Styled::text(&text), OutputPriority::Required);
    Ok(0)
}

fn untrust(host: &ProcessHost) -> Result<u8, CliError> {
    let path = ProjectFile::path_in(&host.folder);
    let trust = ProcessHost::project_trust()?;
    let forgotten = trust.forget(&path).and_then(|settings| {
        let servers = trust.forget(&McpJsonFile::path_in(&host.folder))?;
        let definitions = trust.forget(&project::definitions_path(&host.folder))?;
        Ok(settings + servers + definitions)
    });
    let said = match forgotten.context("the answers cannot be removed")? {
        0 => format!("no saved answer about {}", path.display()),
        _ => format!(
            "answer deleted: {} is ignored until you trust it again",
            path.display()
        ),
    };
    let stdout = host.output.stdout();
    stdout.sentences(Styled::text(&said), OutputPriority::Required);
    Ok(0)
}

/// Effective configuration in this folder, and the trusted files of the project.
fn config_here(
    args: &ConfigShowArgs,
    host: &ProcessHost,
) -> Result<(Config, TrustedProject), CliError> {
    let project = project::trusted(&args.model, &host.folder, &StartReporter::new(host))?;
    Ok((config_of(&args.model, &project)?, project))
}

/// The system prompt, as the model receives it.
fn prompt(args: &ConfigShowArgs, host: &ProcessHost) -> Result<String, CliError> {
    let (config, _) = config_here(args, host)?;
    let now = std::time::SystemTime::now().into();
    let composed = ComposedPrompt::compose(&config, &host.folder, PromptTools::Builtin, now);
    for line in describe_instructions(&composed.instructions) {
        host.note(&line);
    }
    let Some(text) = composed.text() else {
        host.note("the system prompt is empty");
        return Ok(String::new());
    };
    Ok(format!("{text}\n"))
}

/// Settings as TOML, without the keys that are not set.
fn settings(args: &ConfigShowArgs, host: &ProcessHost) -> Result<String, CliError> {
    let user = args.model.config.clone().or_else(ProcessHost::config_file);
    let (mut config, project) = config_here(args, host)?;
    hide_secrets(&mut config);
    let settings = toml::to_string_pretty(&config).context("the configuration has no text form")?;
    let files: Vec<&Path> = user
        .as_deref()
        .into_iter()
        .chain(project.servers.as_ref().map(|file| &*file.path))
        .chain(project.file.as_ref().map(|file| &*file.path))
        .collect();
    Ok(format!("{}\n{settings}", origin(&files)))
}

/// Hides values that may contain a key, because users paste this output into reports.
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

/// Comment line with the files of the configuration. The last file has the highest precedence.
fn origin(files: &[&Path]) -> String {
    if files.is_empty() {
        return "# no configuration file: defaults, overridden by flags and environment variables"
            .to_owned();
    }
    let names: Vec<_> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    format!(
        "# {}, overridden by flags and environment variables",
        names.join(", then ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_store_is_not_shown() {
        let shown = toml::to_string_pretty(&Config::default()).expect("TOML");
        assert!(!shown.contains("[store]"), "{shown}");
    }

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
