//! Options of push notifications.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::resolver::{HostResolver, SystemResolver};
use super::signature::PushSecret;

/// Limits, times and secrets of push notifications.
#[derive(Clone)]
pub struct PushOptions {
    /// Configurations of one task.
    pub configs_per_task_max: usize,
    /// Requests that run at the same time.
    pub running_max: usize,
    /// Requests of one user that run at the same time: a user whose webhooks hang delays no other user.
    pub running_per_owner_max: usize,
    /// Requests to one host and port that run at the same time: a server that hangs delays no other one of its user.
    pub running_per_host_max: usize,
    /// Longest time of one attempt, from the resolution of the host to the head of the answer.
    pub attempt_max: Duration,
    /// Pause after the first failure. It doubles with each further one.
    pub pause_min: Duration,
    /// Longest pause between two attempts.
    pub pause_max: Duration,
    /// Time from the first failure of an event after which its configuration is paused.
    pub failing_max: Duration,
    /// Longest time that a delivered event waits to be noted in the log. After a crash, the events of this time are
    /// delivered again.
    pub cursor_delay: Duration,
    /// Networks that webhooks may have beside public addresses.
    pub allowed: Vec<IpNet>,
    /// Secret to sign with; `None`: deliveries have no signature.
    pub secret: Option<PushSecret>,
    /// Resolver of hosts.
    pub resolver: Arc<dyn HostResolver>,
}

impl Default for PushOptions {
    fn default() -> Self {
        Self {
            // A client has one receiver, or a few; each costs an idle future per task.
            configs_per_task_max: 10,
            // Half of the usual limit of 1,024 open files; a user gets a quarter, so four can hang at no cost to others.
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
