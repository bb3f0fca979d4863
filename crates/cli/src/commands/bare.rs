//! `allstop` alone, at a terminal: a chat. If no model is known, `init` comes first.

use allstop_runtime::config::{ProjectFile, ProjectFileSearch};
use allstop_scope::GRACE_DEFAULT;

use super::init;
use crate::args::{ChatArgs, InitArgs, ProjectConfigChoice};
use crate::chat;
use crate::control::Control;
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::{ProcessHost, variable};
use crate::start::default_model::DefaultModel;
use crate::start::options::config_of;
use crate::start::project::TrustedProject;
use crate::start::{self, StartFailure};
use crate::supervise::Supervisor;

/// Runs the command.
///
/// # Cancel safety
/// Like [`chat::chat`] and [`init::init`].
pub(crate) async fn chat_or_init(args: ChatArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    let mut supervisor = Supervisor::new(host.signals()?, Control::new(GRACE_DEFAULT));
    let (model_args, folder) = (args.with.model.clone(), host.folder.clone());
    let looking = start::read(host.scopes(), &mut supervisor, move |_| {
        let is_of_project = model_args.project_config != ProjectConfigChoice::Ignore
            && matches!(
                ProjectFile::find(&folder),
                Ok(ProjectFileSearch::Found(file)) if file.sets(&["model", "name"])
            );
        // A chat reports an invalid configuration.
        let is_configured = config_of(&model_args, &TrustedProject::default())
            .map_or(true, |config| config.model.name.is_some());
        Ok(is_of_project || is_configured || is_chosen_by_a_key())
    });
    let is_known = match looking.await {
        Ok(is_known) => is_known,
        Err(StartFailure::Usage(problem)) => return Err(problem),
        // A stop came first.
        Err(StartFailure::Ended(_)) => {
            let control = supervisor.control;
            return Ok(Exit::from(control.exit_code(control.stop_reason())));
        }
    };
    if !is_known {
        host.note("no model is configured yet: a few questions first");
        let config = args.with.model.config.clone();
        let exit = init::init(&InitArgs { config }, host).await?;
        if exit.code != 0 {
            return Ok(exit);
        }
    }
    chat::chat(args, host).await
}

/// True if the environment has the key of exactly one provider.
fn is_chosen_by_a_key() -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    matches!(DefaultModel::choose(is_set), DefaultModel::One(_))
}
