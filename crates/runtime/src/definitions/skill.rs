//! Skills: instructions that the model loads with the tool `skill` when it needs them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use allstop_core::Effect;
use allstop_core::terminal_text::{escape, is_unsafe};
use allstop_tools::schema::schema_of;
use allstop_tools::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec, names};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::files::DefinitionFile;
use super::front_matter::{description, name, split};

const DESCRIPTION: &str = "Loads the instructions of a skill. Call it before you begin a task that one of these skills \
    describes. A skill may name files in its folder: read them when they are needed. Skills:";

/// Maximum size of the list of skills, in bytes: about 4,000 tokens. Every model call sends the list.
const LIST_BYTES_MAX: usize = 16 * 1024;

/// Instructions with a name and a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillDefinition {
    /// Name, by which the model loads the skill.
    pub name: String,
    /// Description for the model, as one line.
    pub description: String,
    /// File of the skill.
    pub path: PathBuf,
    instructions: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SkillValues {
    name: Option<String>,
    description: Option<String>,
}

impl SkillDefinition {
    pub(super) fn parse(file: &DefinitionFile) -> Result<Self, String> {
        let (values, instructions) = split::<SkillValues>(&file.text)?;
        Ok(Self {
            name: name(values.name.as_deref().unwrap_or(&file.name))?,
            description: description(values.description.as_deref())?,
            path: file.path.clone(),
            instructions,
        })
    }

    /// Folder with further files of the skill.
    /// The text below the front matter.
    pub fn instructions(&self) -> &str {
        &self.instructions
    }

    pub(crate) fn folder(&self) -> Option<&std::path::Path> {
        self.path.parent()
    }
}

/// Arguments of `skill`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkillArguments {
    /// Name of the skill.
    skill: String,
}

/// Tool with which the model loads a skill. The answer comes from memory, so the call starts no work.
#[derive(Debug)]
pub(crate) struct SkillTool {
    spec: ToolSpec,
    skills: BTreeMap<String, SkillDefinition>,
}

impl SkillTool {
    /// Creates the tool; `None` without skills.
    pub(crate) fn of(skills: &BTreeMap<String, SkillDefinition>) -> Option<Self> {
        if skills.is_empty() {
            return None;
        }
        let mut text = DESCRIPTION.to_owned();
        for (at, skill) in skills.values().enumerate() {
            let line = format!(
                "\n- {}: {}",
                skill.name,
                escape(&skill.description, is_unsafe)
            );
            if text.len() + line.len() > LIST_BYTES_MAX {
                // Writing to a string cannot fail. The names alone have a bound: 64 bytes for each of 800 skills.
                let rest: Vec<&str> = skills.keys().skip(at).map(String::as_str).collect();
                let _ = write!(text, "\n- without a description here: {}", rest.join(", "));
                break;
            }
            text.push_str(&line);
        }
        let spec = ToolSpec::new(names::SKILL, text, schema_of::<SkillArguments>())
            .effect(Effect::ReadOnly)
            .parallel(true);
        Some(Self {
            spec,
            skills: skills.clone(),
        })
    }

    fn load(&self, invocation: &ToolInvocation) -> Result<String, ToolError> {
        let arguments = SkillArguments::deserialize(&*invocation.arguments).map_err(|error| {
            ToolError::new(format!("wrong arguments for `{}`: {error}", names::SKILL))
        })?;
        let skill = self.skills.get(&arguments.skill).ok_or_else(|| {
            let known: Vec<&str> = self.skills.keys().map(String::as_str).collect();
            ToolError::new(format!(
                "unknown skill {:?}; known skills: {}",
                arguments.skill,
                known.join(", ")
            ))
        })?;
        let folder = skill.folder().unwrap_or(&skill.path).display();
        Ok(format!(
            "Skill {}; its files are in {folder}.\n\n{}",
            skill.name, skill.instructions
        ))
    }
}

impl Tool for SkillTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        let loaded = self.load(&invocation);
        Box::pin(std::future::ready(loaded.map(ToolOutput::from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_skills_is_bounded_and_one_line_each() {
        let mut skills = BTreeMap::new();
        for number in 0..200 {
            let name = format!("s{number:03}");
            let description = format!("does\u{1b}[2J {}", "x".repeat(500));
            skills.insert(
                name.clone(),
                SkillDefinition {
                    name,
                    description,
                    path: PathBuf::from("/s/SKILL.md"),
                    instructions: "x".to_owned(),
                },
            );
        }
        let tool = SkillTool::of(&skills).unwrap();
        let text = &tool.spec().description;
        assert!(text.len() < LIST_BYTES_MAX + 200 * 70, "{}", text.len());
        assert!(text.contains("s199") && !text.contains('\u{1b}'), "{text}");
        assert!(SkillTool::of(&BTreeMap::new()).is_none());
    }
}
