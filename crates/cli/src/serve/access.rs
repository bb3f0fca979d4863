//! Access to the server: authentication, TLS, and the files with tokens, keys and certificates.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allstop_a2a::{
    A2aService, AccessControl, AgentCard, Authenticator, BearerScheme, JwksFile, JwksRefreshTimes,
    JwksUrl, JwtAuthenticator, NoAuthentication, ServerTls, TokenFile, extended_agent_card,
    refresh_keys, secured_card,
};
use allstop_core::receipt::ItemKind;
use allstop_core::{HumanDuration, error_chain};
use allstop_scope::{Scope, WorkSpec};
use anyhow::Context as _;
use serde_json::{Map, Value};

use crate::args::{EndpointArgs, ExecutionArgs, ServeAccessArgs};
use crate::error::CliError;

/// Interval between two checks of the files. So a new token is valid, and a removed token invalid, within a second.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// Effect of an error, for most files.
const CONTENT_KEPT: &str = "a changed file is invalid; its previous content stays in use";

/// Effect of a missing or empty token file. A broken file later keeps this effect.
const TOKENS_REVOKED: &str = "the token file gives no tokens: all its tokens are revoked";

/// Checks a file, and loads it if it has changed.
type FileReloader = Box<dyn FnMut() -> Result<(), FileFault> + Send>;

/// Error of a changed file.
#[derive(Clone, PartialEq)]
struct FileFault {
    reason: String,
    effect: &'static str,
}

impl FileFault {
    /// A fault after which the earlier content stays in use.
    fn kept(error: &(dyn std::error::Error + 'static)) -> Self {
        Self {
            reason: error_chain(error),
            effect: CONTENT_KEPT,
        }
    }
}

/// Authentication and TLS of the server.
pub(crate) struct ServerAccess {
    pub(crate) control: AccessControl,
    pub(crate) tls: Option<ServerTls>,
    schemes: Vec<BearerScheme>,
}

/// Checks that a server authenticates its clients if other machines can reach one of its addresses.
pub(crate) fn check_addresses(
    access: &ServeAccessArgs,
    addresses: impl IntoIterator<Item = SocketAddr>,
) -> Result<(), CliError> {
    if access.authenticates() {
        return Ok(());
    }
    let mut addresses = addresses.into_iter();
    let Some(address) = addresses.find(|address| !address.ip().is_loopback()) else {
        return Ok(());
    };
    Err(CliError::usage(format!(
        "{address} is reachable from other machines, and authentication is off"
    ))
    .hint("require tokens (--token-file or --jwks), or listen on 127.0.0.1"))
}

impl ServerAccess {
    /// Reads tokens, keys and certificate, and starts the work in `root` that refreshes them.
    pub(crate) async fn open(root: &Scope, access: &ServeAccessArgs) -> Result<Self, CliError> {
        let mut reloaders: Vec<FileReloader> = Vec::new();
        let mut schemes = Vec::new();
        let mut authenticators: Vec<Arc<dyn Authenticator>> = Vec::new();
        if let Some(path) = &access.token_file {
            let tokens = TokenFile::open(path).map_err(|error| wrong_file(&error))?;
            let shared = tokens.clone();
            reloaders.push(Box::new(move || match shared.reload() {
                Ok(_) => Ok(()),
                Err(error) if shared.has_tokens() => Err(FileFault::kept(&error)),
                Err(error) => Err(FileFault {
                    reason: error_chain(&error),
                    effect: TOKENS_REVOKED,
                }),
            }));
            schemes.push(BearerScheme::Token);
            authenticators.push(Arc::new(tokens));
        }
        if let (Some(jwks), Some(issuer), Some(audience)) =
            (&access.jwks, &access.issuer, &access.audience)
        {
            let jwt = if jwks.contains("://") {
                keys_of_url(root, jwks, issuer, audience).await?
            } else {
                let (mut file, keys) =
                    JwksFile::open(Path::new(jwks)).map_err(|error| wrong_file(&error))?;
                let jwt = JwtAuthenticator::new(keys, issuer, audience);
                let shared = jwt.clone();
                reloaders.push(Box::new(move || {
                    let keys = file.reload().map_err(|error| FileFault::kept(&error))?;
                    if let Some(keys) = keys {
                        shared.replace_keys(keys);
                    }
                    Ok(())
                }));
                jwt
            };
            schemes.push(BearerScheme::Jwt {
                issuer: issuer.clone(),
                audience: audience.clone(),
            });
            authenticators.push(Arc::new(jwt));
        }
        let tls = match (&access.tls_cert, &access.tls_key) {
            (Some(certificate), Some(key)) => {
                let tls = ServerTls::open(certificate, key).map_err(|error| wrong_file(&error))?;
                let shared = tls.clone();
                reloaders.push(Box::new(move || match shared.reload() {
                    Ok(_) => Ok(()),
                    Err(error) => Err(FileFault::kept(&error)),
                }));
                Some(tls)
            }
            _ => None,
        };
        watch(root, reloaders)?;
        let authenticator: Arc<dyn Authenticator> = if authenticators.is_empty() {
            Arc::new(NoAuthentication)
        } else {
            Arc::new(authenticators)
        };
        let mut control = AccessControl::new(authenticator);
        if let Some(per_second) = access.rate_limit {
            control = control.rate_limit(per_second);
        }
        Ok(Self {
            control,
            tls,
            schemes,
        })
    }

    /// Scheme of the server's URLs.
    pub(crate) fn url_scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Adds the authentication requirements to the agent card. Also adds the extended agent card, which only
    /// authenticated clients get, to the service.
    pub(super) fn describe(
        &self,
        card: AgentCard,
        service: A2aService,
        endpoint: &EndpointArgs,
        execution: &ExecutionArgs,
    ) -> (AgentCard, A2aService) {
        if self.schemes.is_empty() {
            return (card, service);
        }
        let card = secured_card(card, &self.schemes);
        let extended = extended_agent_card(card.clone(), limits_of(endpoint, execution));
        (card, service.extended_card(extended))
    }
}

async fn keys_of_url(
    root: &Scope,
    jwks: &str,
    issuer: &str,
    audience: &str,
) -> Result<JwtAuthenticator, CliError> {
    let url = JwksUrl::parse(jwks).map_err(|error| CliError::usage(error_chain(&error)))?;
    let keys = url.fetch().await.map_err(|error| {
        CliError::failure(error_chain(&error))
            .hint("check --jwks, and the connection from this machine to the issuer")
    })?;
    let jwt = JwtAuthenticator::new(keys, issuer, audience);
    let refreshed = jwt.clone();
    let spec = WorkSpec::new(ItemKind::Future, "refresh of keys");
    let refreshing = root.spawn(spec, move |cx| {
        refresh_keys(url, refreshed, JwksRefreshTimes::default(), cx)
    });
    refreshing.context("the refresh of keys")?;
    Ok(jwt)
}

/// Checks all files on one thread, until a stop. A repeated error is reported once, and again only if its text changes.
fn watch(root: &Scope, mut reloaders: Vec<FileReloader>) -> Result<(), CliError> {
    if reloaders.is_empty() {
        return Ok(());
    }
    let mut faults: Vec<Option<FileFault>> = vec![None; reloaders.len()];
    let spec = WorkSpec::new(ItemKind::Thread, "files of the access");
    let watching = root.spawn_blocking(spec, move |cx| {
        while cx.checkpoint("files of the access").is_ok() {
            for (reload_file, last) in reloaders.iter_mut().zip(&mut faults) {
                let fault = reload_file().err();
                if let Some(FileFault { reason, effect }) =
                    fault.as_ref().filter(|_| fault != *last)
                {
                    tracing::warn!(error = reason, "{effect}");
                }
                *last = fault;
            }
            std::thread::park_timeout(RELOAD_INTERVAL);
        }
    });
    watching.context("a thread for the files of the access")?;
    Ok(())
}

fn wrong_file(error: &(dyn std::error::Error + 'static)) -> CliError {
    CliError::usage(error_chain(error))
}

/// Limits for the extended agent card: only the limits that the operator has set.
fn limits_of(endpoint: &EndpointArgs, execution: &ExecutionArgs) -> Map<String, Value> {
    let ms =
        |time: HumanDuration| Value::from(u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX));
    let limits = [
        ("maxTasks", execution.max_tasks.map(|n| n.get().into())),
        (
            "maxTasksPerUser",
            execution.max_tasks_per_user.map(|n| n.get().into()),
        ),
        ("queue", execution.queue.map(Value::from)),
        ("taskTimeoutMs", execution.task_timeout.map(ms)),
        ("inactivityMs", execution.inactivity.map(ms)),
        (
            "requestsPerSecond",
            endpoint.access.rate_limit.map(|n| n.get().into()),
        ),
    ];
    limits
        .into_iter()
        .filter_map(|(name, limit)| Some((name.to_owned(), limit?)))
        .collect()
}
