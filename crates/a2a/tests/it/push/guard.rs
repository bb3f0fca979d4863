//! Addresses that a delivery must never reach, regardless of the receiver's behaviour.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_a2a::PushOptions;
use serde_json::json;

use super::failures::Script;
use super::receiver::{HookAnswer, Receiver, words};
use super::rig::{Rig, quick};
use crate::support::{answer, error_code, message, result, rpc};

#[tokio::test]
async fn redirect_is_not_followed() {
    let inner = Receiver::start().await;
    let to = inner.address;
    let outer = Receiver::answering(move |count| match count {
        1..=3 => HookAnswer::Redirect(to),
        _ => HookAnswer::Status(200),
    })
    .await;
    let rig = Rig::start(quick()).await;
    rig.send("echo", &json!({"url": outer.url(), "token": "t"}))
        .await;
    rig.active(0).await;
    assert_eq!(outer.received().len(), 3 + 3);
    assert!(inner.received().is_empty(), "{:?}", inner.received());
}

/// A name has a public address during the check, and a private address when the server connects.
#[tokio::test]
async fn name_that_changes_to_a_private_address_gets_nothing() {
    let hook = Receiver::start().await;
    let public = IpAddr::from([127, 9, 9, 9]);
    let resolver = Arc::new(Script {
        addresses: vec![Ok(public), Ok(Ipv4Addr::LOCALHOST.into())],
        asked: AtomicUsize::new(0),
    });
    let rig = Rig::start(
        quick()
            .resolver(resolver.clone())
            // This network represents the public internet. The network does not contain the receiver's address.
            .allowed(vec!["127.9.9.9/32".parse().unwrap()])
            .failing_max(Duration::from_millis(100)),
    )
    .await;
    let url = format!("http://hook.test:{}/", hook.address.port());
    rig.send("echo", &json!({"id": "c", "url": url})).await;
    // After enough refused attempts, the configuration is paused.
    rig.active(0).await;
    assert!(resolver.asked.load(Ordering::Relaxed) >= 2);
    assert!(hook.received().is_empty(), "{:?}", words(&hook.received()));
}

/// The permitted addresses of the current start also apply to configurations that were stored before this start.
#[tokio::test]
async fn address_that_is_no_longer_allowed_gets_nothing_more() {
    let hook = Receiver::start().await;
    let rig = Rig::start(quick()).await;
    let task = rig.send("ask", &json!({"url": hook.url()})).await;
    hook.wait_for(1).await;
    let strict = quick()
        .allowed(Vec::new())
        .failing_max(Duration::from_millis(50));
    let rig = Rig::open(rig.close().await, strict).await;
    let mut params = message("m2", "echo");
    params["message"]["taskId"] = task.into();
    result(&rig.router, "SendMessage", &params).await;
    rig.active(0).await;
    assert_eq!(words(&hook.received()), ["input_required"]);
}

#[tokio::test]
async fn private_url_is_refused_with_its_reason() {
    let rig = Rig::start(PushOptions::default()).await;
    let task =
        result(&rig.router, "SendMessage", &message("m", "echo")).await["task"]["id"].clone();
    for (url, reason) in [
        ("http://127.0.0.1/", "not public (loopback)"),
        ("http://2130706433/", "not public (loopback)"),
        ("http://[::ffff:10.0.0.1]/", "not public (private)"),
        ("http://localhost./", "not public (loopback)"),
        ("http://169.254.169.254/", "not public (link-local)"),
        ("ftp://example.com/", "http:// or https://"),
        ("http://u:secret@example.com/", "user name or password"),
        ("nonsense", "invalid"),
    ] {
        let create = rpc(
            "CreateTaskPushNotificationConfig",
            &json!({"taskId": task, "url": url}),
        );
        let (_, body) = answer(&rig.router, create).await;
        assert_eq!(body["error"]["code"], -32602, "{url}: {body}");
        let text = body["error"]["message"].as_str().expect("a text");
        assert!(text.contains(reason), "{url}: {text}");
        assert!(!text.contains("secret"), "{text}");
        // A message with such a configuration is not accepted either.
        let mut params = message("m-refused", "echo");
        params["configuration"] = json!({"taskPushNotificationConfig": {"url": url}});
        assert_eq!(
            error_code(&rig.router, "SendMessage", &params).await,
            -32602
        );
    }
    let listed = result(&rig.router, "ListTasks", &json!({})).await;
    assert_eq!(listed["totalSize"], 1);
}
