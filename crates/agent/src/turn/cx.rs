//! Context of a turn.

use std::sync::Arc;

use allstop_scope::{NotStarted, Scope};

use crate::background::SessionBackground;
use crate::controls::RunControls;
use crate::event::EventSink;
use crate::parts::AgentParts;

/// Context of a turn.
#[derive(Clone, Copy)]
pub(crate) struct TurnCx<'a> {
    pub(crate) parts: &'a Arc<AgentParts>,
    /// Scope in which the run was started.
    pub(crate) above: &'a Scope,
    /// Scope of the run, or the refusal if this scope could not be opened.
    pub(crate) run: Result<&'a Scope, &'a NotStarted>,
    pub(crate) controls: &'a Arc<RunControls>,
    pub(crate) background: Option<&'a Arc<SessionBackground>>,
    pub(crate) context: Option<&'a Arc<str>>,
    pub(crate) events: &'a EventSink,
}
