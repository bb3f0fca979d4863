//! Options of push notifications.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::resolver::{HostResolver, SystemResolver};
use super::signature::PushSecret;

/// Limits, times and secrets of push notifications.
#[derive(Clone)]
#[non_exhaustive]
pub struct PushOptions {
    /// Maximum number of configurations of one task.
    pub configs_per_task_max: usize,
    /// Maximum number of concurrent requests.
    pub running_max: usize,
    /// Maximum number of concurrent requests of one user. The hanging webhooks of one user leave requests for other
    /// users.
    pub running_per_owner_max: usize,
    /// Maximum number of concurrent requests to one host and port. A server that does not answer delays no other server
    /// of this user.
    pub running_per_host_max: usize,
    /// Maximum duration of one attempt, from the resolution of the host to the head of the response.
    pub attempt_max: Duration,
    /// Pause after the first failure. The pause doubles with each further failure.
    pub pause_min: Duration,
    /// Maximum pause between two attempts.
    pub pause_max: Duration,
    /// Maximum time from the first failed attempt at an event. After this time the deliveries of its configuration are
    /// paused.
    pub failing_max: Duration,
    /// Maximum time from the delivery of an event to the record of the delivery in the log. After a crash, events that
    /// were delivered within this time may be delivered again.
    pub cursor_delay: Duration,
    /// Networks that may contain webhooks, in addition to public addresses.
    pub allowed: Vec<IpNet>,
    /// Secret for signatures; `None` for deliveries without a signature.
    pub secret: Option<PushSecret>,
    /// Resolver of hosts.
    pub resolver: Arc<dyn HostResolver>,
}

impl Default for PushOptions {
    fn default() -> Self {
        Self {
            // A client has one receiver, or a few. Each receiver costs an idle future per task.
            configs_per_task_max: 10,
            // The maximum is half of the usual limit of 1,024 open files. One user gets a quarter of the maximum. If
            // the requests of three users hang, requests of other users still run.
            running_max: 512,
            running_per_owner_max: 128,
            running_per_host_max: 16,
            // A2A 1.0, section 4.3.3, recommends 10 to 30 s.
            attempt_max: Duration::from_secs(10),
            pause_min: Duration::from_secs(1),
            pause_max: Duration::from_mins(1),
            failing_max: Duration::from_hours(1),
            cursor_delay: Duration::from_secs(1),
            allowed: Vec::new(),
            secret: None,
            resolver: Arc::new(SystemResolver),
        }
    }
}

impl PushOptions {
    /// Sets the maximum number of concurrent requests.
    #[must_use]
    pub fn running_max(mut self, running_max: usize) -> Self {
        self.running_max = running_max;
        self
    }

    /// Sets the maximum duration of one attempt.
    #[must_use]
    pub fn attempt_max(mut self, attempt_max: Duration) -> Self {
        self.attempt_max = attempt_max;
        self
    }

    /// Sets the pause after the first failure.
    #[must_use]
    pub fn pause_min(mut self, pause_min: Duration) -> Self {
        self.pause_min = pause_min;
        self
    }

    /// Sets the maximum pause between two attempts.
    #[must_use]
    pub fn pause_max(mut self, pause_max: Duration) -> Self {
        self.pause_max = pause_max;
        self
    }

    /// Sets the maximum time from the first failed attempt at an event.
    #[must_use]
    pub fn failing_max(mut self, failing_max: Duration) -> Self {
        self.failing_max = failing_max;
        self
    }

    /// Sets the maximum time from the delivery of an event to its record in the log.
    #[must_use]
    pub fn cursor_delay(mut self, cursor_delay: Duration) -> Self {
        self.cursor_delay = cursor_delay;
        self
    }

    /// Sets the networks that may contain webhooks, in addition to public addresses.
    #[must_use]
    pub fn allowed(mut self, allowed: Vec<IpNet>) -> Self {
        self.allowed = allowed;
        self
    }

    /// Sets the secret for signatures.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<Option<PushSecret>>) -> Self {
        self.secret = secret.into();
        self
    }

    /// Sets the resolver of hosts.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn HostResolver>) -> Self {
        self.resolver = resolver;
        self
    }
}

impl fmt::Debug for PushOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushOptions")
            .field("configs_per_task_max", &self.configs_per_task_max)
            .field("running_max", &self.running_max)
            .field("attempt_max", &self.attempt_max)
            .field("failing_max", &self.failing_max)
            .field("allowed", &self.allowed)
            .field("secret", &self.secret)
            .finish_non_exhaustive()
    }
}
