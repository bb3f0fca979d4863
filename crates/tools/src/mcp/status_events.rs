//! Status events of MCP servers, for people: a server became unavailable, with the reason, or is available again. Each
//! event is reported once.

use std::fmt;
use std::sync::Arc;

use futures::future::select_all;
use tokio::sync::watch;

use super::server::McpServer;
use super::state::{McpState, ServerState};

/// Maximum number of tools that a message names; the others are only counted.
const NAMES_MAX: usize = 8;

/// Stream of status events of a system's servers.
#[derive(Debug)]
pub struct McpStatusEvents(Vec<FollowedServer>);

#[derive(Debug)]
struct FollowedServer {
    server: Arc<McpServer>,
    state: watch::Receiver<ServerState>,
    reported: ReportedStatus,
}

/// Last reported status of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportedStatus {
    /// The server works.
    Available,
    /// The server is unavailable, and Allstop tries automatically to reconnect.
    Retrying,
    /// The server is unavailable, and Allstop tries to reconnect only at the next call.
    UntilCalled,
}

/// A status event: a server became unavailable, or is available again.
#[derive(Debug, Clone)]
pub struct McpStatusEvent {
    /// Name of the server.
    pub server: Arc<str>,
    /// New state: degraded or ready.
    pub state: McpState,
    /// Last listed tools of the server, as models call them.
    pub tools: Vec<Arc<str>>,
}

impl McpStatusEvents {
    pub(super) fn of(servers: &[Arc<McpServer>]) -> Self {
        let follow = |server: &Arc<McpServer>| FollowedServer {
            state: server.state.subscribe(),
            server: Arc::clone(server),
            reported: ReportedStatus::Available,
        };
        Self(servers.iter().map(follow).collect())
    }

    /// Returns the next event. The first events are about servers that are already unavailable. A failed attempt to
    /// reconnect is no event, except for the last automatic attempt. Without servers the future never resolves.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> McpStatusEvent {
        loop {
            if let Some(event) = self.0.iter_mut().find_map(FollowedServer::next_event) {
                return event;
            }
            if self.0.is_empty() {
                return std::future::pending().await;
            }
            let changed = self.0.iter_mut().map(|one| Box::pin(one.state.changed()));
            // The wait never fails, because the followed servers still exist.
            drop(select_all(changed).await);
        }
    }
}

impl FollowedServer {
    fn next_event(&mut self) -> Option<McpStatusEvent> {
        let state = self.state.borrow_and_update().clone();
        let now = match &state {
            ServerState::Ready(_) => ReportedStatus::Available,
            ServerState::Degraded { next_try, .. } if next_try.is_some() => {
                ReportedStatus::Retrying
            }
            ServerState::Degraded { .. } => ReportedStatus::UntilCalled,
            ServerState::Starting | ServerState::Stopped => return None,
        };
        if std::mem::replace(&mut self.reported, now) == now {
            return None;
        }
        let tools = self.server.definitions();
        Some(McpStatusEvent {
            server: Arc::clone(self.server.name()),
            state: state.public(),
            tools: tools.iter().map(|tool| Arc::clone(&tool.name)).collect(),
        })
    }
}

impl fmt::Display for McpStatusEvent {
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
