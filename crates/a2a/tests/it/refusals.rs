//! Refusals of a server that takes no more work: each binding names the reason, also in the answer to a streaming
//! request.

use std::sync::Arc;
use std::time::Duration;

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::{Message, Part, SendMessageRequest, part};
use allstop_task::{TaskManager, TaskOptions, WhenFull};
use axum::Router;
use axum::http::StatusCode;
use serde_json::json;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::gated_log::GatedLog;
use crate::support::{
    ObedientAgent, answer, manager_with, message, named_users, post, result, router_over, rpc,
};

struct ExpectedRefusal {
    reason: &'static str,
    jsonrpc: i64,
    http: StatusCode,
    grpc: Code,
}

const FULL: ExpectedRefusal = ExpectedRefusal {
    reason: "RESOURCE_EXHAUSTED",
    jsonrpc: -32_050,
    http: StatusCode::TOO_MANY_REQUESTS,
    grpc: Code::ResourceExhausted,
};

const UNAVAILABLE: ExpectedRefusal = ExpectedRefusal {
    reason: "UNAVAILABLE",
    jsonrpc: -32_051,
    http: StatusCode::SERVICE_UNAVAILABLE,
    grpc: Code::Unavailable,
};

impl ExpectedRefusal {
    /// Sends a message in each binding, and as a streaming and as another request.
    async fn check(&self, router: &Router) {
        for method in ["SendMessage", "SendStreamingMessage"] {
            let (_, body) = answer(router, rpc(method, &message(method, "wait"))).await;
            assert_eq!(body["error"]["code"], self.jsonrpc, "{method}: {body}");
            let info = &body["error"]["data"][0];
            assert_eq!(info["reason"], self.reason, "{method}: {body}");
            assert!(info["metadata"]["retryAfterSeconds"].is_string(), "{body}");
        }
        for path in ["/message:send", "/message:stream"] {
            let (status, body) =
                answer(router, post(path, message(path, "wait").to_string())).await;
            assert_eq!(status, self.http, "{path}: {body}");
            assert_eq!(body["error"]["status"], self.reason, "{path}: {body}");
            let info = &body["error"]["details"][0];
            assert_eq!(info["reason"], self.reason, "{path}: {body}");
        }
        let mut client = A2aServiceClient::new(router.clone());
        let sent = client.send_message(grpc_message("g1")).await;
        self.check_status(&sent.expect_err("refused"));
        let streamed = client.send_streaming_message(grpc_message("g2")).await;
        self.check_status(&streamed.expect_err("refused"));
    }

    fn check_status(&self, status: &Status) {
        assert_eq!(status.code(), self.grpc, "{status:?}");
        let details = status.get_error_details();
        let info = details.error_info().expect("details");
        assert_eq!(info.reason, self.reason, "{status:?}");
        assert!(status.metadata().contains_key("retry-after"), "{status:?}");
    }
}

fn grpc_message(id: &str) -> tonic::Request<SendMessageRequest> {
    let part = Part {
        content: Some(part::Content::Text("wait".to_owned())),
        ..Part::default()
    };
    let mut request = tonic::Request::new(SendMessageRequest {
        message: Some(Message {
            message_id: id.to_owned(),
            role: a2a_pb::proto::Role::User.into(),
            parts: vec![part],
            ..Message::default()
        }),
        ..SendMessageRequest::default()
    });
    let metadata = request.metadata_mut();
    metadata.insert("authorization", "alice".parse().expect("a name"));
    metadata.insert("a2a-version", "1.0".parse().expect("a version"));
    request
}

async fn manager_of(log: GatedLog, options: TaskOptions) -> TaskManager {
    manager_with(Arc::new(log), ObedientAgent, options).await
}

async fn begin_task(router: &Router) {
    let mut params = message("first", "wait");
    params["configuration"] = json!({"returnImmediately": true});
    result(router, "SendMessage", &params).await;
}

#[tokio::test]
async fn full_server_names_its_limit_in_every_binding() {
    let options = [
        TaskOptions::default()
            .running_max(1)
            .when_full(WhenFull::Refuse),
        TaskOptions::default()
            .running_max(1)
            .when_full(WhenFull::Queue { len_max: 0 }),
        TaskOptions::default()
            .running_per_owner_max(1)
            .when_full(WhenFull::Refuse),
    ];
    for options in options {
        let manager = manager_of(GatedLog::new(), options).await;
        let router = router_over(manager, named_users());
        begin_task(&router).await;
        FULL.check(&router).await;
    }
}

#[tokio::test]
async fn server_that_shuts_down_is_unavailable_in_every_binding() {
    let manager = manager_of(GatedLog::new(), TaskOptions::default()).await;
    let router = router_over(manager.clone(), named_users());
    let shutdown = manager.shutdown(Duration::from_secs(1), "a test");
    let _report = shutdown.await;
    UNAVAILABLE.check(&router).await;
}

#[tokio::test]
async fn server_that_cannot_write_is_unavailable_in_every_binding() {
    let log = GatedLog::new();
    let manager = manager_of(log.clone(), TaskOptions::default()).await;
    let router = router_over(manager, named_users());
    log.fill();
    UNAVAILABLE.check(&router).await;
}
