//! HTTP clients. Each client serves one model call at a time and records its connections.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connection, HttpInfo};
use parking_lot::Mutex;
use tower::{Layer, Service};

use crate::kernel::SocketPair;
use crate::probe::{ConnectionProbe, SocketRecord};
use crate::{ModelError, ModelErrorKind};

/// Name of this program in requests.
pub(super) const USER_AGENT: &str = concat!("allstop/", env!("CARGO_PKG_VERSION"));

/// Maximum number of idle clients. Each has at most one idle connection. The number is enough for the usual number of
/// parallel calls.
const IDLE_CLIENTS_MAX: usize = 32;

/// Clients of one model that no call uses at the moment.
pub(super) struct ClientPool {
    idle: Mutex<Vec<PooledClient>>,
    plan: ClientPlan,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ClientPlan {
    pub(super) connect_limit: Option<Duration>,
    /// True if the server is on this machine, so that no proxy is used.
    pub(super) is_loopback: bool,
    pub(super) is_https: bool,
}

struct PooledClient {
    reqwest: reqwest::Client,
    record: Arc<SocketRecord>,
}

/// A client that one call uses. Dropping this value destroys the client and its connections. [`ClientLease::finish`]
/// keeps the client and its connection for other calls.
pub(super) struct ClientLease {
    client: Option<PooledClient>,
    pool: Arc<ClientPool>,
    probe: ConnectionProbe,
}

impl ClientPool {
    pub(super) fn new(plan: ClientPlan) -> Self {
        Self {
            idle: Mutex::default(),
            plan,
        }
    }

    /// Takes a client for one call. From now on the connections of the client are registered with the probe of the
    /// call.
    pub(super) fn lease(
        pool: &Arc<Self>,
        probe: &ConnectionProbe,
    ) -> Result<ClientLease, ModelError> {
        let idle = pool.idle.lock().pop();
        let client = match idle {
            Some(client) => client,
            None => pool.connectless_client()?,
        };
        probe.add_record(Arc::clone(&client.record));
        Ok(ClientLease {
            client: Some(client),
            pool: Arc::clone(pool),
            probe: probe.clone(),
        })
    }

    fn connectless_client(&self) -> Result<PooledClient, ModelError> {
        let record = Arc::new(SocketRecord::default());
        install_tls();
        let mut builder = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            // With HTTP/2, other calls would share the connection, so dropping one call could not close the connection.
            .http1_only()
            .pool_max_idle_per_host(1)
            // Compression would delay tokens.
            .no_gzip()
            // A redirected POST would be a different request. Also, the key may be sent only to this host.
            .redirect(reqwest::redirect::Policy::none())
            .connector_layer(SocketRecordLayer {
                record: Arc::clone(&record),
            });
        if let Some(limit) = self.plan.connect_limit {
            builder = builder.connect_timeout(limit);
        }
        if self.plan.is_loopback {
            builder = builder.no_proxy();
            if !self.plan.is_https {
                // Loading the certificates of the system takes more time than creating the rest of a client.
                builder = builder.tls_certs_only([]);
            }
        }
        let reqwest = builder.build().map_err(|error| {
            ModelError::new(
                ModelErrorKind::Invalid,
                format!("cannot create an HTTP client: {}", error.without_url()),
            )
        })?;
        Ok(PooledClient { reqwest, record })
    }
}

/// Makes the library `ring` the TLS provider of the process, unless the program has already chosen a TLS provider.
pub(super) fn install_tls() {
    let _first_is_kept = rustls::crypto::ring::default_provider().install_default();
}

impl ClientLease {
    pub(super) fn client(&self) -> &reqwest::Client {
        &self
            .client
            .as_ref()
            .expect("a lease holds its client until it is finished")
            .reqwest
    }

    /// Ends a complete call. The connection of the call is now idle and may serve the next call.
    pub(super) fn finish(mut self) {
        if let Some(client) = self.client.take() {
            self.probe.remove_record(&client.record);
            let mut idle = self.pool.idle.lock();
            if idle.len() < IDLE_CLIENTS_MAX {
                idle.push(client);
            }
        }
    }
}

/// Records every connection attempt of a client.
#[derive(Clone)]
struct SocketRecordLayer {
    record: Arc<SocketRecord>,
}

#[derive(Clone)]
struct SocketRecordService<S> {
    inner: S,
    record: Arc<SocketRecord>,
}

impl<S> Layer<S> for SocketRecordLayer {
    type Service = SocketRecordService<S>;

    fn layer(&self, inner: S) -> SocketRecordService<S> {
        SocketRecordService {
            inner,
            record: Arc::clone(&self.record),
        }
    }
}

impl<S, R> Service<R> for SocketRecordService<S>
where
    S: Service<R>,
    S::Response: Connection,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, destination: R) -> Self::Future {
        let attempt = self.record.begin_connect();
        let connecting = self.inner.call(destination);
        Box::pin(async move {
            // The order of these two variables matters: a drop first destroys the socket that is connecting, and then
            // removes the attempt from the record.
            let attempt = attempt;
            let connection = connecting.await?;
            attempt.connected(pair_of(&connection));
            Ok(connection)
        })
    }
}

fn pair_of(connection: &impl Connection) -> Option<SocketPair> {
    let mut extras = http::Extensions::new();
    connection.connected().get_extras(&mut extras);
    let info = extras.get::<HttpInfo>()?;
    Some(SocketPair {
        local: canonical(info.local_addr()),
        remote: canonical(info.remote_addr()),
    })
}

/// Converts an IPv4-mapped IPv6 address to IPv4, because the kernel's table contains the IPv4 form.
fn canonical(address: std::net::SocketAddr) -> std::net::SocketAddr {
    std::net::SocketAddr::new(address.ip().to_canonical(), address.port())
}
