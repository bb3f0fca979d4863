//! Types, receipt and turn engine of Allstop, without I/O and without async code.
//!
//! Start with [`receipt::Receipt`], the result of a stop, and with [`turn`], the state machine in which only a commit
//! changes a conversation. This crate reads no clock and creates no ids: callers pass times and ids in as parameters.

mod call_label;
pub mod cause;
pub mod counted;
pub mod decision;
pub mod elapsed;
mod error_chain;
pub mod extent;
pub mod finish_reason;
pub mod human_duration;
pub mod ids;
pub mod image;
pub mod json_text;
pub mod message;
pub mod process;
pub mod receipt;
pub mod record;
mod session_settings;
mod shared_text;
pub mod stop_reason;
mod sync;
pub mod terminal_text;
pub mod time;
mod trace_context;
pub mod turn;
pub mod usage;

pub use call_label::{LABEL_CHARS_MAX, call_label, describe_call};
pub use cause::{Cause, CauseKind};
pub use error_chain::error_chain;
pub use extent::Extent;
pub use finish_reason::FinishReason;
pub use human_duration::HumanDuration;
pub use ids::{CallId, ContextId, MessageId, SessionId, StopId, TaskId, TurnNumber, WorkerId};
pub use image::{Image, ImageError, ImageInfo, Images};
pub use message::{Effect, Message, ToolCall, ToolResult};
pub use receipt::Receipt;
pub use session_settings::SessionSettings;
pub use stop_reason::StopReason;
pub use time::Timestamp;
pub use trace_context::TraceContext;
pub use usage::Usage;
