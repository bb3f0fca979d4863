//! A second model for a session, which replaces the first model when its provider limits the rate of requests.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use allstop_model::{
    ConnectionProbe, Model, ModelError, ModelErrorKind, ModelRequest, ModelStream,
};
use allstop_runtime::System;
use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};

use super::session_choice::SessionChoice;

/// Longest wait that no client is asked about. Limits per minute, which many providers have, end in this time, and the
/// retries of the call outlast them.
const SHORT_WAIT_MAX: Duration = Duration::from_mins(1);

/// Number of refused calls in a row after which a client is asked, even if the provider asks for a short wait. After one
/// refusal, a retry often succeeds.
const REFUSALS_MAX: u32 = 2;

/// Beginning of the provider's codes for limits of an account, such as a limit for a week. No retry outlasts such a limit.
const ACCOUNT_LIMIT_CODES: &str = "user_";

/// Requests about the switch to the clients of a session.
pub(super) trait SwitchRequests: Send + Sync + std::fmt::Debug {
    /// Asks whether the session continues with the auto model after this error of its model. `None` if no client can answer.
    /// The probe of the call counts the question.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the question.
    fn ask<'a>(
        &'a self,
        error: &'a ModelError,
        probe: &'a ConnectionProbe,
    ) -> BoxFuture<'a, Option<bool>>;

    /// Reports the switch from the first model to the auto model.
    ///
    /// # Cancel safety
    /// If the future is dropped, the history of later openings may lack the switch.
    fn note_switch<'a>(&'a self, first: &str, auto: &str) -> BoxFuture<'a, ()>;
}

/// The two models of a session. The calls go to the first model until a client agrees to the switch. Later calls go to the
/// auto model, also those of sub-agents without a separate model.
#[derive(Debug)]
pub(crate) struct AutoModel {
    first: Arc<dyn Model>,
    auto: Arc<dyn Model>,
    /// Names by which clients select the models.
    first_name: Arc<str>,
    auto_name: Arc<str>,
    is_switched: AtomicBool,
    /// Number of refused calls since the first model has last answered.
    refusals: AtomicU32,
    /// True after a client has declined the switch, until the first model answers.
    is_declined: AtomicBool,
    session: OnceLock<Weak<dyn SwitchRequests>>,
}

impl AutoModel {
    /// Returns the models of a session. `None` if the server has no auto model, if the session already uses it, or if the
    /// client names a separate provider, which need not have this model.
    pub(super) fn of(
        system: &System,
        name: Option<&str>,
        choice: &mut SessionChoice,
    ) -> Option<Arc<Self>> {
        let name = name.filter(|_| choice.providers.only.is_none())?;
        let chosen = match choice.providers.model(system, Some(name)) {
            Ok(chosen) => chosen,
            Err(error) => {
                let message = format!("the auto model {name:?} cannot be used: {}", error.message);
                choice.not_offered.push(message.into());
                return None;
            }
        };
        if choice.model_name.as_ref() == Some(&chosen.name) {
            return None;
        }
        let first = choice.session_model(system);
        let first = first.unwrap_or_else(|| Arc::clone(system.model()));
        let first_name = choice.model_name.clone();
        let auto = chosen.model.as_ref().unwrap_or_else(|| system.model());
        Some(Arc::new(Self {
            first_name: first_name.unwrap_or_else(|| first.name().into()),
            first,
            auto: choice.as_shown(Arc::clone(auto)),
            auto_name: chosen.name,
            is_switched: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
            is_declined: AtomicBool::new(false),
            session: OnceLock::new(),
        }))
    }

    /// Sets the session whose clients are asked.
    pub(super) fn bind(&self, session: Weak<dyn SwitchRequests>) {
        // A session is bound once, when it opens.
        let _already_bound = self.session.set(session);
    }

    fn is_switched(&self) -> bool {
        self.is_switched.load(Ordering::Relaxed)
    }

    /// Name of the auto model after the switch; `None` before the switch.
    pub(super) fn switched_name(&self) -> Option<&Arc<str>> {
        self.is_switched().then_some(&self.auto_name)
    }

    /// Changes the choice of the session to the auto model after the switch, for the next opening of the session.
    pub(super) fn apply_to(&self, choice: &mut SessionChoice) {
        if let Some(name) = self.switched_name() {
            choice.model = Some(Arc::clone(&self.auto));
            choice.model_name = Some(Arc::clone(name));
            choice.requested.model = Some(Arc::clone(name));
        }
    }

    /// Begins a call of the first model, up to its first event: some providers report a limit of the rate in the stream.
    async fn first_stream(&self, request: ModelRequest) -> Result<ModelStream, ModelError> {
        let mut stream = self.first.stream(request).await?;
        match stream.events.next().await {
            Some(Err(error)) => Err(error),
            first => {
                let events = stream::iter(first).chain(stream.events);
                Ok(ModelStream::new(events))
            }
        }
    }

    /// True if the client should be asked about this failure of the first model.
    fn is_lasting_limit(&self, error: &ModelError) -> bool {
        if error.kind != ModelErrorKind::RateLimited {
            return false;
        }
        let refusals = self.refusals.fetch_add(1, Ordering::Relaxed) + 1;
        let code = error.code.as_deref().unwrap_or_default();
        let is_lasting = code.starts_with(ACCOUNT_LIMIT_CODES)
            || error.retry_after.is_some_and(|wait| wait > SHORT_WAIT_MAX)
            || refusals >= REFUSALS_MAX;
        is_lasting && !self.is_declined.load(Ordering::Relaxed)
    }

    /// Asks the clients for the switch, and switches if they agree. Returns true after a switch.
    async fn switch(&self, error: &ModelError, request: &ModelRequest) -> bool {
        let session = self.session.get().and_then(Weak::upgrade);
        let Some(session) = session else {
            return false;
        };
        let consent = session.ask(error, &request.probe).await;
        let Some(is_agreed) = consent else {
            return false;
        };
        if !is_agreed {
            self.is_declined.store(true, Ordering::Relaxed);
            return false;
        }
        // Two calls of one step, such as those of two sub-agents, may ask at the same time.
        if !self.is_switched.swap(true, Ordering::Relaxed) {
            let noted = session.note_switch(&self.first_name, &self.auto_name);
            noted.await;
        }
        true
    }
}

impl Model for AutoModel {
    fn name(&self) -> &str {
        if self.is_switched() {
            self.auto.name()
        } else {
            self.first.name()
        }
    }

    fn check(&self, request: &ModelRequest) -> Result<(), ModelError> {
        if self.is_switched() {
            self.auto.check(request)
        } else {
            self.first.check(request)
        }
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        Box::pin(async move {
            if self.is_switched() {
                return self.auto.stream(request).await;
            }
            let error = match self.first_stream(request.clone()).await {
                Err(error) if self.is_lasting_limit(&error) => error,
                Err(error) => return Err(error),
                Ok(stream) => {
                    self.refusals.store(0, Ordering::Relaxed);
                    self.is_declined.store(false, Ordering::Relaxed);
                    return Ok(stream);
                }
            };
            if self.switch(&error, &request).await {
                return self.auto.stream(request).await;
            }
            Err(error)
        })
    }
}
