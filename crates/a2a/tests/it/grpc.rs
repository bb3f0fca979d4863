//! The gRPC binding, as far as the official clients do not test it.

use std::sync::Arc;

use allstop_a2a::grpc_router;
use axum::body::Body;
use axum::http::Request;
use tonic::{Code, Status};
use tower::ServiceExt as _;

use crate::support::{NamedUsers, service};

/// Clients compare the code of the status with the code in its details, and reject a status with two codes.
#[tokio::test]
async fn status_has_the_code_of_its_details() {
    let router = grpc_router(&service().await, Arc::new(NamedUsers));
    // Without a version, which stands for 0.3.
    let request = Request::post("/lf.a2a.v1.A2AService/ListTasks")
        .header("content-type", "application/grpc")
        .header("authorization", "alice")
        .body(Body::from(vec![0; 5]))
        .unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = Status::from_header_map(response.headers()).unwrap();
    assert_eq!(status.code(), Code::Unimplemented);
    // Field 1 of `google.rpc.Status` is the code.
    assert_eq!(status.details()[..2], [8, Code::Unimplemented as u8]);
    assert!(status.message().contains("0.3"), "{status:?}");
}
