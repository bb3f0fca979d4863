//! The arrival and departure of the clients of a session.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind};
use allstop_log::Version;
use allstop_scope::WorkSpec;
use serde_json::json;
use tokio::time::timeout;

use super::attached_clients::{AttachedClient, DetachedClient, FeedHandle};
use super::feed::Feed;
use super::rejection_stop::RejectionStop;
use super::{HostedSession, SessionChoice};
use crate::connection::{Client, ClientId};
use crate::server::CopilotServer;
use crate::translate::{EventTranslator, TranslatorOptions};

impl HostedSession {
    /// Returns the options for the events of a client with this choice.
    pub(super) fn translator_options(&self, choice: &SessionChoice) -> TranslatorOptions {
        TranslatorOptions {
            session: self.id().clone(),
            streaming: choice.streaming,
            version: Arc::clone(&self.version),
            facts: Arc::clone(&self.facts),
            context_window: choice.context_window,
            reasoning_effort: self.choice.reasoning_effort,
            model: choice
                .model_name
                .clone()
                .or_else(|| self.choice.model_name.clone()),
            nonce: ulid::Ulid::generate().to_string().into(),
        }
    }

    /// Adds a client of this session again, after the session was opened with other settings.
    pub(crate) fn attach_again(
        self: &Arc<Self>,
        attached: &AttachedClient,
        choice: &SessionChoice,
    ) {
        let choice = SessionChoice {
            client_options: attached.client_options,
            streaming: attached.streaming,
            commands: attached.commands.clone(),
            canvases: attached.canvases.clone(),
            not_offered: Vec::new(),
            ..choice.clone()
        };
        self.attach(&attached.client, &choice, None);
    }

    /// Adds a client. The client receives the events from this record on, or only new events if `from` is `None`.
    pub(crate) fn attach(
        self: &Arc<Self>,
        client: &Arc<Client>,
        choice: &SessionChoice,
        from: Option<Version>,
    ) {
        let (is_first, had_forms) = (self.is_alone(), self.has_forms());
        let options = choice.client_options;
        if self
            .attached_clients
            .change(client.id, options, &choice.canvases)
        {
            self.report_forms(had_forms);
            self.add_canvases(&choice.canvases);
            // The client already has a feed. A second feed would report the running calls again, with less information.
            self.update_form_client();
            return;
        }
        let open = self.session.questions();
        let asked_again = open.into_iter().map(|question| question.id).collect();
        let handle = FeedHandle::default();
        let mut feed = Feed {
            translator: EventTranslator::new(self.translator_options(choice)),
            host: self.host_events.subscribe(),
            events: self.session.subscribe(from),
            client: Arc::clone(client),
            handle: handle.clone(),
            session: Arc::clone(self),
            has_missed: false,
            rejection: RejectionStop::default(),
        };
        let mut first = feed.not_offered(&choice.not_offered);
        if from.is_none() {
            first.extend(feed.pending_calls());
        }
        self.attached_clients.attach(AttachedClient {
            client: Arc::clone(client),
            client_options: choice.client_options,
            streaming: choice.streaming,
            commands: choice.commands.clone(),
            canvases: choice.canvases.clone(),
            asked_again,
            feed: handle,
        });
        self.update_form_client();
        self.report_token_handler(choice.client_options.mcp_tokens);
        if !is_first {
            self.report_forms(had_forms);
        }
        if !choice.commands.is_null() {
            // The clients name the commands of a session to their users.
            let data = json!({ "commands": self.client_commands() });
            self.send_ephemeral("commands.changed", data);
        }
        self.add_canvases(&choice.canvases);
        let under_way = self.feeds.token();
        let spec = WorkSpec::new(ItemKind::Future, "events of a session");
        let spawned = self.scope.spawn(spec, |cx| async move {
            let _under_way = under_way;
            tokio::select! {
                _stopped = cx.stopped_at("events of a session") => {}
                () = feed.run_after(first) => {}
            }
        });
        drop(spawned);
    }

    /// Removes a client. Returns true if it was the last client. Open permission questions then wait for a client that
    /// resumes the session.
    pub(crate) fn detach(&self, client: ClientId) -> bool {
        let had_forms = self.has_forms();
        self.remove_token_handler(client);
        let gone = self.attached_clients.get(client);
        let result = self.attached_clients.detach(client);
        if let Some(gone) = gone {
            self.remove_canvases(&gone);
        }
        self.report_forms(had_forms);
        self.update_form_client();
        match result {
            DetachedClient::Last => true,
            DetachedClient::OneOfMany if !self.attached_clients.has_permission_handler() => {
                for question in self.session.questions() {
                    self.answer_unasked(&question);
                }
                false
            }
            DetachedClient::OneOfMany | DetachedClient::Unknown => false,
        }
    }

    /// True if no other client is attached to the session.
    pub(crate) fn is_last(&self, client: ClientId) -> bool {
        self.attached_clients.is_last(client)
    }

    /// True if no client is attached to the session.
    pub(crate) fn is_alone(&self) -> bool {
        self.attached_clients.is_empty()
    }

    /// True if this client shows the views of MCP servers.
    pub(crate) fn shows_apps(&self, client: ClientId) -> bool {
        let attached = self.attached_clients.get(client);
        attached.is_some_and(|attached| attached.client_options.mcp_apps)
    }

    /// True if any client shows the views of MCP servers.
    pub(crate) fn has_apps(&self) -> bool {
        let clients = self.attached_clients();
        clients
            .iter()
            .any(|attached| attached.client_options.mcp_apps)
    }

    /// True if any client fills in forms.
    pub(crate) fn has_forms(&self) -> bool {
        self.attached_clients.has_forms()
    }

    /// Notifies the clients if the session gains or loses its last client that fills in forms.
    fn report_forms(&self, had_forms: bool) {
        let is_offered = self.has_forms();
        if is_offered != had_forms {
            let data = json!({ "ui": { "elicitation": is_offered } });
            self.send_ephemeral("capabilities.changed", data);
        }
    }

    pub(crate) fn feed_of(&self, client: ClientId) -> Option<FeedHandle> {
        self.attached_clients.feed_of(client)
    }

    /// Closes the session after a time without clients. Until then, the running turn waits for a client that resumes
    /// the session.
    pub(crate) fn begin_unattended(self: &Arc<Self>, server: &CopilotServer) {
        let (own, server) = (Arc::clone(self), server.clone());
        let mut arrivals = self.attached_clients.arrivals();
        arrivals.mark_unchanged();
        let max = server.options().unattended_max;
        let spec = WorkSpec::new(ItemKind::Future, "session without a client");
        let connections = server.connections().clone();
        let spawned = connections.spawn(spec, move |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at("session without a client") => return,
                arrived = timeout(max, arrivals.changed()) => if arrived.is_ok() {
                    return;
                },
            }
            let cause = Cause::new(CauseKind::Disconnect).detail("its client is gone");
            drop(server.close_session_if(own.id(), Self::is_alone, cause));
        });
        drop(spawned);
    }
}
