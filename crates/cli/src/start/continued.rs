//! The session that a start continues. A session remembers its model, so the session is looked up in the store before
//! the model is created.
//!
//! The model comes from the flags, or else from the session, or else from the configuration. The working directory is
//! always the current folder, as for every shell command. If the session was in another folder before, a line reports
//! this difference.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{SessionId, SessionSettings};
use allstop_log::read_session_end;
use allstop_runtime::config::ModelConfig;
use allstop_runtime::{StartErrorKind, System, SystemOptions, open_store};
use allstop_scope::Scope;

use super::StartFailure;
use super::StartReporter;
use super::options::choose_default;
use crate::args::{ModelArgs, StoreArgs};
use crate::commands::sessions::resolve;
use crate::error::CliError;
use crate::shell_command::SameFlags;
use crate::shell_quote::quoted;
use crate::short_id::short;

/// A session to continue, with the name that the user typed.
pub(crate) struct NamedSession {
    /// The name as it was typed.
    name: String,
    /// True if flags or their environment variables choose the model.
    chooses_model: bool,
    /// Command that continues the session, for a hint about the choice of a model.
    command: String,
    /// Flags that commands on the same store need.
    flags: SameFlags,
    /// Flags that commands on the same store need in another folder.
    flags_elsewhere: SameFlags,
    /// Time to wait for another process to release the session.
    wait: Duration,
}

impl NamedSession {
    pub(crate) fn new(name: &str, command: &str, model: &ModelArgs, store: &StoreArgs) -> Self {
        Self {
            name: name.to_owned(),
            chooses_model: model.chooses_model(),
            command: format!("{command} {}", quoted(name)),
            flags: SameFlags::of_store(store),
            flags_elsewhere: SameFlags::of_store_elsewhere(model, store),
            wait: Duration::ZERO,
        }
    }

    /// Sets the time to wait for another process to release the session.
    #[must_use]
    pub(crate) fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Time to wait for another process to release the session.
    pub(super) fn wait(&self) -> Duration {
        self.wait
    }
}

/// Lines for people about a continued session; empty for a new session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ContinuedWords {
    /// Line with the model and the origin of its choice; `None` if the flags chose the model and the session remembers
    /// no different model.
    pub(crate) model: Option<String>,
    /// Line about the session's earlier folder, if it is not the current folder.
    pub(crate) folder: Option<String>,
}

/// Origin of the model of a continued session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelOrigin {
    Flags,
    Session,
    Configuration,
}

/// Chooses the model. The model of the flags has precedence, and is already in the configuration. Otherwise the model
/// that the session remembers replaces the configured model.
fn choose(config: &mut ModelConfig, by_flags: bool, remembered: &SessionSettings) -> ModelOrigin {
    match &remembered.model {
        _ if by_flags => ModelOrigin::Flags,
        Some(model) => {
            let base_url = remembered.base_url.as_deref().map(str::to_owned);
            config.choose(Some(model.to_string()), base_url);
            ModelOrigin::Session
        }
        None => ModelOrigin::Configuration,
    }
}

fn model_words(name: &str, origin: ModelOrigin, remembered: Option<&str>) -> Option<String> {
    match (origin, remembered) {
        (ModelOrigin::Session, _) => Some(format!("model {name}, as before; --model changes it")),
        (ModelOrigin::Configuration, _) => Some(format!("model {name}, from the configuration")),
        (ModelOrigin::Flags, Some(before)) if before != name => {
            Some(format!("model {name}, previously {before}"))
        }
        (ModelOrigin::Flags, _) => None,
    }
}

/// Describes a change of the folder. `elsewhere` is the command that continues the session, with absolute paths.
fn folder_words(before: &str, now: &Path, elsewhere: &str) -> Option<String> {
    if Path::new(before) == now || before.is_empty() {
        return None;
    }
    let now = now.display();
    let said = format!("the session was in {before}; its tools now work in {now}");
    if !Path::new(before).is_dir() {
        return Some(format!("{said}. The earlier folder no longer exists"));
    }
    let folder = quoted(before);
    Some(format!(
        "{said}. To continue there: cd {folder} && {elsewhere}"
    ))
}

/// Opens the system. If a session is to be continued, first looks up this session. Then uses the model that it
/// remembers, unless the flags chose a model.
pub(super) async fn open_system(
    root: Scope,
    mut options: SystemOptions,
    session: Option<NamedSession>,
    reporter: StartReporter,
) -> Result<(System, Option<(SessionId, ContinuedWords)>), StartFailure> {
    let Some(session) = session else {
        return Ok((System::open_in(root, options).await?, None));
    };
    let store = open_store(&options.store, &root).await?;
    let log = Arc::clone(store.log());
    let id = resolve(&*log, &session.name, &session.flags).await?;
    let (state, _owner) = read_session_end(&*log, &id)
        .await
        .map_err(|error| StartFailure::from(allstop_runtime::StartError::from(error)))?;
    let remembered = state.settings().cloned().unwrap_or_else(|| {
        let folder = state.folder().cloned().unwrap_or_default();
        Arc::new(SessionSettings {
            folder,
            ..SessionSettings::default()
        })
    });
    let config = &mut options.config.model;
    let origin = choose(config, session.chooses_model, &remembered);
    if config.name.is_none() {
        choose_default(config, &session.command, &reporter)?;
    }
    let name = config.name.clone().unwrap_or_default();
    let resume = format!("sessions resume {}", short(id.as_str()));
    let elsewhere = session.flags_elsewhere.command(&resume);
    let words = ContinuedWords {
        model: model_words(&name, origin, remembered.model.as_deref()),
        folder: folder_words(&remembered.folder, &options.folder, &elsewhere),
    };
    let opened = System::open_on(root, options, Some(store)).await;
    let system = opened.map_err(|error| match (error.kind, origin) {
        (StartErrorKind::Model | StartErrorKind::Script, ModelOrigin::Session) => {
            let problem = CliError::from(error);
            let said = format!(
                "the session's model {name} cannot be used: {}",
                problem.message
            );
            let hint = "choose another one with --model NAME".to_owned();
            StartFailure::Usage(CliError::usage(said).hint(problem.hint.unwrap_or(hint)))
        }
        _ => error.into(),
    })?;
    Ok((system, Some((id, words))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(model: &str, url: Option<&str>) -> SessionSettings {
        SessionSettings::new(Some(model), url, "/there")
    }

    #[test]
    fn flags_win_then_the_session_then_the_configuration() {
        let of = |name: &str| {
            let mut config = ModelConfig::default();
            config.name = Some(name.to_owned());
            config.base_url = Some("http://configured/v1".to_owned());
            config
        };
        let mut config = of("flag");
        let origin = choose(&mut config, true, &settings("before", None));
        assert_eq!((origin, &config), (ModelOrigin::Flags, &of("flag")));

        let mut config = of("configured");
        let origin = choose(&mut config, false, &settings("before", None));
        assert_eq!(origin, ModelOrigin::Session);
        assert_eq!(config.name.as_deref(), Some("before"));
        assert_eq!(config.base_url, None, "a server belongs to its model");

        let mut config = of("configured");
        let origin = choose(&mut config, false, &SessionSettings::default());
        let expected = (ModelOrigin::Configuration, &of("configured"));
        assert_eq!((origin, &config), expected);
    }

    #[test]
    fn the_screen_says_who_chose_the_model() {
        let said = |origin, before| model_words("m", origin, before);
        let as_before = said(ModelOrigin::Session, Some("m")).unwrap();
        assert_eq!(as_before, "model m, as before; --model changes it");
        let configured = said(ModelOrigin::Configuration, None).unwrap();
        assert_eq!(configured, "model m, from the configuration");
        let changed = said(ModelOrigin::Flags, Some("n")).unwrap();
        assert_eq!(changed, "model m, previously n");
        assert_eq!(said(ModelOrigin::Flags, Some("m")), None);
        assert_eq!(said(ModelOrigin::Flags, None), None);
    }

    #[test]
    fn another_folder_is_named_with_the_way_to_it() {
        let here = Path::new("/");
        assert_eq!(folder_words("/", here, "allstop x"), None);
        assert_eq!(folder_words("", here, "allstop x"), None);
        assert_eq!(
            folder_words("/tmp", here, "allstop x").unwrap(),
            "the session was in /tmp; its tools now work in /. To continue there: cd /tmp && allstop x"
        );
        let gone = folder_words("/no such", here, "allstop x").unwrap();
        assert!(
            gone.ends_with("The earlier folder no longer exists"),
            "{gone}"
        );
    }
}
