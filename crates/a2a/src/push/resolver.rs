//! Resolution of a webhook's host. Each address is checked between the resolution and the connection, so a change of
//! the host's addresses cannot evade the check.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::guard::{AddressGuard, RefusedAddress};

/// Resolves host names.
pub trait HostResolver: Send + Sync {
    /// Returns the addresses of a host.
    ///
    /// # Errors
    /// Returns an error if the host has no address, or if the resolution failed.
    fn resolve(&self, host: &str) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>>;
}

/// Resolver of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct SystemResolver;

impl HostResolver for SystemResolver {
    fn resolve(&self, host: &str) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        let host = host.to_owned();
        async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        }
        .boxed()
    }
}

/// Reason why a host has no address to connect to.
#[derive(Debug, thiserror::Error)]
enum ResolveError {
    #[error("the host has no address")]
    NoAddress,
    #[error(transparent)]
    Refused(#[from] RefusedAddress),
    #[error("the host is not resolved")]
    Failed(#[from] std::io::Error),
}

/// Resolver of the HTTP client. Returns only addresses that the guard permits.
pub(crate) struct GuardedResolver {
    pub(crate) resolver: Arc<dyn HostResolver>,
    pub(crate) guard: AddressGuard,
}

impl fmt::Debug for GuardedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedResolver")
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolving = self.resolver.resolve(name.as_str());
        let guard = self.guard.clone();
        async move {
            let found = resolving.await.map_err(ResolveError::from)?;
            let passed = passed_addresses(&guard, &found)?;
            Ok(Box::new(passed.into_iter()) as Addrs)
        }
        .boxed()
    }
}

/// Returns the found addresses that the guard permits. They have port 0, which the HTTP client replaces.
fn passed_addresses(
    guard: &AddressGuard,
    found: &[IpAddr],
) -> Result<Vec<SocketAddr>, ResolveError> {
    let mut refused = None;
    let mut passed = Vec::with_capacity(found.len());
    for address in found {
        match guard.check_address(*address) {
            Ok(()) => passed.push(SocketAddr::new(*address, 0)),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(refused) if passed.is_empty() => Err(refused.into()),
        None if passed.is_empty() => Err(ResolveError::NoAddress),
        _ => Ok(passed),
    }
}
