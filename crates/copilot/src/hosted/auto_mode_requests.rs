//! Questions to the clients of a session about the switch to the auto model.

use allstop_model::{ConnectionProbe, ModelError, OutsideWork};
use futures::future::{BoxFuture, join_all};
use serde::Deserialize;
use serde_json::{Value, json};

use super::HostedSession;
use super::attached_clients::AttachedClient;
use super::auto_mode::SwitchConsent;
use super::auto_model::SwitchRequests;
use crate::connection::{ClientId, ClientRequestError};

#[derive(Deserialize)]
struct SwitchAnswer {
    response: SwitchConsent,
}

/// Receivers of the question.
enum NextToAsk {
    /// These clients get only the event, and at least one of them answers it.
    Handlers(Vec<AttachedClient>),
    /// This client gets a request.
    Client(AttachedClient),
}

/// A question that the clients show to their users. Dropping it closes the question.
struct OpenSwitchQuestion<'a> {
    session: &'a HostedSession,
    id: String,
    answer: Option<SwitchConsent>,
    work: Option<OutsideWork>,
}

impl Drop for OpenSwitchQuestion<'_> {
    fn drop(&mut self) {
        let response = self.answer.unwrap_or_default();
        let data = json!({ "requestId": self.id, "response": response });
        self.session
            .send_ephemeral("auto_mode_switch.completed", data);
        if let Some(work) = self.work.take().filter(|_| self.answer.is_none()) {
            // The handler of the client may still run, and no client reports its end.
            work.lose();
        }
    }
}

impl HostedSession {
    /// Asks the clients whether the session continues with the auto model after this error of its model. `None` if no client
    /// can answer, or if the clients disconnect before their answer. The probe of the call counts the question.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the question.
    async fn ask_for_auto_mode(&self, error: &ModelError, probe: &ConnectionProbe) -> Option<bool> {
        self.next_to_ask(&[])?;
        let request = self.auto_mode.open.add();
        let mut params = json!({ "sessionId": self.id() });
        let mut event = json!({ "requestId": request.id() });
        for data in [&mut params, &mut event] {
            if let Some(code) = &error.code {
                data["errorCode"] = code.as_str().into();
            }
            if let Some(wait) = error.retry_after {
                let started = u64::from(wait.subsec_nanos() > 0);
                data["retryAfterSeconds"] = (wait.as_secs() + started).into();
            }
        }
        let mut question = OpenSwitchQuestion {
            session: self,
            id: request.id().to_owned(),
            answer: None,
            work: Some(probe.begin_outside_work()),
        };
        self.send_ephemeral("auto_mode_switch.requested", event);
        let consent = tokio::select! {
            biased;
            answer = request.answer() => answer,
            answer = self.ask_in_turn(&params) => answer,
        };
        question.answer = consent;
        Some(consent? != SwitchConsent::No)
    }

    /// Asks the clients one after the other, until one of them answers. `None` if all of them are gone.
    async fn ask_in_turn(&self, params: &Value) -> Option<SwitchConsent> {
        let mut gone = Vec::new();
        loop {
            let client = match self.next_to_ask(&gone)? {
                // The answer is a separate request of a client.
                NextToAsk::Handlers(clients) => {
                    join_all(clients.iter().map(AttachedClient::detached)).await;
                    continue;
                }
                NextToAsk::Client(client) => client,
            };
            match client.request("autoModeSwitch.request", params).await {
                Ok(SwitchAnswer { response }) => return Some(response),
                Err(ClientRequestError::Gone) => gone.push(client.client.id),
                Err(_failed) => return Some(SwitchConsent::No),
            }
        }
    }

    /// Returns the next clients for the question, without these clients that are gone.
    fn next_to_ask(&self, gone: &[ClientId]) -> Option<NextToAsk> {
        let is_here = |attached: &AttachedClient| !gone.contains(&attached.client.id);
        // A handler answers the event, so that the user of a session with several clients gets one question.
        let mut handlers = self.auto_mode.with_handler(&self.attached_clients);
        handlers.retain(is_here);
        if !handlers.is_empty() {
            return Some(NextToAsk::Handlers(handlers));
        }
        let mut clients = self.attached_clients();
        clients.retain(|attached| attached.client_options.auto_mode && is_here(attached));
        clients.pop().map(NextToAsk::Client)
    }
}

impl SwitchRequests for HostedSession {
    fn ask<'a>(
        &'a self,
        error: &'a ModelError,
        probe: &'a ConnectionProbe,
    ) -> BoxFuture<'a, Option<bool>> {
        Box::pin(self.ask_for_auto_mode(error, probe))
    }

    fn note_switch<'a>(&'a self, first: &str, auto: &str) -> BoxFuture<'a, ()> {
        let data = json!({
            "newModel": auto,
            "previousModel": first,
            "cause": "rate_limit_auto_switch",
        });
        Box::pin(self.note_model_change(data))
    }
}
