//! Failing receivers: repeated deliveries, paused configurations, and webhooks that no longer exist.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_a2a::HostResolver;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::json;

use super::receiver::{HookAnswer, ReceivedEvent, Receiver, words};
use super::rig::{Rig, quick};
use crate::support::{error_code, result};

/// Resolver that returns one address after another, and from then on always the last address.
pub(super) struct Script {
    pub(super) addresses: Vec<io::Result<IpAddr>>,
    pub(super) asked: AtomicUsize,
}

impl HostResolver for Script {
    fn resolve(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        assert_eq!(host, "hook.test");
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = self.addresses.get(asked).or(self.addresses.last());
        let answer = match answer.expect("an address") {
            Ok(address) => Ok(vec![*address]),
            Err(error) => Err(io::Error::from(error.kind())),
        };
        async move { answer }.boxed()
    }
}

#[tokio::test]
async fn event_is_repeated_until_it_is_accepted() {
    let rig = Rig::start(quick()).await;
    let statuses = [500, 404, 429, 302, 200, 503, 200, 200];
    let hook = Receiver::answering(move |count| {
        HookAnswer::Status(statuses.get(count - 1).copied().unwrap_or(200))
    })
    .await;
    rig.send("echo", &json!({"url": hook.url()})).await;
    rig.active(0).await;
    let received = hook.received();
    let mut expected = vec!["working"; 5];
    expected.extend(["artifactUpdate"; 2]);
    expected.push("completed");
    assert_eq!(words(&received), expected);
    for pair in received.windows(2) {
        let [a, b] = pair else { unreachable!() };
        let is_same = a.word() == b.word();
        assert_eq!(a.header("webhook-id") == b.header("webhook-id"), is_same);
        assert_eq!(a.number() == b.number(), is_same);
    }
}

/// The host first cannot be resolved, then refuses the connection, and finally accepts the connection.
#[tokio::test]
async fn event_is_repeated_when_there_is_no_connection() {
    let hook = Receiver::start().await;
    // No process listens on this port of another loopback address.
    let nobody = IpAddr::from([127, 9, 9, 9]);
    let resolver = Arc::new(Script {
        addresses: vec![
            Err(io::ErrorKind::NotFound.into()),
            Ok(nobody),
            Ok(nobody),
            Ok(Ipv4Addr::LOCALHOST.into()),
        ],
        asked: AtomicUsize::new(0),
    });
    let rig = Rig::start(quick().resolver(resolver.clone())).await;
    let url = format!("http://hook.test:{}/", hook.address.port());
    rig.send("echo", &json!({"url": url})).await;
    rig.active(0).await;
    assert_eq!(
        words(&hook.received()),
        ["working", "artifactUpdate", "completed"]
    );
    assert!(resolver.asked.load(Ordering::Relaxed) >= 4);
}

#[tokio::test]
async fn attempt_without_an_answer_is_repeated() {
    let rig = Rig::start(quick().attempt_max(Duration::from_millis(50))).await;
    let hook = Receiver::answering(|count| match count {
        1 => HookAnswer::Hang,
        _ => HookAnswer::Status(200),
    })
    .await;
    rig.send("echo", &json!({"url": hook.url()})).await;
    let received = hook.wait_for(4).await;
    assert_eq!(
        received[0].header("webhook-id"),
        received[1].header("webhook-id")
    );
    rig.active(0).await;
}

#[tokio::test]
async fn missing_webhook_loses_its_configuration() {
    let rig = Rig::start(quick()).await;
    let hook = Receiver::answering(|_| HookAnswer::Status(410)).await;
    let task = rig
        .send("wait", &json!({"id": "c", "url": hook.url()}))
        .await;
    rig.active(0).await;
    let get = json!({"taskId": task, "id": "c"});
    assert_eq!(
        error_code(&rig.router, "GetTaskPushNotificationConfig", &get).await,
        -32001
    );
    rig.cancel(&task).await;
    assert_eq!(words(&hook.received()), ["working"]);
}

/// A configuration whose webhook failed for too long is paused until it is set again. No event is skipped.
#[tokio::test]
async fn paused_configuration_continues_when_it_is_set_again() {
    let rig = Rig::start(quick().failing_max(Duration::from_millis(50))).await;
    let broken =
        Receiver::answering(|count| HookAnswer::Status(if count == 1 { 200 } else { 500 }));
    let broken = broken.await;
    let task = rig
        .send("echo", &json!({"id": "c", "url": broken.url()}))
        .await;
    rig.active(0).await;
    let last = broken.received().last().map(ReceivedEvent::word);
    assert_eq!(last.as_deref(), Some("artifactUpdate"));
    // The paused configuration still exists, and a restart does not resume its deliveries.
    let listed = json!({"taskId": task});
    let configs = result(&rig.router, "ListTaskPushNotificationConfigs", &listed).await;
    assert_eq!(configs["configs"][0]["id"], "c");
    let count = broken.received().len();
    let rig = Rig::open(rig.close().await, quick()).await;
    assert_eq!(rig.push.active(), 0);
    let repaired = Receiver::start().await;
    rig.create(&task, json!({"id": "c", "url": repaired.url()}))
        .await;
    rig.active(0).await;
    assert_eq!(words(&repaired.received()), ["artifactUpdate", "completed"]);
    assert_eq!(broken.received().len(), count);
}
