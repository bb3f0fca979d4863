//! Points: the moments of a run at which a stop can fall.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Place of a point with regard to what happens there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before it.
    Before,
    /// While it is under way.
    Inside,
    /// After it.
    After,
}

/// Name of every point between two polls of tasks.
pub const POLL: &str = "poll";

/// Name of a point at an append to the log.
pub(crate) const APPEND: &str = "log_append";

/// Name of a point at which something is shown live.
pub(crate) const EVENT: &str = "event";

/// Name of a point before a record is made.
pub(crate) const RECORD: &str = "record";

/// One moment of a run.
#[derive(Clone, PartialEq, Eq)]
pub struct Point {
    /// Its number in the run: 0 is before the start.
    pub number: u32,
    /// Name of what happens there: `tool`, `log_append`, `poll`.
    pub what: &'static str,
    /// Object of it: a call's id, the types of the records.
    pub of: Arc<str>,
    /// Before, inside or after.
    pub moment: Moment,
    /// Time of the paused clock that had passed.
    pub at: Duration,
}

impl Point {
    /// True if something of its own happens there, and not only a word of what happens elsewhere.
    pub(crate) fn is_apart(&self) -> bool {
        !matches!(self.what, POLL | EVENT | RECORD)
    }

    /// True if an append is about to be handed to the store.
    pub(crate) fn is_append(&self) -> bool {
        self.what == APPEND && self.moment == Moment::Before
    }

    /// True if it has a meaning of its own, and is not only a poll.
    pub fn is_semantic(&self) -> bool {
        self.what != POLL
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
        write!(f, "#{} {ms} ms: {moment} {}", self.number, self.what)?;
        if self.of.is_empty() {
            Ok(())
        } else {
            write!(f, " {}", self.of)
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

/// The points of one run: counts them as they are reached, and acts at those that were chosen. Clones are the same.
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
    /// None is reached yet, and none counts before [`Points::open`].
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

    /// Counts from here on.
    pub(crate) fn open(&self) {
        let mut state = self.state.lock();
        state.counting = true;
        state.origin = Instant::now();
    }

    /// Counts no more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.counting = false;
        state.acts.clear();
    }

    /// Does `act` when the point of this number is reached, on the spot.
    pub(crate) fn at(&self, number: u32, act: impl FnOnce() + Send + 'static) {
        self.state.lock().acts.push((number, Box::new(act)));
    }

    /// A point is reached: whatever was chosen for it happens before this returns.
    pub fn reach(&self, moment: Moment, what: &'static str, of: impl Into<Arc<str>>) {
        let due = {
            let mut state = self.state.lock();
            if !state.counting {
                return;
            }
            let number = state.reached.len() as u32;
            let at = state.origin.elapsed();
            let of = of.into();
            state.reached.push(Point {
                number,
                what,
                of,
                moment,
                at,
            });
            let (due, later) = std::mem::take(&mut state.acts)
                .into_iter()
                .partition::<Vec<_>, _>(|(chosen, _)| *chosen == number);
            state.acts = later;
            due
        };
        // Outside the lock: what is done may reach points itself.
        for (_, act) in due {
            act();
        }
    }

    /// The number of the one that was reached last.
    pub(crate) fn newest(&self) -> u32 {
        (self.state.lock().reached.len() as u32).saturating_sub(1)
    }

    /// Those reached so far.
    pub fn reached(&self) -> Vec<Point> {
        self.state.lock().reached.clone()
    }

    /// Time that has passed since the first.
    pub(crate) fn elapsed(&self) -> Duration {
        self.state.lock().origin.elapsed()
    }
}

impl fmt::Debug for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Points").finish_non_exhaustive()
    }
}
