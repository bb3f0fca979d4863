//! The system prompt of a session. The prompt has two parts. The first part is the configured text, or the default text
//! with the session's environment. The second part is the project's instructions (`AGENTS.md`).
//!
//! The prompt is composed when a session is opened. It does not change while the session is open, because a changing
//! prompt makes the provider's cache useless.

mod environment;
mod git;
mod project;

use std::path::Path;
use std::sync::Arc;

use allstop_core::Timestamp;

pub use project::{InstructionFile, ProjectInstructions};

use crate::config::Config;
use environment::SessionEnvironment;
use git::Repository;

/// The default prompt: role and rules. Short, because every model call sends it.
const ROLE: &str = include_str!("role.md");
/// The rules for built-in tools; left out in a session with other tools.
const TOOL_RULES: &str = include_str!("tools.md");

/// Tools of the session that a prompt describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PromptTools {
    /// The built-in tools.
    Builtin,
    /// Tools that the caller who opens the session has chosen.
    Chosen,
}

/// The system prompt of a session, and the instruction files that it contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComposedPrompt {
    /// The text; `None` for a session without system prompt.
    pub text: Option<Arc<str>>,
    /// The project's instructions in the text, and the instructions that were left out.
    pub instructions: ProjectInstructions,
}

impl ComposedPrompt {
    /// Composes the prompt of a session in this folder. Reads files, so call it on a thread that may block.
    pub fn compose(config: &Config, folder: &Path, tools: PromptTools, now: Timestamp) -> Self {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let repository = Repository::around(&folder);
        let instructions = if config.project_instructions.unwrap_or(true) {
            let root = repository.as_ref().map_or(&*folder, Repository::root);
            ProjectInstructions::read(root, &folder)
        } else {
            ProjectInstructions::default()
        };
        let base_text = match &config.system_prompt {
            Some(configured) => configured.clone(),
            None => default_prompt(
                tools,
                &SessionEnvironment::of(&folder, repository.as_ref(), now),
            ),
        };
        let instructions_text = instructions.text();
        let base = Self {
            text: None,
            instructions,
        };
        base.append(base_text.trim_end()).append(&instructions_text)
    }

    /// Adds a section, unless it is empty.
    #[must_use]
    pub(crate) fn append(mut self, section: &str) -> Self {
        if !section.is_empty() {
            self.text = Some(match self.text {
                Some(text) => format!("{text}\n\n{section}").into(),
                None => section.into(),
            });
        }
        self
    }
}

fn default_prompt(tools: PromptTools, environment: &SessionEnvironment) -> String {
    let rules = match tools {
        PromptTools::Builtin => TOOL_RULES,
        PromptTools::Chosen => "",
    };
    format!("{ROLE}{rules}\n{environment}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_unix_ms(1_795_564_800_000)
    }

    fn compose(config: &str, folder: &Path) -> ComposedPrompt {
        let config = Config::parse(Path::new("test.toml"), config).unwrap();
        ComposedPrompt::compose(&config, folder, PromptTools::Builtin, now())
    }

    #[test]
    fn default_prompt_names_the_environment() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join(".git")).unwrap();
        fs::write(place.path().join(".git/HEAD"), "ref: refs/heads/fix/it\n").unwrap();
        fs::write(place.path().join(".git/MERGE_HEAD"), "0").unwrap();
        let prompt = compose("", place.path()).text.unwrap();
        let folder = place.path().canonicalize().unwrap();
        for part in [
            "You are",
            "`shell`",
            &format!("Working directory: {}\n", folder.display()),
            "Date: 2026-11-25 (UTC)\n",
            "Git: branch fix/it; a merge is in progress",
        ] {
            assert!(prompt.contains(part), "{part:?} is not in:\n{prompt}");
        }
        assert!(prompt.len() < 3_000, "short: {} bytes", prompt.len());
    }

    #[test]
    fn tool_rules_are_left_out_where_the_tools_are_others() {
        let place = tempfile::tempdir().unwrap();
        let config = Config::default();
        let prompt =
            ComposedPrompt::compose(&config, place.path(), PromptTools::Chosen, now()).text;
        let prompt = prompt.unwrap();
        assert!(
            prompt.contains("You are") && !prompt.contains("`shell`"),
            "{prompt}"
        );
        assert!(prompt.contains("Git: no repository"), "{prompt}");
    }

    #[test]
    fn configured_prompt_keeps_the_project_instructions() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("AGENTS.md"), "Use tabs.\n").unwrap();
        let text = |config| {
            compose(config, place.path())
                .text
                .map(|text| text.to_string())
        };
        let replaced = text("system_prompt = 'Be brief.'").unwrap();
        assert!(replaced.starts_with("Be brief.\n\n"), "{replaced}");
        assert!(replaced.contains("Use tabs."), "{replaced}");
        assert!(!replaced.contains("Working directory"), "{replaced}");
        let off = "system_prompt = 'Be brief.'\nproject_instructions = false";
        assert_eq!(text(off).unwrap(), "Be brief.");
        assert_eq!(
            text("system_prompt = ''\nproject_instructions = false"),
            None
        );
    }
}
