//! Health endpoints of the server, for operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

use super::cluster::StoreConnection;

/// True while the server accepts work and its store is reachable.
#[derive(Clone)]
pub(super) struct Readiness {
    takes_work: Arc<AtomicBool>,
    connection: Arc<StoreConnection>,
}

impl Readiness {
    /// Starts as not ready.
    pub(super) fn new(connection: StoreConnection) -> Self {
        Self {
            takes_work: Arc::default(),
            connection: Arc::new(connection),
        }
    }

    pub(super) fn set(&self, takes_work: bool) {
        self.takes_work.store(takes_work, Ordering::Release);
    }

    fn status(&self) -> (StatusCode, &'static str) {
        if !self.takes_work.load(Ordering::Acquire) {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
        } else if !self.connection.is_there() {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "not ready: the task store cannot be reached\n",
            )
        } else {
            (StatusCode::OK, "ready\n")
        }
    }
}

/// `/healthz` answers with status 200 while the process runs. `/readyz` does so only while the server accepts work and
/// the store is connected, and otherwise answers with status 503.
pub(super) fn router(readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(async move || readiness.status()))
}
