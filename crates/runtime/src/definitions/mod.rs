//! Definitions in Markdown files: commands (prompts of the user), skills (instructions that the model loads when it
//! needs them), and agents (kinds of sub-agents).
//!
//! Files of the user come from the configuration folder and the home folder. Files of the project come with the code,
//! and therefore from another author. [`DefinitionFiles`] reads the files without any effect, so that a person can
//! decide about exactly the read bytes. [`Definitions`] gives them their effect. No file is read again later: a tool
//! that changes a file cannot change a trusted definition.
//!
//! A file that cannot be used is left out, with a line that gives the reason. A definition of the project replaces the
//! definition of the user with the same name.

mod agent;
mod command;
mod files;
mod folder;
mod front_matter;
mod skill;

use std::collections::BTreeMap;

pub use agent::AgentDefinition;
pub use command::CommandDefinition;
pub use files::{DefinitionFile, DefinitionFiles, DefinitionKind, UserFolders};
pub use skill::SkillDefinition;
pub(crate) use skill::SkillTool;

/// Definitions of the user and of the project, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Definitions {
    /// Prompts of the user, for `/NAME`.
    pub commands: BTreeMap<String, CommandDefinition>,
    /// Instructions that the model can load.
    pub skills: BTreeMap<String, SkillDefinition>,
    /// Kinds of sub-agents.
    pub agents: BTreeMap<String, AgentDefinition>,
    /// For each file that was left out, one readable line.
    pub problems: Vec<String>,
}

impl Definitions {
    /// Parses the files. Definitions in later groups of files replace definitions of the same name in earlier groups.
    pub fn parse<'a>(groups: impl IntoIterator<Item = &'a DefinitionFiles>) -> Self {
        let mut all = Self::default();
        for group in groups {
            all.problems.extend(group.problems.iter().cloned());
            // The places of a group are listed from the highest precedence to the lowest.
            for file in group.files.iter().rev() {
                if let Err(reason) = all.add(file) {
                    all.problems
                        .push(format!("{} is ignored: {reason}", file.path.display()));
                }
            }
        }
        all
    }

    fn add(&mut self, file: &DefinitionFile) -> Result<(), String> {
        match file.kind {
            DefinitionKind::Command => {
                let command = CommandDefinition::parse(file)?;
                self.commands.insert(command.name.clone(), command);
            }
            DefinitionKind::Skill => {
                let skill = SkillDefinition::parse(file)?;
                self.skills.insert(skill.name.clone(), skill);
            }
            DefinitionKind::Agent => {
                let agent = AgentDefinition::parse(file)?;
                self.agents.insert(agent.name.clone(), agent);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn project_replaces_the_user_and_own_places_come_first() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let skill = |text: &str| format!("---\ndescription: {text}\n---\nbody of {text}");
        write(&root, "config/commands/a.md", "user a");
        write(&root, "config/commands/b.md", "user b");
        write(&root, "home/.claude/skills/s/SKILL.md", &skill("user s"));
        write(&root, "project/.allstop/commands/a.md", "project a");
        write(
            &root,
            "project/.claude/skills/t/SKILL.md",
            &skill("claude t"),
        );
        write(&root, "project/.allstop/skills/t/SKILL.md", &skill("own t"));
        let user = DefinitionFiles::of_user(&UserFolders {
            config: Some(root.join("config")),
            home: Some(root.join("home")),
        });
        let project = DefinitionFiles::of_project(&root.join("project"), None);
        let all = Definitions::parse([&user, &project]);
        assert_eq!(all.problems, [""; 0]);
        assert_eq!(all.commands["a"].expand(""), "project a");
        assert_eq!(all.commands["b"].expand(""), "user b");
        assert_eq!(all.skills["s"].description, "user s");
        assert_eq!(all.skills["t"].description, "own t");
    }

    #[test]
    fn parts_of_a_plugin_stay_in_its_folder() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let skill = "---\ndescription: Greets.\n---\nHello.";
        for path in ["p/one/SKILL.md", "p/skills/two/SKILL.md", "out/SKILL.md"] {
            write(&root, path, skill);
        }
        write(&root, "p/agents/a.agent.md", "---\ndescription: A.\n---\nb");
        write(&root, "secret", skill);
        symlink(root.join("secret"), root.join("p/agents/b.md")).unwrap();
        symlink(root.join("out"), root.join("p/skills/three")).unwrap();
        let plugin = root.join("p");
        let skills = [plugin.join("one"), plugin.join("skills")];
        let found = DefinitionFiles::of_plugin(&plugin, &skills, &[plugin.join("agents")]);
        let all = Definitions::parse([&found]);
        let names = |all: Vec<&String>| all.into_iter().cloned().collect::<Vec<_>>();
        assert_eq!(names(all.skills.keys().collect()), ["one", "two"]);
        assert_eq!(names(all.agents.keys().collect()), ["a"]);
        assert_eq!(all.problems.len(), 2, "{:?}", all.problems);
    }

    /// No content of these files may end the program, or be read without a limit.
    #[test]
    fn unusable_files_are_left_out_with_a_reason() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        write(&root, "secret.md", "secret");
        write(&root, "p/.allstop/commands/good.md", "good");
        write(&root, "p/.allstop/commands/bad name.md", "x");
        write(
            &root,
            "p/.allstop/commands/open.md",
            "---\ndescription: x\n",
        );
        write(
            &root,
            "p/.allstop/commands/wrong.md",
            "---\ndescription: [x\n---\nx",
        );
        write(
            &root,
            "p/.allstop/commands/empty.md",
            "---\ndescription: x\n---\n \n",
        );
        write(&root, "p/.allstop/skills/none/SKILL.md", "no front matter");
        write(
            &root,
            "p/.allstop/agents/odd.md",
            "---\ndescription: x\ntools: 7\n---\nx",
        );
        let commands = root.join("p/.allstop/commands");
        fs::write(commands.join("binary.md"), b"\xff\xfe").unwrap();
        fs::File::create(commands.join("huge.md"))
            .and_then(|file| file.set_len(1 << 40))
            .unwrap();
        symlink(root.join("secret.md"), commands.join("out.md")).unwrap();
        let (fifo, owner) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        let pipe = commands.join("pipe.md");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, owner, 0).unwrap();
        let files = DefinitionFiles::of_project(&root.join("p"), None);
        let all = Definitions::parse([&files]);
        let names: Vec<_> = all.commands.keys().collect();
        assert_eq!(names, ["good"]);
        assert!(all.skills.is_empty() && all.agents.is_empty());
        for (file, reason) in [
            ("bad name.md", "a name has 1 to 64 letters"),
            ("open.md", "has no end"),
            ("wrong.md", "line 1"),
            ("empty.md", "is empty"),
            ("none/SKILL.md", "`description`"),
            ("odd.md", "a list of names"),
            ("binary.md", "not UTF-8"),
            ("huge.md", "at most 65536"),
            ("out.md", "outside the working directory"),
            ("pipe.md", "named pipe"),
        ] {
            let mut lines = all.problems.iter();
            let line = lines.find(|line| line.contains(file));
            let line = line.unwrap_or_else(|| panic!("{file}: {:#?}", all.problems));
            assert!(line.contains(reason), "{file}: {line}");
        }
        assert_eq!(all.problems.len(), 10, "{:#?}", all.problems);
    }

    #[test]
    fn a_thousand_files_are_bounded() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..1_000 {
            write(
                place.path(),
                &format!(".allstop/commands/c{number:03}.md"),
                "x",
            );
        }
        let files = DefinitionFiles::of_project(place.path(), None);
        let all = Definitions::parse([&files]);
        assert_eq!(all.commands.len(), 200);
        assert!(all.commands.contains_key("c000") && !all.commands.contains_key("c200"));
        assert_eq!(all.problems.len(), 1, "{:?}", all.problems);
        assert!(all.problems[0].contains("800 of its 1,000 entries are ignored"));
    }

    #[test]
    fn fingerprint_changes_with_each_byte_and_name() {
        let place = tempfile::tempdir().unwrap();
        let print = || DefinitionFiles::of_project(place.path(), None).fingerprint();
        write(place.path(), ".allstop/commands/a.md", "x");
        let first = print();
        write(place.path(), ".allstop/commands/a.md", "y");
        let second = print();
        fs::rename(
            place.path().join(".allstop/commands/a.md"),
            place.path().join(".allstop/commands/b.md"),
        )
        .unwrap();
        assert!(first != second && second != print());
    }
}
