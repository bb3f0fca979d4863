//! The parts that sessions share: the store and the model.

use std::path::PathBuf;
use std::sync::Arc;

use allstop_log::{Log, MemoryLog, SqliteLog};
use allstop_model::{Model, ProviderModel, ProviderOptions, ScriptedModel};

use super::options::{ModelChoice, StoreChoice, SystemOptions};
use crate::error::{StartError, StartErrorKind};

#[derive(Debug, Clone)]
pub(super) enum SystemStore {
    Sqlite(SqliteLog),
    Memory(MemoryLog),
}

impl SystemStore {
    pub(super) async fn open(choice: &StoreChoice) -> Result<Self, StartError> {
        Ok(match choice {
            StoreChoice::Sqlite(path) => Self::Sqlite(SqliteLog::open(path).await?),
            StoreChoice::Memory => Self::Memory(MemoryLog::new()),
        })
    }

    pub(super) fn log(&self) -> Arc<dyn Log> {
        match self {
            Self::Sqlite(log) => Arc::new(log.clone()),
            Self::Memory(log) => Arc::new(log.clone()),
        }
    }

    /// All files that hold sessions, which the file tools must not reach.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Sqlite(log) => log.files(),
            Self::Memory(_) => Vec::new(),
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(log) => log.close().await,
            Self::Memory(_) => {}
        }
    }
}

/// Opens a store, for commands that run no agent.
///
/// # Errors
/// Kind `SystemStore`: the file is garbage, read-only, on a full disk, busy, or of a newer version.
///
/// # Cancel safety
/// Dropping the future may leave an empty store.
pub async fn open_store(choice: &StoreChoice) -> Result<Arc<dyn Log>, StartError> {
    Ok(SystemStore::open(choice).await?.log())
}

pub(super) fn model(options: &SystemOptions) -> Result<Arc<dyn Model>, StartError> {
    let config = &options.config.model;
    let choice = options.model.clone().or_else(|| ModelChoice::of(config));
    let model: Arc<dyn Model> = match choice {
        Some(ModelChoice::Given(model)) => model,
        Some(ModelChoice::Scripted(file)) => Arc::new(ScriptedModel::from_file(&file)?),
        Some(ModelChoice::Named { name, base_url }) => {
            let mut provider = ProviderOptions {
                base_url,
                key: config
                    .api_key_env
                    .as_deref()
                    .map(|name| key(options, name))
                    .transpose()?,
                key_lookup: Arc::clone(&options.keys),
                ..ProviderOptions::default()
            };
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

fn key(options: &SystemOptions, name: &str) -> Result<String, StartError> {
    (options.keys)(name).ok_or_else(|| {
        StartError::new(
            StartErrorKind::Model,
            format!("the environment variable {name} is not set (needed for the model's key)"),
        )
        .hint("set it, or change `api_key_env` in the section `[model]`")
    })
}
