//! Sessions through their handles: scripted models, closures for tools, paused time.

mod answers;
mod background;
mod closing;
mod events;
mod external;
mod follow_ups;
mod longer;
mod outcome_now;
mod questions;
mod registry;
mod server_questions;
mod side_questions;
mod steered;
mod store;
mod stored_receipts;
mod subagents;
mod support;
