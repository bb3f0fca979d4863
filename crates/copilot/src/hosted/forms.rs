//! Clients that answer the questions of MCP servers.

use super::HostedSession;

impl HostedSession {
    /// Keeps the questions of servers open while an attached client has a handler for them. Without any attached client,
    /// open questions wait for a client that resumes the session.
    pub(super) fn update_form_client(&self) {
        let mut form_client = self.form_client.lock();
        if self.attached_clients.is_empty() {
            return;
        }
        let has_handler = self.attached_clients.latest(|options| options.elicitation);
        if has_handler.is_none() {
            drop(form_client.take());
        } else if form_client.is_none() {
            *form_client = Some(self.session.form_client());
        }
    }
}
