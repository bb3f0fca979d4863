//! The system prompt of a session, in named sections. The first sections are the configured text, or the default texts
//! with the session's environment. The project's instructions (`AGENTS.md`) follow.
//!
//! The prompt is composed when a session is opened. It does not change while the session is open, because a changing
//! prompt makes the provider's cache useless.

mod environment;
mod git;
mod project;
mod sections;

use std::path::Path;
use std::sync::Arc;

use allstop_core::Timestamp;

pub use project::{InstructionFile, ProjectInstructions};
pub use sections::PromptSection;

use crate::config::Config;
use environment::SessionEnvironment;
use git::Repository;
use sections::PromptTexts;

/// Sections of the default prompt with a fixed text. They are short, because every model call sends them.
const DEFAULT_TEXTS: [(PromptSection, &str); 5] = [
    (PromptSection::Identity, include_str!("text/identity.md")),
    (PromptSection::Tone, include_str!("text/tone.md")),
    (PromptSection::Rules, include_str!("text/rules.md")),
    (PromptSection::Safety, include_str!("text/safety.md")),
    (PromptSection::Stops, include_str!("text/stops.md")),
];
/// The rules for built-in tools; left out in a session with other tools.
const TOOL_RULES: &str = include_str!("text/tools.md");

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
    texts: PromptTexts,
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
        let mut texts = PromptTexts::default();
        if let Some(configured) = &config.system_prompt {
            texts.set(PromptSection::Identity, configured);
        } else {
            for (section, text) in DEFAULT_TEXTS {
                texts.set(section, text);
            }
            if tools == PromptTools::Builtin {
                texts.set(PromptSection::Tools, TOOL_RULES);
            }
            let environment = SessionEnvironment::of(&folder, repository.as_ref(), now);
            texts.set(PromptSection::Environment, &environment.to_string());
        }
        texts.set(PromptSection::Instructions, &instructions.text());
        Self {
            texts,
            instructions,
        }
    }

    /// Returns the whole text; `None` for a session without system prompt.
    pub fn text(&self) -> Option<Arc<str>> {
        self.texts.joined()
    }

    /// Returns the text of a section, which is empty if the prompt lacks the section.
    pub fn section(&self, section: PromptSection) -> &str {
        self.texts.get(section)
    }

    /// Replaces the text of a section. An empty text removes the section.
    pub fn set_section(&mut self, section: PromptSection, text: &str) {
        if section == PromptSection::Instructions && text.is_empty() {
            self.instructions = ProjectInstructions::default();
        }
        self.texts.set(section, text);
    }

    /// Adds the further text of the session's opener.
    #[must_use]
    pub(crate) fn with_additions(mut self, text: &str) -> Self {
        self.set_section(PromptSection::Additions, text);
        self
    }
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
        let prompt = compose("", place.path()).text().unwrap();
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
            ComposedPrompt::compose(&config, place.path(), PromptTools::Chosen, now()).text();
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
                .text()
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
