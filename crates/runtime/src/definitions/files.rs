//! Search for the files of definitions, without any effect.

use std::path::{Path, PathBuf};

use allstop_tools::Workspace;

use super::folder::{names, read_own};

/// Maximum size of a file, in bytes: many times the usual size, and little enough for the context of a model.
const FILE_BYTES_MAX: usize = 64 * 1024;
/// End of the names of other files.
const EXTENSION: &str = ".md";
/// End of the names of agents in some folders, before the end of the names of all files.
const AGENT_SUFFIX: &str = ".agent";
/// File of a skill, in the folder of the skill.
const SKILL_FILE: &str = "SKILL.md";
/// Folders of skills in a project or in a home folder, from the highest precedence to the lowest. Other agents use the
/// last two.
const SKILL_FOLDERS: [&str; 3] = [".allstop/skills", ".agents/skills", ".claude/skills"];

/// Kind of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionKind {
    /// A prompt of the user.
    Command,
    /// Instructions that the model can load.
    Skill,
    /// A kind of sub-agent.
    Agent,
}

/// A file that was read, and has no effect yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionFile {
    /// Kind of the definition, from the folder of the file.
    pub kind: DefinitionKind,
    /// Name, from the path.
    pub name: String,
    /// Absolute path.
    pub path: PathBuf,
    /// Content. The program uses exactly the bytes that a person trusts.
    pub text: String,
}

/// Files of the user or of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefinitionFiles {
    /// The files. If two files define the same name, the first file counts.
    pub files: Vec<DefinitionFile>,
    /// For each file that was left out, one readable line.
    pub problems: Vec<String>,
}

/// Folders of the user; `None` if a folder is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserFolders {
    /// Folder of the configuration, with the folders `commands`, `skills` and `agents`.
    pub config: Option<PathBuf>,
    /// Home folder, in which other agents keep skills.
    pub home: Option<PathBuf>,
}

impl DefinitionFiles {
    /// Reads the files of a project in this working directory. As for the configuration of a project, only the working
    /// directory counts. A link that leads out of the folder, and a file of another user, are left out. If the folder is
    /// the home folder, the skills of other agents there belong to the user, not to a project.
    pub fn of_project(folder: &Path, home: Option<&Path>) -> Self {
        let mut found = Self::default();
        let Ok(workspace) = Workspace::new(folder) else {
            return found;
        };
        let own = rustix::process::geteuid().as_raw();
        let read = |path: &Path| {
            let below = path.strip_prefix(folder).unwrap_or(path).to_string_lossy();
            let read = workspace.read_beginning(&below, FILE_BYTES_MAX + 1);
            match read.map_err(|error| error.message)? {
                Some(file) if file.owner != own => {
                    Err(format!("it belongs to another user (uid {})", file.owner))
                }
                read => Ok(read.map(|file| (file.bytes, file.len))),
            }
        };
        found.flat(
            DefinitionKind::Command,
            &folder.join(".allstop/commands"),
            &read,
        );
        let is_home =
            home.is_some_and(|home| home.canonicalize().ok() == folder.canonicalize().ok());
        let own_only = if is_home { 1 } else { SKILL_FOLDERS.len() };
        for skills in SKILL_FOLDERS.iter().take(own_only) {
            found.skills(&folder.join(skills), &read);
        }
        found.flat(
            DefinitionKind::Agent,
            &folder.join(".allstop/agents"),
            &read,
        );
        found
    }

    /// Reads the files of the user.
    pub fn of_user(folders: &UserFolders) -> Self {
        let mut found = Self::default();
        let read = |path: &Path| read_own(path, FILE_BYTES_MAX);
        if let Some(config) = &folders.config {
            found.flat(DefinitionKind::Command, &config.join("commands"), &read);
            found.skills(&config.join("skills"), &read);
            found.flat(DefinitionKind::Agent, &config.join("agents"), &read);
        }
        if let Some(home) = &folders.home {
            for skills in SKILL_FOLDERS.iter().skip(1) {
                found.skills(&home.join(skills), &read);
            }
        }
        found
    }

    /// Reads the skills in these folders, from the highest precedence to the lowest.
    pub fn of_skill_folders(folders: &[PathBuf]) -> Self {
        let mut found = Self::default();
        let read = |path: &Path| read_own(path, FILE_BYTES_MAX);
        for folder in folders {
            found.skills(folder, &read);
        }
        found
    }

    /// Reads the agents in these folders, from the highest precedence to the lowest. The name of a file may end with
    /// `.agent.md`, as other agents require it.
    pub fn of_agent_folders(folders: &[PathBuf]) -> Self {
        let mut found = Self::default();
        found.agents(folders, &|path: &Path| read_own(path, FILE_BYTES_MAX));
        found
    }

    /// Reads the skills and agents of a plugin. A folder is a skill if it has a `SKILL.md`, and otherwise contains the
    /// folders of skills. A file that a link finds outside the folder of the plugin, and a file of another user except
    /// root, are left out.
    pub fn of_plugin(root: &Path, skills: &[PathBuf], agents: &[PathBuf]) -> Self {
        let mut found = Self::default();
        let Ok(workspace) = Workspace::new(root) else {
            return found;
        };
        let owners = [0, rustix::process::geteuid().as_raw()];
        let read = |path: &Path| {
            let below = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
            let read = workspace.read_beginning(&below, FILE_BYTES_MAX + 1);
            match read.map_err(|error| error.message)? {
                Some(file) if !owners.contains(&file.owner) => {
                    Err(format!("it belongs to another user (uid {})", file.owner))
                }
                read => Ok(read.map(|file| (file.bytes, file.len))),
            }
        };
        for folder in skills {
            let file = folder.join(SKILL_FILE);
            if file.symlink_metadata().is_err() {
                found.skills(folder, &read);
                continue;
            }
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            found.add(DefinitionKind::Skill, name.into_owned(), file, &read);
        }
        found.agents(agents, &read);
        found
    }

    /// Bytes that differ if any file, any name or any path differs.
    pub fn fingerprint(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for file in &self.files {
            for part in [file.path.to_string_lossy().as_bytes(), file.text.as_bytes()] {
                bytes.extend((part.len() as u64).to_le_bytes());
                bytes.extend(part);
            }
        }
        bytes
    }

    /// Reads `NAME.md` for each name in the folder.
    fn flat(&mut self, kind: DefinitionKind, folder: &Path, read: &ReadFile<'_>) {
        let (found, problem) = names(folder, |name| name.strip_suffix(EXTENSION).is_some());
        self.problems.extend(problem);
        for file in found {
            let name = file.strip_suffix(EXTENSION).unwrap_or(&file).to_owned();
            self.add(kind, name, folder.join(file), read);
        }
    }

    /// Reads `NAME.md` and `NAME.agent.md` for each name in the folders.
    fn agents(&mut self, folders: &[PathBuf], read: &ReadFile<'_>) {
        for folder in folders {
            self.flat(DefinitionKind::Agent, folder, read);
        }
        let agents = self.files.iter_mut();
        for file in agents.filter(|file| file.kind == DefinitionKind::Agent) {
            if let Some(name) = file.name.strip_suffix(AGENT_SUFFIX) {
                file.name = name.to_owned();
            }
        }
    }

    /// Reads `NAME/SKILL.md` for each name in the folder.
    fn skills(&mut self, folder: &Path, read: &ReadFile<'_>) {
        let (found, problem) = names(folder, |_| true);
        self.problems.extend(problem);
        for name in found {
            let path = folder.join(&name).join(SKILL_FILE);
            self.add(DefinitionKind::Skill, name, path, read);
        }
    }

    fn add(&mut self, kind: DefinitionKind, name: String, path: PathBuf, read: &ReadFile<'_>) {
        let text = match read(&path).and_then(|read| read.map(text).transpose()) {
            Ok(Some(text)) => text,
            // A folder without `SKILL.md`, or a file that has just been removed.
            Ok(None) => return,
            Err(reason) => {
                return self
                    .problems
                    .push(format!("{} is ignored: {reason}", path.display()));
            }
        };
        self.files.push(DefinitionFile {
            kind,
            name,
            path,
            text,
        });
    }
}

/// Reads the beginning of a file, and its size.
type ReadFile<'a> = dyn Fn(&Path) -> Result<Option<(Vec<u8>, u64)>, String> + 'a;

fn text((bytes, len): (Vec<u8>, u64)) -> Result<String, String> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(format!(
            "it has {len} bytes, expected at most {FILE_BYTES_MAX}"
        ));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("it is not UTF-8: byte {at} is invalid")
    })?;
    if text.contains('\0') {
        return Err("it is a binary file".to_owned());
    }
    Ok(text)
}
