//! Options of the log on JetStream.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Default prefix of all names on the servers.
const PREFIX: &str = "allstop";

/// Default time after which a lock expires if its process ends without releasing it. The time is longer than the
/// interval between two renewals plus the election of a new leader, so that the loss of a server loses no lock.
const LOCK_TTL: Duration = Duration::from_secs(20);

/// Default time limit for repeats of an unanswered request. Servers that lose their leader without notice elect
/// another one in 4 to 9 seconds.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Options of a [`NatsLog`](crate::NatsLog).
#[derive(Clone, PartialEq, Eq)]
pub struct NatsOptions {
    /// Servers as `nats://HOST:PORT`, separated by commas. The URLs may contain a user and a password.
    pub servers: String,
    /// File with the credentials of a user (JWT and key).
    pub credentials: Option<PathBuf>,
    /// File with certificates of trusted authorities, in addition to those of the system.
    pub authorities: Option<PathBuf>,
    /// Prefix of the names of streams and subjects. Logs with different prefixes can share servers.
    pub prefix: String,
    /// Copies of each record, on as many servers: 1, 3 or 5. Takes effect only for a new store.
    pub replicas: usize,
    /// Time after which a lock expires if its process ends without releasing it, in whole seconds.
    pub lock_ttl: Duration,
    /// Time limit for repeats of an unanswered request, including a change of the leader. An append that has to search
    /// for its own message takes at most twice as long.
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
    /// Addresses of the servers for people, without users and passwords.
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
