//! Errors and unknown paths of gRPC that the official clients do not test.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use tonic::{Code, Status};
use tower::ServiceExt as _;

use crate::support::{grpc_alone, grpc_request, router};

/// Clients compare the code of the status with the code in its details, and reject a status with different codes.
#[tokio::test]
async fn status_has_the_code_of_its_details() {
    let router = grpc_alone().await;
    // A request without a version means version 0.3.
    let path = "/lf.a2a.v1.A2AService/ListTasks";
    let status = status_of(&post(&router, path, "application/grpc").await);
    assert_eq!(status.code(), Code::Unimplemented);
    // Field 1 of `google.rpc.Status` is the code.
    assert_eq!(status.details()[..2], [8, Code::Unimplemented as u8]);
    assert!(status.message().contains("0.3"), "{status:?}");
}

/// Version 0.3 uses another gRPC package. The message of a version 0.3 error contains the name of the error.
#[tokio::test]
async fn service_of_an_older_version_is_refused_by_name() {
    let router = router().await;
    let path = "/a2a.v1.A2AService/SendMessage";
    let status = status_of(&post(&router, path, "application/grpc").await);
    assert_eq!(status.code(), Code::Unimplemented);
    assert_eq!(status.details()[..2], [8, Code::Unimplemented as u8]);
    let message = "VersionNotSupportedError: version not supported: 0.3 over this binding; \
                   version 0.3 is available over JSON-RPC";
    assert_eq!(status.message(), message);
}

/// Keys in the data of a message become JSON keys in the log. The JSON library reads an object with a reserved key as a
/// different value, so the server refuses reserved keys.
#[tokio::test]
async fn reserved_keys_are_refused() {
    let router = grpc_alone().await;
    // Field 1, a text of 35 bytes.
    let mut message = vec![10, 35];
    message.extend(b"$serde_json::private::RawValue=[1];");
    let answered = router.oneshot(grpc_request("GetTask", &message)).await;
    let status = status_of(&answered.expect("infallible"));
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("reserved"), "{status:?}");
}

/// An unknown path is refused in every binding.
#[tokio::test]
async fn unknown_path_is_refused_in_the_protocol_of_the_request() {
    let router = router().await;
    let response = post(&router, "/nowhere", "application/json").await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let path = "/nowhere/AtAll";
    let status = status_of(&post(&router, path, "application/grpc").await);
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains(path), "{status:?}");
}

async fn post(router: &Router, path: &str, content_type: &str) -> Response<Body> {
    let request = Request::post(path)
        .header("content-type", content_type)
        .header("authorization", "alice")
        .body(Body::from(vec![0; 5]));
    let answered = router.clone().oneshot(request.expect("a request"));
    answered.await.expect("infallible")
}

fn status_of(response: &Response<Body>) -> Status {
    Status::from_header_map(response.headers()).expect("a status")
}
