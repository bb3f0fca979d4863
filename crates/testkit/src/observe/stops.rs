//! Stops of a run, as whoever asked for them saw them.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, Extent, Receipt};

use super::witness::Order;

/// Stop that was asked for in a run.
#[derive(Debug, Clone)]
pub struct ObservedStop {
    /// Extent that it was to cover.
    pub extent: Extent,
    /// Cause that was given.
    pub cause: Cause,
    /// Point at which it was asked for.
    pub point: u32,
    /// Moment of its acceptance: from then on nothing in its extent starts.
    pub accepted: Order,
    /// The same on the clock of the run.
    pub at: Duration,
    /// Answer, once it came.
    pub answer: Option<StopAnswer>,
}

/// Answer to a stop.
#[derive(Debug, Clone)]
pub struct StopAnswer {
    /// The receipt.
    pub receipt: Arc<Receipt>,
    /// Moment from which it could be read.
    pub order: Order,
    /// The same on the clock of the run.
    pub at: Duration,
}

/// Moment in which a caller went away.
#[derive(Debug, Clone, Copy)]
pub struct CallerGone {
    /// Point at which it did.
    pub point: u32,
    /// Place in the order of events.
    pub order: Order,
    /// The same on the clock of the run.
    pub at: Duration,
}

/// First stop of a turn from outside, whatever brought it.
#[derive(Debug, Clone)]
pub struct Disturbance {
    /// Its cause.
    pub cause: Cause,
    /// Point at which it came; none for a deadline.
    pub point: Option<u32>,
    /// Moment of its acceptance; none for a deadline.
    pub accepted: Option<Order>,
    /// The same on the clock of the run.
    pub at: Duration,
}
