//! The turn engine: rules for the start, the calls and the end of a turn. Code that runs a turn calls this engine.
//!
//! A turn is a user's message and all steps that answer it. A running turn is a [`Draft`] on top of an immutable
//! [`Conversation`]. A draft is committed once, or stopped once, or dropped. Dropping a draft changes nothing.
//! [`SessionRecord`](crate::record::SessionRecord)s record all events of a turn. A running turn and the recovery after
//! a crash both apply the same transition function to each record, [`TurnState::apply`].
//!
//! Invariants:
//! 1. Only [`PendingCommit::publish`], a stop under [`StopPolicy::Keep`], a compaction and an undo change a
//!    conversation.
//! 2. One atomic decision chooses between commit and stop ([`CommitDecision`](crate::decision::CommitDecision)). The
//!    later caller gets the verdict.
//! 3. A turn that started has exactly one ending, and accepts no event after the ending.
//! 4. In [`Draft::request_messages`], each tool call always has exactly one result, and every name is valid.
//! 5. The committed usage (tokens of turns that were added to the conversation) changes only together with the
//!    conversation. The metered usage (all used tokens) never decreases.
//!
//! This module reads no clock and awaits nothing: callers pass times in as parameters.

mod background_index;
mod background_state;
mod budget;
mod call_texts;
mod commit;
mod conversation;
mod draft;
mod effects;
mod illegal_record;
mod limits;
mod loop_detector;
mod lost_note;
mod model_call;
mod nested_call;
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
mod turn_start;

pub use crate::cause::CRASH;
pub use budget::{Budget, BudgetExceeded, BudgetLimits, BudgetUnit, Reservation};
pub use call_texts::CallTexts;
pub use commit::{NotCommitted, NotCommittedReason, PendingCommit};
pub use conversation::{Conversation, TurnSpan};
pub use draft::{CallSideData, Draft, DraftError};
pub use effects::{CallEffect, LostTurn, TurnEffects};
pub use illegal_record::IllegalRecord;
pub use limits::{StartRefusal, TurnLimits};
pub use loop_detector::{DetectedLoop, LoopDetector, LoopLimits};
pub use model_call::{ModelAnswer, NextAction, StepStart};
pub use session_state::SessionState;
pub use snapshot::SessionSnapshot;
pub use state::{IllegalEvent, TurnEndKind, TurnEvent, TurnState};
pub use stop::{PartialStep, StopPolicy, StoppedTurn, TurnStop};
pub use summary::{RecordedWork, TurnEnding, TurnSummary};
pub use turn_start::{BackgroundNote, TurnStart};
