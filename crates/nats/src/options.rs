//! Options of the log on JetStream.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Default prefix of all names on the servers.
const PREFIX: &str = "allstop";

/// Default time after which a lock expires if its process ends without releasing it. This time is longer than the
/// interval between two renewals plus an election of a new leader. Therefore no lock expires if one server is lost.
const LOCK_TTL: Duration = Duration::from_secs(20);

/// Default time in which an unanswered request is repeated. If servers lose their leader suddenly, they elect another
/// leader after 4 to 9 seconds.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Options of a [`NatsLog`](crate::NatsLog).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NatsOptions {
    /// Addresses of the servers as `nats://HOST:PORT`, separated by commas. The URLs may contain a user and a password.
    pub servers: String,
    /// File with the credentials of a user (JWT and key).
    pub credentials: Option<PathBuf>,
    /// File with certificates of trusted authorities, in addition to the certificates of the system.
    pub authorities: Option<PathBuf>,
    /// Prefix for the names of streams and subjects. Several logs with different prefixes can use the same servers.
    pub prefix: String,
    /// Number of copies of each record, each on another server: 1, 3 or 5. A change has an effect only for a new store.
    pub replicas: usize,
    /// Time after which a lock expires if its process ends without releasing it. The time is in whole seconds.
    pub lock_ttl: Duration,
    /// Time in which an unanswered request is repeated. The servers may change their leader in this time. If an append
    /// must search for its own message, the append takes at most twice as long.
    pub answer_max: Duration,
}

impl NatsOptions {
    /// Creates options for these servers.
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            servers: servers.into(),
            credentials: None,
            authorities: None,
            prefix: PREFIX.to_owned(),
            replicas: 1,
            lock_ttl: LOCK_TTL,
            answer_max: ANSWER_MAX,
        }
    }
}

impl NatsOptions {
    /// Addresses of the servers for people. Users and passwords are omitted.
    pub fn addresses(&self) -> String {
        let servers = self.servers.split(',').map(|server| {
            let (scheme, rest) = server.split_once("://").unwrap_or(("nats", server));
            let address = rest.rsplit_once('@').map_or(rest, |(_, address)| address);
            format!("{}://{}", scheme.trim(), address.trim())
        });
        servers.collect::<Vec<_>>().join(",")
    }
}

/// Omits the servers, because their URLs may contain a password.
impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsOptions")
            .field("prefix", &self.prefix)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}
