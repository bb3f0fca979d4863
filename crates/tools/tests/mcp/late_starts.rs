//! Servers that start at the first need, and the end of one server.

use crate::support::{Place, wait_until};

fn late() -> Place {
    Place::not_started("", |config| config.starts_late = true)
}

#[tokio::test]
async fn late_server_starts_only_on_request() {
    let place = late();
    // Before the start of the servers and after their end, the request has no effect.
    place.servers.begin_late(&place.root).unwrap();
    place.servers.start(&place.root).await.unwrap();
    assert_eq!(place.state().to_string(), "stopped");
    assert!(place.tools().is_empty());
    for _ in 0..2 {
        place.servers.start_late(&place.root).await.unwrap();
        assert_eq!(place.state().to_string(), "ready");
        assert!(!place.tools().is_empty());
    }
    place.servers.close().await;
    place.servers.start_late(&place.root).await.unwrap();
    assert_eq!(place.state().to_string(), "stopped");
    assert_eq!(place.count("tools/list"), 1, "one start");
}

#[tokio::test]
async fn ended_server_does_not_start_again() {
    let place = late();
    place.servers.start(&place.root).await.unwrap();
    place.servers.start_late(&place.root).await.unwrap();
    for server in place.servers.all() {
        server.begin_end();
    }
    wait_until("it is stopped", || place.state().to_string() == "stopped").await;
    place.servers.start_late(&place.root).await.unwrap();
    assert_eq!(place.state().to_string(), "stopped");

    let unstarted = late();
    unstarted.servers.start(&unstarted.root).await.unwrap();
    for server in unstarted.servers.all() {
        server.begin_end();
    }
    unstarted.servers.start_late(&unstarted.root).await.unwrap();
    assert_eq!(unstarted.state().to_string(), "stopped");
}
