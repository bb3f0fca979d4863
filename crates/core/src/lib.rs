//! Types, receipt and turn engine of Allstop, without I/O and without async code.
//!
//! Start with [`receipt::Receipt`], the result of a stop, and with [`turn`], the state machine in which only a commit
//! changes a conversation. This crate reads no clock and creates no ids: callers pass times and ids in as parameters.
//!
//! A program that reads the receipt of another process:
//!
//! ```
//! use allstop_core::Receipt;
//! use allstop_core::receipt::ItemState;
//!
//! # fn main() -> Result<(), serde_json::Error> {
//! let json = r#"{
//!     "schema": "allstop.receipt/1", "stop_id": "01KB7", "target": "session/01KB6/turn/1", "extent": "subtree",
//!     "cause": {"kind": "user"}, "requested_at": "2026-07-02T10:00:00.000Z",
//!     "quiet": true, "quiet_after_ms": 12.5, "cancel_observed": true, "conversation": "unchanged",
//!     "items": [{"id": "c1", "kind": "tool_call", "name": "fetch", "in_extent": true, "effect": "read_only",
//!         "state": "stopped", "how": "acknowledged", "verified": "future_dropped", "after_ms": 12.5}],
//!     "usage": {"input_tokens": 40, "output_tokens": 2, "estimated": false}
//! }"#;
//! let receipt: Receipt = serde_json::from_str(json)?;
//! assert!(receipt.quiet());
//! assert!(matches!(receipt.items()[0].state, ItemState::Stopped { .. }));
//! println!("{receipt}");
//! # Ok(())
//! # }
//! ```

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
