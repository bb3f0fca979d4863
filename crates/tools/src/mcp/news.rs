//! What people are told of servers: that one is not available, why, and that it is there again; each once.

use std::fmt;
use std::sync::Arc;

use futures::future::select_all;
use tokio::sync::watch;

use super::server::McpServer;
use super::state::{Known, McpState};

/// Tools that a line names; of the others it gives the number.
const NAMES_MAX: usize = 8;

/// Follows the servers of a system, for one who tells people of them.
#[derive(Debug)]
pub struct McpNews(Vec<Followed>);

#[derive(Debug)]
struct Followed {
    server: Arc<McpServer>,
    known: watch::Receiver<Known>,
    told: Told,
}

/// What people know of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing is wrong with it.
    Well,
    /// It is not available, and is tried again by itself.
    Retried,
    /// It is tried again at the next call only.
    Rests,
}

/// A server is not available, or is there again.
#[derive(Debug, Clone)]
pub struct McpChange {
    /// Its name.
    pub server: Arc<str>,
    /// What is known of it: degraded or ready.
    pub state: McpState,
    /// Its tools as models call them, as they were listed last.
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

    /// The next change that was not told yet; at first what is wrong already. A further attempt that fails is none, but
    /// for the last one that is made without being asked for. Waits for ever where there are no servers.
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
            // An error says that a server is gone, which those that are followed here are not.
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
