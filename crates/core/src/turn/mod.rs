//! The turn engine: what a turn may do, when it may end, and what is left of it.
//!
//! A turn is a [`Draft`] over an immutable [`Conversation`]. It is committed once, stopped once, or dropped, which
//! changes nothing. What happens to it is told as [`SessionRecord`](crate::record::SessionRecord)s, and each passes
//! through one transition function, [`TurnState::apply`], in live work and in recovery alike.
//!
//! Invariants:
//! 1. A conversation changes only by [`Commit::publish`] and by a stop under [`StopPolicy::Keep`].
//! 2. Commit versus stop is one atomic decision ([`Decision`](crate::decision::Decision)); the loser learns it.
//! 3. A turn that started has exactly one ending, and nothing is taken after it.
//! 4. What [`Draft::request_messages`] gives has exactly one result for each tool call, at any time, and names that every
//!    provider takes.
//! 5. Committed usage changes with the conversation only; metered usage is never taken back.
//!
//! No clock is read here and nothing is awaited: moments come in as parameters.

mod background_state;
mod background_works;
mod budget;
mod commit;
mod conversation;
mod draft;
mod illegal_record;
mod limits;
mod loop_detector;
mod model_call;
mod recovery;
mod request_names;
mod session_state;
mod snapshot;
mod started_calls;
mod state;
mod step;
mod stop;
mod summary;
mod tool_call;

pub use budget::{Budget, BudgetExceeded, BudgetLimits, BudgetUnit, Reservation};
pub use commit::{Commit, NotCommitted, NotCommittedWhy};
pub use conversation::{Conversation, TurnSpan};
pub use draft::{CallNote, Draft, DraftError, Note, TurnStart};
pub use illegal_record::IllegalRecord;
pub use limits::{Refusal, TurnLimits};
pub use loop_detector::{LoopDetector, LoopFound, LoopLimits};
pub use model_call::{ModelAnswer, Next, StepStart};
pub use session_state::SessionState;
pub use snapshot::SessionSnapshot;
pub use state::{Ending, IllegalEvent, TurnEvent, TurnState};
pub use stop::{StopPolicy, StoppedTurn, TurnStop};
pub use summary::{BackgroundWork, TurnEnding, TurnSummary};
