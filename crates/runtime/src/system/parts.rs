//! The parts that sessions share: the store and the model.

use std::path::Path;
use std::sync::Arc;

use allstop_log::{Log, MemoryLog, SqliteLog, open_for_reading};
use allstop_model::{Model, ModelError, ProviderModel, ProviderOptions, ScriptedModel};
use allstop_nats::NatsLog;
use allstop_scope::Scope;

use super::builtin_script::builtin_script;
use super::missing_model::MissingModel;
use super::options::{ModelChoice, StoreChoice, SystemOptions};
use crate::config::ModelConfig;
use crate::error::{StartError, StartErrorKind};

/// An open store.
#[derive(Debug, Clone)]
pub struct SystemStore {
    log: Arc<dyn Log>,
    nats: Option<NatsLog>,
}

impl SystemStore {
    pub(super) async fn open(choice: &StoreChoice, scope: &Scope) -> Result<Self, StartError> {
        let log: Arc<dyn Log> = match choice {
            StoreChoice::Sqlite(path) => Arc::new(SqliteLog::open(path).await?),
            StoreChoice::Memory => Arc::new(MemoryLog::new()),
            StoreChoice::Nats(options) => {
                // The future is boxed, because it is large, and most systems do not use NATS.
                let opened = Box::pin(NatsLog::open((**options).clone(), scope)).await?;
                return Ok(Self {
                    log: opened.as_log(),
                    nats: Some(opened),
                });
            }
        };
        Ok(Self { log, nats: None })
    }

    /// The log of the store. Close it after the last use.
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// The NATS servers that several machines share; `None` for other stores.
    pub fn nats(&self) -> Option<&NatsLog> {
        self.nats.as_ref()
    }
}

/// Opens a store for commands that run no agent. Work of the store runs in `scope`.
///
/// # Errors
/// Returns an error if the file is corrupt, read-only, on a full disk, busy, or of a newer version.
///
/// # Cancel safety
/// Dropping the future may leave an empty store.
pub async fn open_store(choice: &StoreChoice, scope: &Scope) -> Result<SystemStore, StartError> {
    SystemStore::open(choice, scope).await
}

/// Like [`open_store`], for commands that only read. A store file on a read-only file system can be read, too.
///
/// # Errors
/// Returns the errors of [`open_store`], except for a read-only file system.
///
/// # Cancel safety
/// Like [`open_store`].
pub async fn open_store_for_reading(
    choice: &StoreChoice,
    scope: &Scope,
) -> Result<SystemStore, StartError> {
    match choice {
        StoreChoice::Sqlite(path) => Ok(SystemStore {
            log: open_for_reading(path).await?,
            nats: None,
        }),
        other => open_store(other, scope).await,
    }
}

/// Creates the model of a configuration. Sends no request.
///
/// # Errors
/// Returns an error if no model is configured, its key is missing, or its script is invalid.
pub fn open_model(options: &SystemOptions) -> Result<Arc<dyn Model>, StartError> {
    let config = &options.config.model;
    let choice = options.model.clone().or_else(|| ModelChoice::of(config));
    open_model_of(options, config, choice)
}

pub(super) fn open_model_of(
    options: &SystemOptions,
    config: &ModelConfig,
    choice: Option<ModelChoice>,
) -> Result<Arc<dyn Model>, StartError> {
    let model: Arc<dyn Model> = match choice {
        Some(ModelChoice::Given(model)) => model,
        Some(ModelChoice::PerSession) => Arc::new(MissingModel),
        Some(ModelChoice::Scripted(file)) => Arc::new(scripted(&file)?),
        Some(ModelChoice::Named { name, base_url }) => {
            let mut provider = ProviderOptions::default()
                .base_url(base_url)
                .key(
                    config
                        .api_key_env
                        .as_deref()
                        .map(|name| key(options, name))
                        .transpose()?,
                )
                .key_lookup(Arc::clone(&options.keys))
                .answer_limits(config.answer_limits());
            if let Some(limit) = config.connect_timeout {
                provider.connect_limit = Some(limit.into());
            }
            Arc::new(ProviderModel::new(&name, provider)?)
        }
        None => {
            let message = match &config.base_url {
                Some(_) => "the base URL needs the name of a model",
                None => "no model is configured",
            };
            return Err(StartError::new(StartErrorKind::NoModel, message)
                .hint("name one with `--model`, or with `name` in the section `[model]`"));
        }
    };
    Ok(model)
}

fn scripted(file: &Path) -> Result<ScriptedModel, ModelError> {
    match file.to_str().and_then(builtin_script) {
        Some(script) => ScriptedModel::parse(script.name, script.text),
        None => ScriptedModel::from_file(file),
    }
}

fn key(options: &SystemOptions, name: &str) -> Result<String, StartError> {
    (options.keys)(name).ok_or_else(|| {
        StartError::new(
            StartErrorKind::Model,
            format!("the environment variable {name} is not set (needed for the model's key)"),
        )
        .hint("set the variable, or change `api_key_env` in the section `[model]`")
    })
}
