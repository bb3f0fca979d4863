//! Push notifications of `allstop serve`: their flags, their secret, and their start.

use std::path::Path;
use std::sync::Arc;

use allstop_a2a::{PushNotifications, PushOptions, PushSecret};
use allstop_core::error_chain;
use allstop_log::Log;
use allstop_scope::Scope;
use allstop_task::TaskManager;
use anyhow::Context as _;

use crate::args::EndpointArgs;
use crate::error::CliError;

/// Opens the push notifications that the store contains, and resumes their deliveries as work in `scope`.
pub(super) async fn open(
    args: &EndpointArgs,
    manager: &TaskManager,
    log: &Arc<dyn Log>,
    scope: &Scope,
) -> Result<PushNotifications, CliError> {
    let options = PushOptions::default()
        .allowed(args.push_allow.clone())
        .secret(args.push_secret_file.as_deref().map(secret).transpose()?);
    let (manager, log, scope) = (manager.clone(), Arc::clone(log), scope.clone());
    let push = PushNotifications::open(manager, log, scope, options).await;
    Ok(push.context("cannot open the push notifications of the store")?)
}

/// Reads the secret from a file, without leading and trailing white space.
fn secret(path: &Path) -> Result<PushSecret, CliError> {
    let text = std::fs::read(path).map_err(|error| {
        let path = path.display();
        CliError::usage(format!(
            "the push secret file `{path}` cannot be read: {error}"
        ))
        .hint("name a readable file: --push-secret-file PATH")
    })?;
    PushSecret::new(text.trim_ascii()).map_err(|error| {
        CliError::usage(error_chain(&error)).hint("create one with: openssl rand -hex 32")
    })
}
