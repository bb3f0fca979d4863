//! Questions to the clients of a session about the switch to the auto model.

use std::future::pending;

use allstop_model::{ConnectionProbe, ModelError, OutsideWork};
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::HostedSession;
use super::attached_clients::AttachedClient;
use super::auto_mode::SwitchConsent;
use super::auto_model::SwitchRequests;

#[derive(Deserialize)]
struct SwitchAnswer {
    response: SwitchConsent,
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

/// Asks a client for its answer. Never completes without a client: another request of a client then has the answer.
async fn dispatched(client: Option<AttachedClient>, params: &Value) -> SwitchConsent {
    let Some(client) = client else {
        return pending().await;
    };
    let answer = client.request("autoModeSwitch.request", params).await;
    answer.map_or(SwitchConsent::No, |SwitchAnswer { response }| response)
}

impl HostedSession {
    /// Asks the clients whether the session continues with the auto model after this error of its model. `None` if no client
    /// can answer. The probe of the call counts the question.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the question.
    async fn ask_for_auto_mode(&self, error: &ModelError, probe: &ConnectionProbe) -> Option<bool> {
        let questions = &self.auto_mode;
        let has_handler = questions.has_handler(&self.attached_clients);
        let client = self.attached_clients.latest(|options| options.auto_mode);
        // A handler answers the event, so that the user of a session with several clients gets one question.
        let client = client.filter(|_| !has_handler);
        if client.is_none() && !has_handler {
            return None;
        }
        let request = questions.open.add();
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
            answer = request.answer() => answer.unwrap_or_default(),
            answer = dispatched(client, &params) => answer,
        };
        question.answer = Some(consent);
        Some(consent != SwitchConsent::No)
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
