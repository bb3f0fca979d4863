//! Any text as a webhook, or as the parameters of an operation on webhook configurations. A URL that is accepted
//! contains no address of a private network, and is returned unchanged. No error contains a secret.
#![no_main]

use std::net::{Ipv4Addr, Ipv6Addr};

use allstop_a2a::PushOptions;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use url::{Host, Url};

#[path = "../a2a.rs"]
mod a2a;
use a2a::{answer, router, runtime};

const METHODS: [&str; 4] = [
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
];
/// Token of every webhook in this target. No error may contain this token.
const SECRET: &str = "hunter2-hunter2";

struct Service {
    runtime: tokio::runtime::Runtime,
    router: Router,
    task: Value,
}

fuzz_target!(|bytes: &[u8]| {
    // All inputs share one service, because it takes long to create the HTTP client for the deliveries.
    thread_local!(static SERVICE: Service = service());
    let Some((kind, text)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    SERVICE.with(|service| {
        service.runtime.block_on(async {
            match usize::from(*kind) % (METHODS.len() + 1) {
                0 => check_url(service, text).await,
                method => {
                    let Ok(mut params) = serde_json::from_str::<Value>(text) else {
                        return;
                    };
                    if let Some(task) = params.get_mut("taskId").filter(|task| *task == "$TASK") {
                        *task = service.task.clone();
                    }
                    call(&service.router, METHODS[method - 1], &params).await;
                }
            }
        });
    });
});

fn service() -> Service {
    let runtime = runtime();
    let (router, task) = runtime.block_on(async {
        let router = router(Some(PushOptions::default())).await;
        let part = json!({"text": "ask"});
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [part]});
        let sent = call(&router, "SendMessage", &json!({"message": message})).await;
        (router, sent["result"]["task"]["id"].clone())
    });
    assert!(task.is_string(), "the task waits for its client");
    Service {
        runtime,
        router,
        task,
    }
}

async fn call(router: &Router, method: &str, params: &Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let request = Request::post("/")
        .header("a2a-version", "1.0")
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()));
    let answered = answer(router, request.expect("a request")).await;
    assert!(answered.status.is_success(), "{}", answered.status);
    assert!(answered.headers.contains_key("content-type") && answered.trailers.is_none());
    let answer: Value = serde_json::from_slice(&answered.body).expect("JSON");
    assert_ne!(answer["error"]["code"], -32603, "{answer}");
    answer
}

async fn check_url(service: &Service, url: &str) {
    let mut params = json!({"taskId": service.task, "id": "c", "url": url, "token": SECRET});
    let created = call(&service.router, METHODS[0], &params).await;
    if created.get("error").is_some() {
        assert!(!created.to_string().contains(SECRET), "{created}");
        return;
    }
    assert_eq!(created["result"]["url"], url, "the URL changed");
    let parsed = Url::parse(url).expect("an accepted URL is one");
    assert!(matches!(parsed.scheme(), "http" | "https"), "{parsed}");
    assert_eq!(
        (parsed.username(), parsed.password()),
        ("", None),
        "{parsed}"
    );
    match parsed.host().expect("a host") {
        Host::Ipv4(address) => assert!(is_public_v4(address), "{address}"),
        // A public IPv4 address that is written as an IPv6 address.
        Host::Ipv6(address) if address.to_ipv4_mapped().is_some_and(is_public_v4) => {}
        Host::Ipv6(address) => {
            assert_eq!(
                address.segments()[0] >> 13,
                1,
                "{address} is not global unicast"
            );
            let is_6to4 = address.segments()[0] == 0x2002;
            let is_teredo = address.segments()[..2] == [0x2001, 0];
            assert!(
                !is_6to4 && !is_teredo,
                "{address} has an IPv4 address inside"
            );
            assert!(address != Ipv6Addr::LOCALHOST);
        }
        Host::Domain(name) => {
            let name = name.trim_end_matches('.');
            assert!(!name.eq_ignore_ascii_case("localhost"), "{parsed}");
            // A resolver could interpret such a name as an address.
            assert!(name.parse::<Ipv4Addr>().is_err(), "{parsed}");
        }
    }
    params["id"] = "c".into();
    call(&service.router, METHODS[3], &params).await;
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_unspecified()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && b & 0xc0 == 64)
        || (a == 198 && b & 0xfe == 18))
}
