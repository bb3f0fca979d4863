//! The files of a project: its configuration, and its commands, skills and agents. They are used only if the user trusts
//! their content.
//!
//! The configuration and the definitions have separate answers, so that a change of one does not withdraw the trust in
//! the other. One question asks about both.

use std::path::{Path, PathBuf};
use std::time::Duration;

use allstop_agent::{TurnError, TurnErrorKind};
use allstop_runtime::config::{ConfigError, McpJsonFile, ProjectFile, ProjectFileSearch};
use allstop_runtime::{DefinitionFiles, Definitions};
use allstop_scope::Scope;
use allstop_terminal::{LinePrompt, Styled, TextRole, styled};

pub(crate) use super::trusted_project::TrustedProject;
use super::{StartFailure, StartReporter, StartStage, begin, read};
use crate::args::{ModelArgs, ProjectConfigChoice};
use crate::display::{
    count_definitions, describe_mcp_json, describe_project_definitions, describe_project_file,
};
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::project_trust::{TrustAnswer, TrustStore, TrustSubject};
use crate::supervise::Supervisor;

/// Folder that stands for all definitions of a project in the stored answers.
const DEFINITIONS: &str = ".allstop";

/// A part of a project with a separate answer.
#[derive(Debug)]
pub(crate) enum ProjectPart {
    Settings(Box<ProjectFile>),
    Servers(Box<McpJsonFile>),
    Definitions(PathBuf, DefinitionFiles),
}

/// State of a project before the user is asked.
struct ProjectState {
    trusted: TrustedProject,
    /// The user has to decide about these parts.
    undecided: Vec<ProjectPart>,
}

/// Path that stands for all definitions of the project in this folder.
pub(crate) fn definitions_path(folder: &Path) -> PathBuf {
    folder.join(DEFINITIONS)
}

impl ProjectPart {
    /// The definitions of the project in this folder. May be empty.
    pub(crate) fn definitions_of(folder: &Path) -> DefinitionFiles {
        DefinitionFiles::of_project(folder, ProcessHost::user_folders().home.as_deref())
    }

    pub(crate) fn subject(&self) -> TrustSubject {
        match self {
            Self::Settings(file) => (&**file).into(),
            Self::Servers(file) => (&**file).into(),
            Self::Definitions(folder, files) => TrustSubject {
                path: definitions_path(folder),
                content: files.fingerprint(),
            },
        }
    }

    /// Name of the part for people, such as `2 commands, 1 skill`.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Settings(_) => ".allstop.toml".to_owned(),
            Self::Servers(_) => ".mcp.json".to_owned(),
            Self::Definitions(_, files) => {
                match count_definitions(&Definitions::parse([files])).as_str() {
                    "" => "invalid files".to_owned(),
                    counts => counts.to_owned(),
                }
            }
        }
    }

    /// Effects of the part, as lines.
    pub(crate) fn describe(&self) -> Vec<String> {
        match self {
            Self::Settings(file) => describe_project_file(file),
            Self::Servers(file) => describe_mcp_json(file),
            Self::Definitions(folder, files) => describe_project_definitions(files, folder),
        }
    }

    fn unused(&self, why: &str) -> String {
        let (what, are) = match self {
            Self::Settings(file) => (file.path.display().to_string(), "is"),
            Self::Servers(file) => (file.path.display().to_string(), "is"),
            Self::Definitions(..) => (format!("{} of this folder", self.name()), "are"),
        };
        format!(
            "{what} {are} ignored: {why}. `allstop config trust` shows its effects and trusts it"
        )
    }
}

impl TrustedProject {
    fn add(&mut self, part: ProjectPart) {
        match part {
            ProjectPart::Settings(file) => self.file = Some(file),
            ProjectPart::Servers(file) => self.servers = Some(file),
            ProjectPart::Definitions(_, files) => self.definitions = files,
        }
    }
}

/// The parts of the project that are trusted. If the user has not decided about a part yet, asks the user.
///
/// # Cancel safety
/// Dropping the future releases the terminal and stores no answer.
pub(crate) async fn choose(
    args: &ModelArgs,
    host: &ProcessHost,
    supervisor: &mut Supervisor,
) -> Result<TrustedProject, StartFailure> {
    let reporter = StartReporter::new(host);
    let (choice, folder) = (args.project_config, host.folder.clone());
    let for_look = reporter.clone();
    let looking = read(host.scopes(), supervisor, move |_| {
        Ok(look(choice, &folder, &for_look)?)
    });
    let ProjectState {
        mut trusted,
        undecided,
    } = looking.await?;
    if undecided.is_empty() {
        return Ok(trusted);
    }
    let Some(prompt) = LinePrompt::of_process(&host.output, &host.terminal) else {
        note_unused(&undecided, "not trusted yet", &reporter);
        return Ok(trusted);
    };
    let scope = Scope::root("process", host.scopes());
    let mut stage = StartStage {
        supervisor,
        scope: &scope,
        grace: Some(Duration::ZERO),
    };
    let names: Vec<String> = undecided.iter().map(ProjectPart::name).collect();
    let lines = undecided.iter().flat_map(ProjectPart::describe).collect();
    let asking = ask(prompt, names.join(", "), lines);
    let asking = begin(&scope, "question about .allstop.toml", asking);
    let answer = stage.wait(asking, late_answer).await?.ok_or_stopped()?;
    read(host.scopes(), supervisor, move |_| {
        if let Some(answer) = answer {
            let store = ProcessHost::project_trust()?;
            for part in &undecided {
                if let Err(error) = store.remember(&part.subject(), answer) {
                    reporter.note(&format!("the answer is not saved: {error}"));
                }
            }
        }
        if answer == Some(TrustAnswer::Trusted) {
            for part in undecided {
                trusted.add(part);
            }
        } else {
            note_unused(&undecided, "not trusted", &reporter);
        }
        Ok(trusted)
    })
    .await
}

fn note_unused(parts: &[ProjectPart], why: &str, reporter: &StartReporter) {
    for part in parts {
        reporter.note(&part.unused(why));
    }
}

fn late_answer() -> TurnError {
    TurnError {
        kind: TurnErrorKind::Invalid,
        message: "the run's deadline passed before an answer to the question about .allstop.toml"
            .to_owned(),
        hint: Some("trust the file once with `allstop config trust`, or ignore it with --project-config ignore".to_owned()),
    }
}

/// The parts of the project that are already trusted. Never asks the user. Blocks the thread while it reads files.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn trusted(
    args: &ModelArgs,
    folder: &Path,
    reporter: &StartReporter,
) -> Result<TrustedProject, CliError> {
    let state = look(args.project_config, folder, reporter)?;
    note_unused(&state.undecided, "not trusted yet", reporter);
    Ok(state.trusted)
}

/// The configuration and the MCP servers of the project, if they are trusted. Ignores a file that cannot be used, and
/// prints no line.
pub(crate) fn trusted_silently(folder: &Path) -> TrustedProject {
    trusted_with_notes(folder, |_| {})
}

/// The configuration and the MCP servers of the project, if they are trusted. Passes a line about each file or server that
/// is ignored to `note`.
pub(crate) fn trusted_with_notes(folder: &Path, mut note: impl FnMut(&str)) -> TrustedProject {
    let mut trusted = TrustedProject::default();
    let Ok(store) = ProcessHost::project_trust() else {
        return trusted;
    };
    let settings = match ProjectFile::find(folder) {
        Ok(ProjectFileSearch::Found(file)) => Some(ProjectPart::Settings(file)),
        Ok(_) => None,
        Err(error) => {
            note(&unusable(&error));
            None
        }
    };
    let servers = match McpJsonFile::find(folder) {
        Ok(ProjectFileSearch::Found(file)) => {
            file.left_out.iter().for_each(|line| note(line));
            (!file.servers.is_empty()).then_some(ProjectPart::Servers(file))
        }
        Ok(_) => None,
        Err(error) => {
            note(&unusable(&error));
            None
        }
    };
    for part in settings.into_iter().chain(servers) {
        match store.answer(&part.subject()) {
            Some(TrustAnswer::Trusted) => trusted.add(part),
            Some(TrustAnswer::Refused) => note(&part.unused("you declined to trust it")),
            None => note(&part.unused("not trusted yet")),
        }
    }
    trusted
}

/// A line about a file of the project that cannot be used. The error names the line of the file, and the remedy.
pub(crate) fn unusable(error: &ConfigError) -> String {
    format!("{error}; the file is ignored: {}", error.hint)
}

fn look(
    choice: ProjectConfigChoice,
    folder: &Path,
    reporter: &StartReporter,
) -> Result<ProjectState, CliError> {
    let mut state = ProjectState {
        trusted: TrustedProject::default(),
        undecided: Vec::new(),
    };
    if choice == ProjectConfigChoice::Ignore {
        return Ok(state);
    }
    let mut parts = Vec::new();
    match ProjectFile::find(folder)? {
        ProjectFileSearch::Absent => {}
        ProjectFileSearch::ForeignOwner(path, user) => {
            let path = path.display();
            reporter.note(&format!(
                "{path} is ignored: it belongs to another user (uid {user})"
            ));
        }
        ProjectFileSearch::Found(file) => parts.push(ProjectPart::Settings(file)),
    }
    match McpJsonFile::find(folder) {
        Ok(ProjectFileSearch::Absent) => {}
        Ok(ProjectFileSearch::ForeignOwner(path, user)) => {
            let path = path.display();
            reporter.note(&format!(
                "{path} is ignored: it belongs to another user (uid {user})"
            ));
        }
        Ok(ProjectFileSearch::Found(file)) => {
            file.left_out.iter().for_each(|line| reporter.note(line));
            if !file.servers.is_empty() {
                parts.push(ProjectPart::Servers(file));
            }
        }
        // An invalid file cannot be trusted, so it has no effect.
        Err(error) => reporter.note(&unusable(&error)),
    }
    let definitions = ProjectPart::definitions_of(folder);
    if definitions.files.is_empty() {
        // Files that were left out have no effect, so their reasons need no trust.
        state.trusted.definitions = definitions;
    } else {
        parts.push(ProjectPart::Definitions(folder.to_owned(), definitions));
    }
    let store = match (choice, parts.is_empty()) {
        (ProjectConfigChoice::Trust, _) | (_, true) => None,
        _ => Some(ProcessHost::project_trust()?),
    };
    for part in parts {
        decide(part, store.as_ref(), &mut state, reporter);
    }
    Ok(state)
}

/// Sorts a part by its stored answer. Without a store all parts are trusted.
fn decide(
    part: ProjectPart,
    store: Option<&TrustStore>,
    state: &mut ProjectState,
    reporter: &StartReporter,
) {
    let Some(store) = store else {
        return state.trusted.add(part);
    };
    match store.answer(&part.subject()) {
        Some(TrustAnswer::Trusted) => {
            reporter.note(&match &part {
                ProjectPart::Settings(file) => format!("settings: {}", file.path.display()),
                ProjectPart::Servers(file) => format!("MCP servers: {}", file.path.display()),
                ProjectPart::Definitions(..) => format!("from this folder: {}", part.name()),
            });
            state.trusted.add(part);
        }
        Some(TrustAnswer::Refused) => reporter.note(&part.unused("you declined to trust it")),
        None => state.undecided.push(part),
    }
}

/// Asks until the user answers yes or no; `None` if the user presses Ctrl-D or the terminal is closed.
async fn ask(mut prompt: LinePrompt, names: String, lines: Vec<String>) -> Option<TrustAnswer> {
    let style = prompt.style();
    let asks = format!("? Do you trust the settings of this folder ({names})?");
    let mut question = Styled::default();
    question.push_line(&styled![
        style.paint(TextRole::Warning, asks.as_str()),
        " Each session here then"
    ]);
    for line in &lines {
        question.push_line(&styled!["  - ", line.as_str()]);
    }
    let notes =
        "Allstop asks again after each change of a file. It does not check programs in the folder.";
    question.push_line(&styled!["  ", style.paint(TextRole::Dim, notes)]);
    prompt.begin();
    prompt.show(question);
    let prefix = styled!["  [y]es  [n]o ", style.pick("›", ">"), " "];
    let mut answer = prompt.ask(prefix.clone()).await?;
    loop {
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Some(TrustAnswer::Trusted),
            "n" | "no" => return Some(TrustAnswer::Refused),
            _ => prompt.show(style.paint(TextRole::Dim, "  answer y or n; Ctrl-C quits")),
        }
        answer = prompt.ask(prefix.clone()).await?;
    }
}
