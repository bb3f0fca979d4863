//! HTTP clients, each of which serves one call at a time and writes down the connections that it makes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connection, HttpInfo};
use parking_lot::Mutex;
use tower::{Layer, Service};

use crate::probe::{ConnectionProbe, SocketBook, SocketPair};
use crate::{ModelError, ModelErrorKind};

/// Idle clients that are kept, each with at most one idle connection: as many as calls usually run at a time.
const IDLE_CLIENTS_MAX: usize = 32;

/// The clients of one model that no call uses at the moment.
pub(super) struct ClientPool {
    idle: Mutex<Vec<Client>>,
    plan: ClientPlan,
}

/// How clients are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientPlan {
    pub(super) connect_limit: Option<Duration>,
    /// The server is on this machine, with which a proxy has nothing to do.
    pub(super) is_loopback: bool,
    pub(super) is_https: bool,
}

struct Client {
    reqwest: reqwest::Client,
    book: Arc<SocketBook>,
}

/// A client, for one call. Dropping it ends the client and its connections; [`Lease::finish`] keeps them for the next
/// call.
pub(super) struct Lease {
    client: Option<Client>,
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

    /// Takes a client for one call, whose connections are registered with its probe from here on.
    pub(super) fn lease(pool: &Arc<Self>, probe: &ConnectionProbe) -> Result<Lease, ModelError> {
        let idle = pool.idle.lock().pop();
        let client = match idle {
            Some(client) => client,
            None => pool.connectless_client()?,
        };
        probe.watch(Arc::clone(&client.book));
        Ok(Lease {
            client: Some(client),
            pool: Arc::clone(pool),
            probe: probe.clone(),
        })
    }

    fn connectless_client(&self) -> Result<Client, ModelError> {
        let book = Arc::new(SocketBook::default());
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("allstop/", env!("CARGO_PKG_VERSION")))
            // HTTP/2 would carry other calls on the same connection, which dropping one could not close.
            .http1_only()
            .pool_max_idle_per_host(1)
            // Compressing would hold tokens back.
            .no_gzip()
            // A redirected POST is not the same request, and the key is meant for this host.
            .redirect(reqwest::redirect::Policy::none())
            .connector_layer(BookLayer {
                book: Arc::clone(&book),
            });
        if let Some(limit) = self.plan.connect_limit {
            builder = builder.connect_timeout(limit);
        }
        if self.plan.is_loopback {
            builder = builder.no_proxy();
            if !self.plan.is_https {
                // Reading the system's certificates costs more than everything else about a client.
                builder = builder.tls_certs_only([]);
            }
        }
        let reqwest = builder.build().map_err(|error| {
            ModelError::new(
                ModelErrorKind::Invalid,
                format!("no HTTP client could be made: {}", error.without_url()),
            )
        })?;
        Ok(Client { reqwest, book })
    }
}

impl Lease {
    pub(super) fn client(&self) -> &reqwest::Client {
        &self
            .client
            .as_ref()
            .expect("a lease holds its client until it is finished")
            .reqwest
    }

    /// The call has ended regularly: its connection is idle and may serve the next one.
    pub(super) fn finish(mut self) {
        if let Some(client) = self.client.take() {
            self.probe.give_back(&client.book);
            let mut idle = self.pool.idle.lock();
            if idle.len() < IDLE_CLIENTS_MAX {
                idle.push(client);
            }
        }
    }
}

/// Writes every connection attempt of a client into its book.
#[derive(Clone)]
struct BookLayer {
    book: Arc<SocketBook>,
}

#[derive(Clone)]
struct BookService<S> {
    inner: S,
    book: Arc<SocketBook>,
}

impl<S> Layer<S> for BookLayer {
    type Service = BookService<S>;

    fn layer(&self, inner: S) -> BookService<S> {
        BookService {
            inner,
            book: Arc::clone(&self.book),
        }
    }
}

impl<S, R> Service<R> for BookService<S>
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
        let attempt = self.book.begin_connect();
        let connecting = self.inner.call(destination);
        Box::pin(async move {
            // Declared in this order so that a drop destroys the connecting socket before it is struck off the book.
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

/// An IPv4 address that went through an IPv6 socket, as IPv4: the kernel's table is read the same way.
fn canonical(address: std::net::SocketAddr) -> std::net::SocketAddr {
    std::net::SocketAddr::new(address.ip().to_canonical(), address.port())
}
