//! Background work: processes that outlive the call that started them, each in a scope of the session and by name.
//!
//! The shell hands such work to the session's owner through a [`BackgroundHost`]. Nothing is let go on the way: the
//! processes move from the call's scope to the host's in one step, and something drains their output all along.

mod host;
mod tool;
mod work;

pub use host::{BackgroundHost, BackgroundRegistry};
pub use tool::BackgroundTool;
pub(crate) use tool::NAME;
pub use work::BackgroundWork;
pub(crate) use work::{Handover, PIPE_BYTES, hand_over};
