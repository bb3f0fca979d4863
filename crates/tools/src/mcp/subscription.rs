//! The subscription to changes of a server's tools. Servers since revision 2026-07-28 report changes only to a client
//! that has subscribed.

use std::convert::Infallible;

use rmcp::model::SubscriptionFilter;
use rmcp::service::{Peer, RoleClient};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::limits::{LIST_PAUSE_FIRST, LIST_PAUSE_MAX, LIST_REST};
use super::server::McpServer;

/// Keeps the subscription until the connection ends. After each subscription the list is requested again, because the
/// tools may have changed before.
///
/// # Cancel safety
/// Dropping the future ends the subscription.
pub(super) async fn keep_subscribed(
    server: &McpServer,
    peer: &Peer<RoleClient>,
    changed: &Notify,
) -> Infallible {
    let mut pause = LIST_PAUSE_FIRST;
    while needs_subscription(peer) {
        let began = Instant::now();
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        match peer.listen(filter).await {
            Ok(mut subscription) => {
                changed.notify_one();
                // The interceptor takes the notifications, so the result is the end of the subscription.
                drop(subscription.next().await);
            }
            Err(error) => {
                tracing::warn!(server = %server.name(), %error, "changes of the tools are not reported");
                break;
            }
        }
        if began.elapsed() >= LIST_REST {
            pause = LIST_PAUSE_FIRST;
        }
        sleep(pause).await;
        pause = LIST_PAUSE_MAX.min(pause * 2);
    }
    std::future::pending().await
}

/// True if the server reports changes, but only to subscribers.
fn needs_subscription(peer: &Peer<RoleClient>) -> bool {
    peer.peer_info().is_some_and(|info| {
        let tools = info.capabilities.tools.as_ref();
        !info.protocol_version.has_initialize()
            && tools.is_some_and(|tools| tools.list_changed == Some(true))
    })
}
