//! Points: the moments of a run at which a stop can happen.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Position of a point relative to the work that the point belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before the work.
    Before,
    /// During the work.
    Inside,
    /// After the work.
    After,
}

/// Name of every point between two polls of tasks.
pub const POLL: &str = "poll";

/// Name of a point at an append to the log.
pub(crate) const APPEND: &str = "log_append";

/// Name of a point at a live event.
pub(crate) const EVENT: &str = "event";

/// Name of a point before a record is created.
pub(crate) const RECORD: &str = "record";

/// One moment of a run.
#[derive(Clone, PartialEq, Eq)]
pub struct Point {
    /// Number of the point in the run. Point 0 is before the start of the run.
    pub number: u32,
    /// Name of the work at the point, for example `tool`, `log_append` or `poll`.
    pub event: &'static str,
    /// Object of the work, for example the id of a call or the types of the records.
    pub subject: Arc<str>,
    /// Before, inside or after.
    pub moment: Moment,
    /// Elapsed time of the paused clock.
    pub at: Duration,
}

impl Point {
    /// True if an event itself happens at the point. A poll is not such a point, and neither is the report of an event
    /// that happened elsewhere.
    pub(crate) fn is_apart(&self) -> bool {
        !matches!(self.event, POLL | EVENT | RECORD)
    }

    /// True if the point comes just before an append is sent to the store.
    pub(crate) fn is_append(&self) -> bool {
        self.event == APPEND && self.moment == Moment::Before
    }

    /// True if the point has a meaning for people. A poll of a task has none.
    pub fn is_semantic(&self) -> bool {
        self.event != POLL
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = match self.moment {
            Moment::Before => "before",
            Moment::Inside => "inside",
            Moment::After => "after",
        };
        let ms = self.at.as_millis();
        if !self.is_semantic() {
            return write!(f, "#{} {ms} ms: between two polls", self.number);
        }
        write!(f, "#{} {ms} ms: {moment} {}", self.number, self.event)?;
        if self.subject.is_empty() {
            Ok(())
        } else {
            write!(f, " {}", self.subject)
        }
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Action at a point.
type Act = Box<dyn FnOnce() + Send>;

/// The points of one run. This type counts the points when they are reached, and runs the actions of the chosen points.
/// Clones share the state.
#[derive(Clone)]
pub struct Points {
    state: Arc<Mutex<PointsState>>,
}

struct PointsState {
    counting: bool,
    origin: Instant,
    reached: Vec<Point>,
    acts: Vec<(u32, Act)>,
}

impl Points {
    /// Creates a counter without points. Points are counted only after [`Points::open`].
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::new(Mutex::new(PointsState {
                counting: false,
                origin: Instant::now(),
                reached: Vec::new(),
                acts: Vec::new(),
            })),
        }
    }

    /// Starts counting.
    pub(crate) fn open(&self) {
        let mut state = self.state.lock();
        state.counting = true;
        state.origin = Instant::now();
    }

    /// Stops counting.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.counting = false;
        state.acts.clear();
    }

    /// Calls `act` when the point with this number is reached, in the thread that reaches it.
    pub(crate) fn at(&self, number: u32, act: impl FnOnce() + Send + 'static) {
        self.state.lock().acts.push((number, Box::new(act)));
    }

    /// Records that the run has reached a point. Runs all actions of this point before it returns.
    pub fn reach(&self, moment: Moment, event: &'static str, subject: impl Into<Arc<str>>) {
        let due = {
            let mut state = self.state.lock();
            if !state.counting {
                return;
            }
            let number = state.reached.len() as u32;
            let at = state.origin.elapsed();
            let subject = subject.into();
            state.reached.push(Point {
                number,
                event,
                subject,
                moment,
                at,
            });
            let (due, later) = std::mem::take(&mut state.acts)
                .into_iter()
                .partition::<Vec<_>, _>(|(chosen, _)| *chosen == number);
            state.acts = later;
            due
        };
        // Release the lock first, because the actions may also reach points.
        for (_, act) in due {
            act();
        }
    }

    /// Number of the last reached point.
    pub(crate) fn newest(&self) -> u32 {
        (self.state.lock().reached.len() as u32).saturating_sub(1)
    }

    /// The points reached so far.
    pub fn reached(&self) -> Vec<Point> {
        self.state.lock().reached.clone()
    }

    /// Time since the first point.
    pub(crate) fn elapsed(&self) -> Duration {
        self.state.lock().origin.elapsed()
    }
}

impl fmt::Debug for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Points").finish_non_exhaustive()
    }
}
