//! Options of the log on JetStream.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Beginning of all names at the servers.
const PREFIX: &str = "allstop";

/// Time after which a lock passes on when its process has ended without giving it back. Longer than the time between two
/// renewals and the choice of a new leader together, so that no lock is lost when a server is.
const LOCK_TTL: Duration = Duration::from_secs(20);

/// Time for which a request without an answer is repeated. Servers that lose their leader without a word choose another in
/// 4 to 9 seconds.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Options of a [`NatsLog`](crate::NatsLog).
#[derive(Clone, PartialEq, Eq)]
pub struct NatsOptions {
    /// Servers as `nats://HOST:PORT`, several separated by commas. May hold a user and a password.
    pub servers: String,
    /// File with the credentials of a user (JWT and key).
    pub credentials: Option<PathBuf>,
    /// File with certificates of authorities that are trusted beside those of the system.
    pub authorities: Option<PathBuf>,
    /// Beginning of the names of streams and subjects: logs with different prefixes share servers.
    pub prefix: String,
    /// Copies of each record, on as many servers: 1, 3 or 5. For a new store only.
    pub replicas: usize,
    /// Time after which a lock passes on when its process has ended without giving it back, in whole seconds.
    pub lock_ttl: Duration,
    /// Time for which a request without an answer is repeated, a change of the leader included. An append that has to
    /// look for its own message takes at most twice as long.
    pub answer_max: Duration,
}

impl NatsOptions {
    /// Options for these servers.
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
    /// The servers for people: without users and passwords.
    pub fn addresses(&self) -> String {
        let servers = self.servers.split(',').map(|server| {
            let (scheme, rest) = server.split_once("://").unwrap_or(("nats", server));
            let address = rest.rsplit_once('@').map_or(rest, |(_, address)| address);
            format!("{}://{}", scheme.trim(), address.trim())
        });
        servers.collect::<Vec<_>>().join(",")
    }
}

/// Without the servers, whose URLs may hold a password.
impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsOptions")
            .field("prefix", &self.prefix)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}
