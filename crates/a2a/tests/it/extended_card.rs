//! The card of a server with authentication, and the extended card, which only authenticated clients receive.

use std::sync::Arc;

use allstop_a2a::{
    A2aService, AccessControl, AgentCard, AgentDescription, BearerScheme, SERVER_EXTENSION,
    agent_card, extended_agent_card, grpc_router, http_router, secured_card,
};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};
use tower::ServiceExt as _;

use crate::support::{NamedUsers, answer, error_code, get, grpc_request, manager, router, rpc};

fn card() -> AgentCard {
    let card = agent_card(&AgentDescription {
        name: "guarded".into(),
        description: "lets some in".into(),
        version: "1".into(),
        http_url: "https://127.0.0.1:1".into(),
        grpc_url: None,
    });
    let jwt = BearerScheme::Jwt {
        issuer: "https://issuer.example".into(),
        audience: "allstop".into(),
    };
    secured_card(card, &[BearerScheme::Token, jwt])
}

#[tokio::test]
async fn clients_get_their_name_and_limits() {
    let limits = Map::from_iter([("maxTasks".to_owned(), json!(3))]);
    let service = A2aService::new(manager().await);
    let service = Arc::new(service.extended_card(extended_agent_card(card(), limits)));
    let access = AccessControl::new(Arc::new(NamedUsers));
    let router = http_router(&service, card(), access.clone()).merge(grpc_router(&service, access));

    let open = Request::get("/.well-known/agent-card.json").body(Body::empty());
    let (_, open) = answer(&router, open.unwrap()).await;
    assert_eq!(open["capabilities"]["extendedAgentCard"], true);
    let schemes = &open["securitySchemes"];
    assert_eq!(
        schemes["token"]["httpAuthSecurityScheme"]["scheme"],
        "Bearer"
    );
    let jwt = &schemes["jwt"]["httpAuthSecurityScheme"];
    assert_eq!(jwt["bearerFormat"], "JWT");
    let description = jwt["description"].as_str().unwrap();
    assert!(
        description.contains("https://issuer.example"),
        "{description}"
    );
    // Version 0.3 has equal schemes.
    assert_eq!(
        (&schemes["jwt"]["type"], &schemes["jwt"]["bearerFormat"]),
        (&json!("http"), &json!("JWT"))
    );
    assert_eq!(open["security"].as_array().unwrap().len(), 2, "{open}");
    assert!(open["security"][0].get("token").is_some(), "{open}");
    assert_eq!(open["supportsAuthenticatedExtendedCard"], true);
    let required = open["securityRequirements"].as_array().unwrap();
    assert_eq!(required.len(), 2, "one of two: {open}");
    assert!(!open.to_string().contains(SERVER_EXTENSION), "{open}");

    let (_, by_rpc) = answer(&router, rpc("GetExtendedAgentCard", &json!({}))).await;
    let (_, by_rest) = answer(&router, get("/extendedAgentCard")).await;
    for extended in [&by_rpc["result"], &by_rest] {
        let extensions = extended["capabilities"]["extensions"].as_array();
        let is_ours = |extension: &&Value| extension["uri"] == SERVER_EXTENSION;
        let ours = extensions.expect("a list").iter().find(is_ours);
        let params = &ours.expect("the extension")["params"];
        assert_eq!(params["principal"], "alice", "{extended}");
        assert_eq!(
            params["limits"]["maxTasks"].as_f64(),
            Some(3.0),
            "{extended}"
        );
    }
    let grpc = router
        .clone()
        .oneshot(grpc_request("GetExtendedAgentCard", &[]));
    let grpc = grpc.await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(grpc.trailers().unwrap()["grpc-status"], "0");
    let bytes = grpc.to_bytes();
    assert!(bytes.windows(5).any(|window| window == b"alice"));

    let mut nobody = get("/extendedAgentCard");
    nobody.headers_mut().remove("authorization");
    assert_eq!(answer(&router, nobody).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn server_without_an_extended_card_reports_that() {
    let router = router().await;
    let code = error_code(&router, "GetExtendedAgentCard", &json!({})).await;
    assert_eq!(code, -32007);
}
