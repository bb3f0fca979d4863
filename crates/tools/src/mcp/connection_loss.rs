//! Reason for the end of a connection to an MCP server.

use std::sync::Arc;

use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::sync::SetOnce;

/// Reason for the end of a connection. The first reason is kept.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionLoss(Arc<SetOnce<LossReason>>);

#[derive(Debug, Clone)]
pub(super) struct LossReason {
    pub(super) why: Arc<str>,
    pub(super) kind: LossKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LossKind {
    /// The other side ended the connection.
    ByServer,
    /// This side ended the connection.
    ByUs,
    /// The server refused the credentials, so another attempt with the same credentials is useless.
    AccessDenied,
}

impl ConnectionLoss {
    /// Records that the other side ended the connection.
    pub(super) fn by_server(&self, why: &str) {
        self.set(why, LossKind::ByServer);
    }

    /// Records that this side ends the connection.
    pub(super) fn by_us(&self, why: &str) {
        self.set(why, LossKind::ByUs);
    }

    /// Records that the server refused the credentials.
    pub(super) fn access_denied(&self, why: &str) {
        self.set(why, LossKind::AccessDenied);
    }

    fn set(&self, why: &str, kind: LossKind) {
        let why = why.into();
        // Setting the reason fails if a reason was recorded before. That reason is kept.
        drop(self.0.set(LossReason { why, kind }));
    }

    pub(super) fn reason(&self) -> Option<&LossReason> {
        self.0.get()
    }

    /// Reason of a refusal of the credentials.
    pub(super) fn denial(&self) -> Option<&LossReason> {
        self.reason()
            .filter(|loss| loss.kind == LossKind::AccessDenied)
    }

    pub(super) async fn wait(&self) -> LossReason {
        self.0.wait().await.clone()
    }
}

/// True if the failure of one request shows that the connection is lost. Over HTTP, a server that answers one request with
/// an error, or closes the connection of one request, may serve the others.
pub(super) fn is_connection_lost(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => error.is_connect(),
        Some(error) => !matches!(
            error,
            StreamableHttpError::UnexpectedServerResponse(_)
                | StreamableHttpError::UnexpectedContentType(_)
                | StreamableHttpError::ResponseBodyTooLarge { .. }
                | StreamableHttpError::Deserialize(_)
        ),
        None => true,
    }
}
