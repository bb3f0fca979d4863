//! Reason for the end of a connection to an MCP server.

use std::sync::Arc;

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
