//! Health endpoints of the server, for operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

use super::cluster::StoreConnection;
use super::store_probe::StoreProbe;

/// True while the server accepts work and its store can be written.
#[derive(Clone)]
pub(super) struct Readiness {
    takes_work: Arc<AtomicBool>,
    connection: Arc<StoreConnection>,
    probe: StoreProbe,
}

impl Readiness {
    /// Starts as not ready.
    pub(super) fn new(connection: StoreConnection, probe: StoreProbe) -> Self {
        Self {
            takes_work: Arc::default(),
            connection: Arc::new(connection),
            probe,
        }
    }

    pub(super) fn set(&self, takes_work: bool) {
        self.takes_work.store(takes_work, Ordering::Release);
    }

    async fn status(&self) -> (StatusCode, String) {
        let problem = if !self.takes_work.load(Ordering::Acquire) {
            "the server takes no work".into()
        } else if !self.connection.is_there() {
            "the task store cannot be reached".into()
        } else if let Some(problem) = self.probe.problem().await {
            problem
        } else {
            return (StatusCode::OK, "ready\n".to_owned());
        };
        let body = format!("not ready: {problem}\n");
        (StatusCode::SERVICE_UNAVAILABLE, body)
    }
}

/// `/healthz` answers with status 200 while the process runs. `/readyz` does so only while the server accepts work and
/// a record could be written to the store within the last second. Otherwise it answers with status 503 and the cause.
pub(super) fn router(readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(async move || readiness.status().await))
}
