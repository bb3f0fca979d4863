//! Health of the server, for those who deploy it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

/// True while the server takes work.
#[derive(Debug, Clone, Default)]
pub(super) struct Readiness(Arc<AtomicBool>);

impl Readiness {
    pub(super) fn set(&self, is_ready: bool) {
        self.0.store(is_ready, Ordering::Release);
    }

    fn status(&self) -> (StatusCode, &'static str) {
        if self.0.load(Ordering::Acquire) {
            (StatusCode::OK, "ready\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
        }
    }
}

/// `/healthz` answers as long as the process does; `/readyz` until the shutdown begins.
pub(super) fn router(readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(async move || readiness.status()))
}
