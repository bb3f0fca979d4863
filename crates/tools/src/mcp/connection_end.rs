//! The end of the connection to an MCP server, and the effect of this end on the open calls.

use std::sync::Arc;

use allstop_core::receipt::{Containment, EndMethod, EndProof, Evidence};
use allstop_scope::{Ending, Registration};

use super::call_answer::not_confirmed;

#[derive(Debug, Clone)]
pub(super) struct ConnectionEnd {
    /// Reason, for the model and for people.
    pub(super) why: Arc<str>,
    /// Verified end of the server's process; `None` if the server has no process here, or if a part of the process tree
    /// remains.
    pub(super) process: Option<ProcessEnd>,
}

/// The verified end of a server's processes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessEnd {
    pub(super) how: EndMethod,
    pub(super) verified: EndProof,
    pub(super) containment: Containment,
}

impl ConnectionEnd {
    /// Reports the end of a call that was open. Without a verified end of the process, the call's end is reported as
    /// not confirmed.
    pub(super) fn conclude(&self, mut registration: Registration) {
        let Some(process) = self.process else {
            return not_confirmed(registration, &self.why);
        };
        let details = registration.details_mut();
        details.containment = Some(process.containment);
        details.note = Some(format!("its server was ended: {}", process.text()).into());
        registration.finish(Ending::Stopped {
            how: process.how,
            evidence: Evidence::verified(process.verified),
        });
    }
}

impl ProcessEnd {
    pub(super) fn text(self) -> &'static str {
        match self.how {
            EndMethod::Sigterm => "it needed SIGTERM",
            EndMethod::Sigkill => "it needed SIGKILL",
            EndMethod::ConnectionClosed => "it exited when its input was closed",
            _ => "it exited by itself",
        }
    }
}
