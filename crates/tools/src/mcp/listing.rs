//! The list of an MCP server's tools, which is requested at the start and after each change.

use std::convert::Infallible;

use futures::FutureExt as _;
use rmcp::model::{PaginatedRequestParams, Tool};
use rmcp::service::{Peer, RoleClient, ServiceError};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::convert::McpToolDefinition;
use super::limits::{LIST_PAUSE_FIRST, LIST_PAUSE_MAX, LIST_REST, PAGES_MAX, TOOLS_MAX};
use super::server::McpServer;

/// Requests the list again after each change, one request at a time, until the connection ends. If a request fails, the
/// known tools stay in the list, and the request is repeated.
///
/// # Cancel safety
/// Cancel safe: a list is applied as a whole.
#[expect(
    clippy::infinite_loop,
    reason = "whoever polls it drops it with the connection"
)]
pub(super) async fn follow_changes(
    server: &McpServer,
    peer: &Peer<RoleClient>,
    changed: &Notify,
) -> Infallible {
    let mut pause = LIST_PAUSE_FIRST;
    loop {
        if timeout(LIST_REST, changed.notified()).await.is_err() {
            pause = LIST_PAUSE_FIRST;
            changed.notified().await;
        }
        sleep(pause).await;
        // A notification during the pause counts as part of the same change.
        let _meanwhile = changed.notified().now_or_never();
        pause = LIST_PAUSE_MAX.min(pause * 2);
        let limit = server.config.handshake_timeout;
        let listed = timeout(limit, list(server, peer)).await;
        let late = |_elapsed| Err(format!("it did not list its tools in {limit:?}"));
        if let Err(why) = listed.unwrap_or_else(late) {
            tracing::warn!(server = %server.name(), why, "the changed list of tools could not be read");
            changed.notify_one();
        }
    }
}

/// Requests the list, and applies the tools that the filter admits.
///
/// # Cancel safety
/// Cancel safe: a list is applied as a whole.
pub(super) async fn list(server: &McpServer, peer: &Peer<RoleClient>) -> Result<(), String> {
    let mut used: Vec<McpToolDefinition> = Vec::new();
    for tool in pages(peer).await? {
        if !server.config.filter.admits(&tool.name) {
            continue;
        }
        let name = tool.name.to_string();
        let why = match McpToolDefinition::of(server.name(), tool) {
            Ok(tool) if used.iter().any(|other| other.name == tool.name) => {
                "another tool has its name".to_owned()
            }
            Ok(tool) => {
                used.push(tool);
                continue;
            }
            Err(why) => why,
        };
        tracing::warn!(server = %server.name(), tool = name, why, "a tool is left out");
    }
    server.replace_tools(used);
    Ok(())
}

/// Returns the server's tools, up to [`TOOLS_MAX`].
async fn pages(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, String> {
    let mut tools = Vec::new();
    let mut page = None;
    for _ in 0..PAGES_MAX {
        let listed = peer.list_tools(page).await.map_err(|error| match error {
            ServiceError::TransportClosed => {
                "it closed the connection before it had listed its tools".to_owned()
            }
            other => format!("it did not list its tools: {other}"),
        })?;
        tools.extend(listed.tools);
        tools.truncate(TOOLS_MAX);
        let Some(cursor) = listed.next_cursor else {
            break;
        };
        page = Some(PaginatedRequestParams::default().with_cursor(Some(cursor)));
    }
    Ok(tools)
}
