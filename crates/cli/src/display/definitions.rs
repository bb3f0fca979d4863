//! Commands, skills and agents from files, as lines for people.

use std::fmt::Write as _;
use std::path::Path;

use allstop_core::counted::counted;
use allstop_core::terminal_text::{escape, is_unsafe, is_unsafe_in_question};
use allstop_runtime::{AgentDefinition, DefinitionFiles, Definitions};

use crate::chat::without_builtin_names;

/// Number of definitions of one kind that have a separate line in a question. The rest are named in one line.
const LINES_MAX: usize = 12;
/// Maximum length of a description in a line, in characters.
const DESCRIPTION_CHARS_MAX: usize = 100;

/// Describes the definitions in a project's files: one line for each, up to a limit. Invisible characters are escaped.
pub(crate) fn describe_project_definitions(files: &DefinitionFiles, folder: &Path) -> Vec<String> {
    let all = without_builtin_names(Definitions::parse([files]));
    let place = |path: &Path| {
        let path = path.strip_prefix(folder).unwrap_or(path);
        path.display().to_string()
    };
    let commands = all.commands.values().map(|command| {
        let description = command.description.as_deref().unwrap_or_default();
        let what = format!("adds the command /{}", command.name);
        (
            command.name.as_str(),
            line(&what, &place(&command.path), description),
        )
    });
    let skills = all.skills.values().map(|skill| {
        let what = format!("offers the model the skill {}", skill.name);
        (
            skill.name.as_str(),
            line(&what, &place(&skill.path), &skill.description),
        )
    });
    let agents = all.agents.values().map(|agent| {
        let what = format!("offers the model the agent {}{}", agent.name, parts(agent));
        (
            agent.name.as_str(),
            line(&what, &place(&agent.path), &agent.description),
        )
    });
    let mut lines = limited("commands", commands.collect());
    lines.extend(limited("skills", skills.collect()));
    lines.extend(limited("agents", agents.collect()));
    let escaped = lines.iter();
    escaped
        .map(|line| escape(line, is_unsafe_in_question).into_owned())
        .collect()
}

/// The number of definitions of each kind: `2 commands, 1 skill`.
pub(crate) fn count_definitions(all: &Definitions) -> String {
    let counts = [
        (all.commands.len(), "command", "commands"),
        (all.skills.len(), "skill", "skills"),
        (all.agents.len(), "agent", "agents"),
    ];
    let counts = counts.iter().filter(|(count, ..)| *count > 0);
    let counts = counts.map(|(count, one, many)| counted(*count as u64, one, many));
    counts.collect::<Vec<_>>().join(", ")
}

/// The part of a help text about the definitions. Empty without definitions.
pub(crate) fn help_on_definitions(all: &Definitions) -> String {
    let mut text = String::new();
    let mut section = |title: &str, lines: Vec<(String, &str)>| {
        if lines.is_empty() {
            return;
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{title}");
        for (name, description) in lines {
            let line = format!("{name:<19} {}", cut(description));
            let _ = write!(text, "\n  {}", escape(line.trim_end(), is_unsafe));
        }
    };
    let commands = all.commands.values().map(|command| {
        let hint = command.argument_hint.as_deref().unwrap_or_default();
        let usage = format!("/{} {}", command.name, cut(hint));
        (
            usage.trim_end().to_owned(),
            command.description.as_deref().unwrap_or_default(),
        )
    });
    section("Commands from files:", commands.collect());
    let skills = all.skills.values();
    let skills = skills.map(|skill| (skill.name.clone(), &*skill.description));
    section(
        "Skills, which the model loads when it needs them:",
        skills.collect(),
    );
    let agents = all.agents.values();
    let agents = agents.map(|agent| (agent.name.clone(), &*agent.description));
    section("Agents, which the model can start:", agents.collect());
    text
}

fn line(what: &str, place: &str, description: &str) -> String {
    let description = cut(description);
    let separator = if description.is_empty() { "" } else { ": " };
    format!("{what} ({place}){separator}{description}")
}

fn parts(agent: &AgentDefinition) -> String {
    let tools = agent.tools.as_ref();
    let tools = tools.map(|tools| format!(" with the tools {}", tools.join(", ")));
    let model = agent.model.as_ref();
    let model = model.map(|model| format!(" on the model {model}"));
    [tools, model].into_iter().flatten().collect()
}

/// The first lines, and one line with the names of the rest.
fn limited(kind: &str, lines: Vec<(&str, String)>) -> Vec<String> {
    let rest: Vec<&str> = lines
        .iter()
        .skip(LINES_MAX)
        .map(|(name, _)| *name)
        .collect();
    let last =
        (!rest.is_empty()).then(|| format!("adds {} more {kind}: {}", rest.len(), rest.join(", ")));
    let first = lines.into_iter().take(LINES_MAX).map(|(_, line)| line);
    first.chain(last).collect()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(DESCRIPTION_CHARS_MAX) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn question_escapes_texts_and_names_every_definition() {
        let place = tempfile::tempdir().unwrap();
        let commands = place.path().join(".allstop/commands");
        fs::create_dir_all(&commands).unwrap();
        let hostile = "---\ndescription: \"a\\e[2Jb\\u202Ec\"\n---\nx";
        fs::write(commands.join("a.md"), hostile).unwrap();
        for number in 10..30 {
            fs::write(commands.join(format!("c{number}.md")), "x").unwrap();
        }
        let files = DefinitionFiles::of_project(place.path(), None);
        let lines = describe_project_definitions(&files, place.path());
        assert_eq!(lines.len(), LINES_MAX + 1);
        let first = "adds the command /a (.allstop/commands/a.md): a\\u{1b}[2Jb\\u{202e}c";
        assert_eq!(lines[0], first);
        let last = lines.last().unwrap();
        assert!(last.starts_with("adds 9 more commands: c21, c22"), "{last}");
        assert!(last.ends_with("c29"), "{last}");
    }
}
