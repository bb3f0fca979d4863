//! The routes of the agent card, which is public and has no rate limit.

use std::fmt::Write as _;
use std::time::SystemTime;

use a2a::AgentCard;
use axum::Router;
use axum::body::Bytes;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, ETAG, LAST_MODIFIED, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use httpdate::fmt_http_date;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::v0_3::card::with_fields_of_v0_3;
use crate::version;

/// Path of the card, and its path in versions before 0.3, which older clients still read.
const PATHS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// Maximum age of a card that a client keeps. The card changes only with a restart of the server.
const CACHE: HeaderValue = HeaderValue::from_static("max-age=300");

/// The routes of this card. A request with the header of version 1 gets the card of this version. Other requests, which
/// usually have no version, get the card with the fields of version 0.3.
pub(crate) fn router(card: &AgentCard) -> Router {
    let v1 = serde_json::to_value(card).expect("a card is plain data with text keys");
    let merged = with_fields_of_v0_3(card).expect("a card is plain data with text keys");
    let (v1, merged) = (ServedCard::new(v1), ServedCard::new(merged));
    let mut routes = Router::new();
    for path in PATHS {
        let (v1, merged) = (v1.clone(), merged.clone());
        let answer = async move |headers: HeaderMap| {
            if version::check(&headers).is_ok() {
                v1.response()
            } else {
                merged.response()
            }
        };
        routes = routes.route(path, get(answer));
    }
    routes
}

/// A card as a response.
#[derive(Debug, Clone)]
struct ServedCard {
    headers: HeaderMap,
    body: Bytes,
}

impl ServedCard {
    fn new(mut card: Value) -> Self {
        // Parts of a card are maps without an order. A sorted card has the same tag after each start.
        card.sort_all_objects();
        let body = Bytes::from(card.to_string());
        Self {
            headers: headers(&body),
            body,
        }
    }

    fn response(&self) -> Response {
        (self.headers.clone(), self.body.clone()).into_response()
    }
}

fn headers(body: &[u8]) -> HeaderMap {
    let mut tag = String::from("\"");
    for byte in Sha256::digest(body).iter().take(8) {
        // A text accepts every write.
        let _written = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    let text = |text: &str| HeaderValue::from_str(text).expect("printable ASCII");
    let fixed: [(HeaderName, HeaderValue); 6] = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        // Pages of every origin may read the card.
        (ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")),
        (CACHE_CONTROL, CACHE),
        (VARY, HeaderValue::from(version::VERSION_NAME.clone())),
        (ETAG, text(&tag)),
        (LAST_MODIFIED, text(&fmt_http_date(SystemTime::now()))),
    ];
    HeaderMap::from_iter(fixed)
}
