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
    /// True if the server had exited, and processes that it had started were still running.
    pub(super) left_processes: bool,
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
        details.note = Some(process.text().into());
        registration.finish(Ending::Stopped {
            how: process.how,
            evidence: Evidence::verified(process.verified),
        });
    }
}

impl ProcessEnd {
    pub(super) fn text(self) -> &'static str {
        match (self.how, self.left_processes) {
            (EndMethod::Sigterm, false) => "its server was ended: it needed SIGTERM",
            (EndMethod::Sigterm, true) => {
                "its server exited, and processes that it had started needed SIGTERM"
            }
            (EndMethod::Sigkill, false) => "its server was ended: it needed SIGKILL",
            (EndMethod::Sigkill, true) => {
                "its server exited, and processes that it had started needed SIGKILL"
            }
            (EndMethod::ConnectionClosed, _) => {
                "its server was ended: it exited when its input was closed"
            }
            _ => "its server exited by itself",
        }
    }
}
