//! Status events of servers for people: a server became unavailable, with the reason, or is available again; each once.

use std::fmt;
use std::sync::Arc;

use futures::future::select_all;
use tokio::sync::watch;

use super::server::McpServer;
use super::state::{Known, McpState};

/// Maximum number of tools that a message names; it counts the others.
const NAMES_MAX: usize = 8;

/// Stream of status events of a system's servers.
#[derive(Debug)]
pub struct McpNews(Vec<Followed>);

#[derive(Debug)]
struct Followed {
    server: Arc<McpServer>,
    known: watch::Receiver<Known>,
    told: Told,
}

/// Last reported status of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// The server works.
    Well,
    /// The server is unavailable, and is retried automatically.
    Retried,
    /// The server is retried only at the next call.
    Rests,
}

/// A status event: a server became unavailable, or is available again.
#[derive(Debug, Clone)]
pub struct McpChange {
    /// Name of the server.
    pub server: Arc<str>,
    /// New state: degraded or ready.
    pub state: McpState,
    /// Last listed tools of the server, as models call them.
    pub tools: Vec<Arc<str>>,
}

impl McpNews {
    pub(super) fn of(servers: &[Arc<McpServer>]) -> Self {
        let follow = |server: &Arc<McpServer>| Followed {
            known: server.known.subscribe(),
            server: Arc::clone(server),
            told: Told::Well,
        };
        Self(servers.iter().map(follow).collect())
    }

    /// Returns the next event; first for servers that are unavailable already. A failed attempt is no event, except the
    /// last automatic one. Without servers it never resolves.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> McpChange {
        loop {
            if let Some(change) = self.0.iter_mut().find_map(Followed::look) {
                return change;
            }
            if self.0.is_empty() {
                return std::future::pending().await;
            }
            let changed = self.0.iter_mut().map(|one| Box::pin(one.known.changed()));
            // Never fails: the servers that it follows still exist.
            drop(select_all(changed).await);
        }
    }
}

impl Followed {
    fn look(&mut self) -> Option<McpChange> {
        let known = self.known.borrow_and_update().clone();
        let now = match &known {
            Known::Ready(_) => Told::Well,
            Known::Degraded { next_try, .. } if next_try.is_some() => Told::Retried,
            Known::Degraded { .. } => Told::Rests,
            Known::Starting | Known::Stopped => return None,
        };
        if std::mem::replace(&mut self.told, now) == now {
            return None;
        }
        let tools = self.server.definitions();
        Some(McpChange {
            server: Arc::clone(self.server.name()),
            state: known.state(),
            tools: tools.iter().map(|tool| Arc::clone(&tool.name)).collect(),
        })
    }
}

impl fmt::Display for McpChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            server,
            state,
            tools,
        } = self;
        write!(f, "the MCP server `{server}` is {state}")?;
        let McpState::Degraded { .. } = state else {
            return write!(f, " again");
        };
        let Some((first, others)) = tools.split_first() else {
            return write!(f, "; until then it has no tools");
        };
        write!(f, "; until then these fail: {first}")?;
        let named = others.iter().take(NAMES_MAX - 1);
        named
            .into_iter()
            .try_for_each(|name| write!(f, ", {name}"))?;
        match tools.len().saturating_sub(NAMES_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
