//! The configuration file of a project. It is used only if the user trusts its content.

use std::path::Path;
use std::time::Duration;

use allstop_agent::{TurnError, TurnErrorKind};
use allstop_runtime::config::{ProjectFile, ProjectFileSearch};
use allstop_scope::Scope;
use allstop_terminal::{LinePrompt, Styled, TextRole, styled};

use super::{StartFailure, StartReporter, StartStage, begin, read};
use crate::args::{ModelArgs, ProjectConfigChoice};
use crate::display::describe_project_file;
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::project_trust::{TrustAnswer, TrustStore};
use crate::supervise::Supervisor;

/// State of a project's configuration before the user is asked.
enum ProjectState {
    /// The project has no configuration file, or the file is ignored.
    Unused,
    Trusted(Box<ProjectFile>),
    /// The user has to decide.
    Undecided(Box<ProjectFile>, TrustStore),
}

/// The project's configuration, if it is trusted. If the user has not decided about this configuration yet, asks the
/// user.
///
/// # Cancel safety
/// Dropping the future releases the terminal and stores no answer.
pub(crate) async fn choose(
    args: &ModelArgs,
    host: &ProcessHost,
    supervisor: &mut Supervisor,
) -> Result<Option<Box<ProjectFile>>, StartFailure> {
    let reporter = StartReporter::new(host);
    let (choice, folder) = (args.project_config, host.folder.clone());
    let for_look = reporter.clone();
    let looking = read(host.scopes(), supervisor, move |_| {
        Ok(look(choice, &folder, &for_look)?)
    });
    let (file, store) = match looking.await? {
        ProjectState::Unused => return Ok(None),
        ProjectState::Trusted(file) => return Ok(Some(file)),
        ProjectState::Undecided(file, store) => (file, store),
    };
    let Some(prompt) = LinePrompt::of_process(&host.output, &host.terminal) else {
        reporter.note(&unused(&file, "not trusted yet"));
        return Ok(None);
    };
    let scope = Scope::root("process", host.scopes());
    let mut stage = StartStage {
        supervisor,
        scope: &scope,
        grace: Some(Duration::ZERO),
    };
    let lines = describe_project_file(&file);
    let asking = begin(&scope, "question about .allstop.toml", ask(prompt, lines));
    let answer = stage.wait(asking, late_answer).await?.ok_or_stopped()?;
    read(host.scopes(), supervisor, move |_| {
        if let Some(answer) = answer
            && let Err(error) = store.remember(&file, answer)
        {
            reporter.note(&format!("the answer is not saved: {error}"));
        }
        if answer == Some(TrustAnswer::Trusted) {
            return Ok(Some(file));
        }
        reporter.note(&unused(&file, "not trusted"));
        Ok(None)
    })
    .await
}

fn late_answer() -> TurnError {
    TurnError {
        kind: TurnErrorKind::Invalid,
        message: "the run's deadline passed before an answer to the question about .allstop.toml"
            .to_owned(),
        hint: Some("trust the file once with `allstop config trust`, or ignore it with --project-config ignore".to_owned()),
    }
}

/// The project's configuration, if it is already trusted. Never asks the user. Blocks the thread while it reads files.
///
/// # Errors
/// If the file cannot be used.
pub(crate) fn trusted(
    args: &ModelArgs,
    folder: &Path,
    reporter: &StartReporter,
) -> Result<Option<Box<ProjectFile>>, CliError> {
    Ok(match look(args.project_config, folder, reporter)? {
        ProjectState::Unused => None,
        ProjectState::Trusted(file) => Some(file),
        ProjectState::Undecided(file, _) => {
            reporter.note(&unused(&file, "not trusted yet"));
            None
        }
    })
}

/// Like [`trusted`], but ignores a file that cannot be used, and prints no line. Used by `sessions` and `mcp`.
pub(crate) fn trusted_silently(folder: &Path) -> Option<Box<ProjectFile>> {
    match ProjectFile::find(folder) {
        Ok(ProjectFileSearch::Found(file)) => {
            let answer = ProcessHost::project_trust().ok()?.answer(&file);
            (answer == Some(TrustAnswer::Trusted)).then_some(file)
        }
        _ => None,
    }
}

fn look(
    choice: ProjectConfigChoice,
    folder: &Path,
    reporter: &StartReporter,
) -> Result<ProjectState, CliError> {
    if choice == ProjectConfigChoice::Ignore {
        return Ok(ProjectState::Unused);
    }
    let file = match ProjectFile::find(folder)? {
        ProjectFileSearch::Absent => return Ok(ProjectState::Unused),
        ProjectFileSearch::ForeignOwner(path, user) => {
            let path = path.display();
            reporter.note(&format!(
                "{path} is ignored: it belongs to another user (uid {user})"
            ));
            return Ok(ProjectState::Unused);
        }
        ProjectFileSearch::Found(file) => file,
    };
    if choice == ProjectConfigChoice::Trust {
        return Ok(ProjectState::Trusted(file));
    }
    let store = ProcessHost::project_trust()?;
    Ok(match store.answer(&file) {
        Some(TrustAnswer::Trusted) => {
            reporter.note(&format!("settings: {}", file.path.display()));
            ProjectState::Trusted(file)
        }
        Some(TrustAnswer::Refused) => {
            reporter.note(&unused(&file, "you declined to trust it"));
            ProjectState::Unused
        }
        None => ProjectState::Undecided(file, store),
    })
}

fn unused(file: &ProjectFile, why: &str) -> String {
    let path = file.path.display();
    format!("{path} is ignored: {why}. `allstop config trust` shows its effects and trusts it")
}

/// Asks until the user answers yes or no; `None` if the user presses Ctrl-D or the terminal is closed.
async fn ask(mut prompt: LinePrompt, lines: Vec<String>) -> Option<TrustAnswer> {
    let style = prompt.style();
    let asks = "? Do you trust the settings of this folder (.allstop.toml)?";
    let mut question = Styled::default();
    question.push_line(&styled![
        style.paint(TextRole::Warning, asks),
        " Each session here then"
    ]);
    for line in &lines {
        question.push_line(&styled!["  - ", line.as_str()]);
    }
    let notes = "Allstop asks again after each change of the file. It does not check programs in the folder.";
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
