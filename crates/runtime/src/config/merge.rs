//! Merge of the user's configuration with the configuration of a project.
//!
//! A setting of the project replaces the setting of the user. A list is added to the user's list, so a project cannot
//! remove deny rules, hooks or guardrails. If an MCP server of the project has the name of a user's server, the
//! project's server replaces the user's server completely. The model is also replaced completely, because the server,
//! the key and the settings of requests belong to the model.

use std::path::Path;

use toml::{Table, Value};

use super::project::ProjectFile;
use super::{Config, ConfigError, ModelConfig};

impl Config {
    /// Reads the user's file, if any, and applies the settings of a project.
    ///
    /// # Errors
    /// Returns the first error in the user's file, or in a file that either configuration names.
    pub fn load_with_project(
        user: Option<&Path>,
        project: Option<&ProjectFile>,
    ) -> Result<Self, ConfigError> {
        let user = match user {
            Some(path) => Self::load(path)?,
            None => Self::default(),
        };
        let Some(project) = project else {
            return Ok(user);
        };
        let mut config = user.with_project(project).map_err(|error| {
            let message = format!("cannot be merged into the configuration: {error}");
            ConfigError::of_file(&project.path, message, "please report this error")
        })?;
        config.read_system_prompt()?;
        Ok(config)
    }

    fn with_project(self, project: &ProjectFile) -> Result<Self, Box<dyn std::error::Error>> {
        let mut merged = Table::try_from(self)?;
        replace_wholes(&mut merged, project);
        let over = Table::try_from(&project.config)?;
        overlay(&mut merged, over, project.tables());
        Ok(merged.try_into()?)
    }
}

/// Removes the user's settings of each group that the project replaces as a whole: the prompt, the model, an MCP
/// server.
fn replace_wholes(user: &mut Table, project: &ProjectFile) {
    if ["system_prompt", "system_prompt_file"]
        .iter()
        .any(|key| project.sets(&[key]))
    {
        user.remove("system_prompt");
    }
    let choice = ["name", "base_url", "api_key_env"];
    let of_model = [&choice[..], &["context_window", "price"]].concat();
    if choice.iter().any(|key| project.sets(&["model", key]))
        && let Some(Value::Table(model)) = user.get_mut("model")
    {
        if is_another_model(model, &project.config.model) {
            model.remove("request");
        }
        for key in of_model {
            model.remove(key);
        }
    }
    if let Some(Value::Table(mcp)) = user.get_mut("mcp")
        && let Some(Value::Table(servers)) = mcp.get_mut("servers")
    {
        for name in project.config.mcp.servers.keys() {
            servers.remove(name);
        }
    }
}

/// True if the user's file names a model, and the project another one. Without a model in the user's file, the settings of
/// requests there are for any model.
fn is_another_model(user: &Table, project: &ModelConfig) -> bool {
    let text = |key: &str| user.get(key).and_then(Value::as_str);
    let choice = (project.name.as_deref(), project.base_url.as_deref());
    user.contains_key("name") && (text("name"), text("base_url")) != choice
}

/// Copies the values of `over` into `base` if their keys are in `given`. The other values of `over` are defaults.
fn overlay(base: &mut Table, mut over: Table, given: &Table) {
    for (key, given) in given {
        let Some(value) = over.remove(key) else {
            continue;
        };
        match (base.get_mut(key), value, given) {
            (Some(Value::Table(base)), Value::Table(value), Value::Table(given)) => {
                overlay(base, value, given);
            }
            (Some(Value::Array(base)), Value::Array(value), _) => base.extend(value),
            (_, value, _) => {
                base.insert(key.clone(), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::project::ProjectFileSearch;
    use super::*;

    /// Merges the configurations of a user and of a project.
    fn merged(user: &str, project: &str) -> Config {
        let place = tempfile::tempdir().unwrap();
        let user_file = place.path().join("user.toml");
        fs::write(&user_file, user).unwrap();
        fs::write(place.path().join("prompt.md"), "Of the project.").unwrap();
        fs::write(place.path().join(".allstop.toml"), project).unwrap();
        let Ok(ProjectFileSearch::Found(file)) = ProjectFile::find(place.path()) else {
            panic!("the project's file is valid");
        };
        Config::load_with_project(Some(&user_file), Some(&file)).unwrap()
    }

    fn parse(text: &str) -> Config {
        Config::parse(Path::new("test.toml"), text).unwrap()
    }

    #[test]
    fn request_settings_are_merged_by_key() {
        let user = "[model.request]\ntemperature = 0.5\nseed = 7\ntool_choice = { tool = 'read' }\n\
                    provider_options = { user = 'me', a = { b = 1 } }";
        let project =
            "[model.request]\nseed = 8\ntool_choice = 'auto'\nprovider_options = { a = { c = 2 } }";
        let expected = "[model.request]\ntemperature = 0.5\nseed = 8\n\
                        provider_options = { user = 'me', a = { b = 1, c = 2 } }";
        assert_eq!(merged(user, project), parse(expected));
    }

    #[test]
    fn settings_replace_and_lists_are_added_to() {
        let user = "on_stop = 'keep'\n[limits]\nmax_steps = 7\nmax_turns = 9\nloops = { repeats = 2 }\n\
                    [deadlines]\ngrace = '4s'\n\
                    [permissions]\nallow = ['read']\ndeny = ['shell:git push']\n\
                    [[hooks]]\non = 'stop'\ncommand = 'mine'";
        let project = "[limits]\nmax_steps = 3\nloops = { ping_pongs = 8 }\n[deadlines]\nturn = '5m'\n\
                       [permissions]\nallow = ['shell:cargo test']\ndeny = []\n\
                       [[hooks]]\non = 'stop'\ncommand = 'theirs'";
        let expected = "on_stop = 'keep'\n[limits]\nmax_steps = 3\nmax_turns = 9\nloops = { repeats = 2, ping_pongs = 8 }\n\
                        [deadlines]\ngrace = '4s'\nturn = '5m'\n\
                        [permissions]\nallow = ['read', 'shell:cargo test']\ndeny = ['shell:git push']\n\
                        [[hooks]]\non = 'stop'\ncommand = 'mine'\n[[hooks]]\non = 'stop'\ncommand = 'theirs'";
        assert_eq!(merged(user, project), parse(expected));
        assert_eq!(merged(user, "# nothing"), parse(user));
        assert_eq!(merged("", expected), parse(expected));
    }

    #[test]
    fn model_with_its_server_and_key_is_replaced_as_a_whole() {
        let user = "[model]\nname = 'mine'\nbase_url = 'http://mine/v1'\napi_key_env = 'MINE'\nretries = 5\ncontext_window = 9\nprice = {input = 1.0, output = 2.0}";
        let with_name = merged(user, "[model]\nname = 'theirs'");
        assert_eq!(with_name, parse("[model]\nname = 'theirs'\nretries = 5"));
        let with_url = merged(user, "[model]\nbase_url = 'http://theirs/v1'");
        let expected = "[model]\nbase_url = 'http://theirs/v1'\nretries = 5";
        assert_eq!(with_url, parse(expected), "no key of the user for them");
        let without = merged(user, "[model]\nretries = 1");
        assert_eq!(without, parse(&user.replace('5', "1")));
    }

    #[test]
    fn settings_of_requests_belong_to_the_model_of_their_file() {
        let request = "request = { seed = 7, stop_sequences = ['END'] }\nmax_output_tokens = 9";
        let user = format!("[model]\nname = 'mine'\n{request}");
        let another = merged(&user, "[model]\nname = 'theirs'\nrequest = { top_p = 0.5 }");
        let expected = "[model]\nname = 'theirs'\nmax_output_tokens = 9\nrequest = { top_p = 0.5 }";
        assert_eq!(another, parse(expected));
        let equal = merged(&user, "[model]\nname = 'mine'");
        assert_eq!(equal, parse(&user));
        let any = merged(&format!("[model]\n{request}"), "[model]\nname = 'theirs'");
        assert_eq!(any, parse(&format!("[model]\nname = 'theirs'\n{request}")));
    }

    #[test]
    fn mcp_server_of_the_same_name_is_replaced_as_a_whole() {
        let user = "[mcp.servers.a]\ncommand = 'a'\nargs = ['x']\nenv = { A = '1' }\n[mcp.servers.b]\ncommand = 'b'";
        let project = "[mcp.servers.a]\nurl = 'http://127.0.0.1:1/mcp'";
        let expected =
            "[mcp.servers.a]\nurl = 'http://127.0.0.1:1/mcp'\n[mcp.servers.b]\ncommand = 'b'";
        assert_eq!(merged(user, project), parse(expected));
    }

    #[test]
    fn prompt_of_the_project_replaces_that_of_the_user() {
        let config = merged("system_prompt = 'mine'", "system_prompt_file = 'prompt.md'");
        assert_eq!(config.system_prompt.as_deref(), Some("Of the project."));
        let config = merged("system_prompt_file = 'prompt.md'", "on_stop = 'keep'");
        assert_eq!(config.system_prompt.as_deref(), Some("Of the project."));
    }
}
