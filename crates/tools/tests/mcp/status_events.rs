//! Status events of MCP servers, for people: each event is reported once.

use allstop_tools::mcp::McpState;
use futures::FutureExt as _;
use serde_json::json;

use crate::support::{Place, wait_until, within};

#[tokio::test]
async fn existing_outage_is_reported_once() {
    let place = Place::new("die").await;
    let mut events = place.servers.status_events();
    let told = within(events.next()).await;
    assert_eq!(&*told.server, "t");
    let line = told.to_string();
    assert!(
        line.starts_with("the MCP server `t` is not available: it "),
        "{line}"
    );
    assert!(
        line.contains("(exit code 3: no such database); next attempt in 1 s"),
        "{line}"
    );
    assert!(line.ends_with("; until then it has no tools"), "{line}");
    wait_until("it was tried again", || {
        place.log().matches("started").count() == 3
    })
    .await;
    let again = events.next().now_or_never();
    assert!(again.is_none(), "{again:?}");
}

#[tokio::test]
async fn outage_and_recovery_are_reported_with_the_tools() {
    let place = Place::new("").await;
    let mut events = place.servers.status_events();
    assert!(events.next().now_or_never().is_none(), "all servers work");
    place.call("t__exit", json!({})).await.unwrap_err();
    let told = within(events.next()).await;
    assert!(matches!(told.state, McpState::Degraded { .. }), "{told:?}");
    let line = told.to_string();
    assert!(line.contains("exit code 3: the disk is full"), "{line}");
    assert!(
        line.ends_with(
            "; until then these fail: t__echo, t__wait, t__add, t__put, t__exit, t__mutter, \
            t__dotted_name_x, t__fail and 3 more"
        ),
        "{line}"
    );
    let told = within(events.next()).await;
    assert_eq!(told.to_string(), "the MCP server `t` is ready again");
    within(place.servers.close()).await;
    assert!(
        events.next().now_or_never().is_none(),
        "the end of a server is no event"
    );
}

#[tokio::test]
async fn no_event_without_servers() {
    let mut events = allstop_tools::mcp::McpServers::default().status_events();
    assert!(events.next().now_or_never().is_none());
}
