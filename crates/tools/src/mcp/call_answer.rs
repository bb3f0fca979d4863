//! The answer to a call, and the report of its end to the scope of the call.

use std::borrow::Cow;
use std::sync::Arc;

use allstop_core::receipt::{EndMethod, EndProof, Evidence};
use allstop_scope::{Ending, Registration};
use rmcp::model::{ErrorData, ServerResult};

use super::connection_end::ConnectionEnd;
use super::given_tokens::TokenRefusal;

/// Answer to a call, with the registration of the call.
#[derive(Debug)]
pub(super) struct AnsweredCall {
    pub(super) answer: CallAnswer,
    pub(super) registration: Registration,
}

#[derive(Debug)]
pub(super) enum CallAnswer {
    Result(Box<ServerResult>),
    Error(ErrorData),
    /// The server refused the request, because it needs another access token. The call has not begun.
    NeedsToken(Box<RefusedCall>),
    /// The server, or a proxy before it, refused the HTTP request for this reason. The call has not begun.
    Refused(String),
    /// The server reports that it has cancelled the task of the call.
    Cancelled,
    /// The server answered, but the answer cannot be parsed for this reason.
    Unreadable(Cow<'static, str>),
    /// The server closed the HTTP response before it sent an answer. The server may still run the call.
    Cut(Arc<str>),
    /// The connection ended before an answer.
    Ended(Arc<ConnectionEnd>),
}

/// A refused request of a call.
#[derive(Debug)]
pub(super) struct RefusedCall {
    pub(super) refusal: TokenRefusal,
    /// Reason of the refusal, with its remedy.
    pub(super) why: String,
}

impl AnsweredCall {
    /// Reports the end of a call after its caller has stopped waiting.
    pub(super) fn conclude(self) {
        match self.answer {
            CallAnswer::Result(_) | CallAnswer::Unreadable(_) => {
                self.registration.finish(Ending::Returned);
            }
            CallAnswer::Error(_) | CallAnswer::NeedsToken(_) | CallAnswer::Refused(_) => {
                confirmed(self.registration);
            }
            CallAnswer::Cancelled => task_cancelled(self.registration),
            CallAnswer::Cut(why) => not_confirmed(self.registration, &why),
            CallAnswer::Ended(ended) => ended.conclude(self.registration),
        }
    }
}

/// Reports a call as stopped, after the server has confirmed the end of the call with an error.
pub(super) fn confirmed(registration: Registration) {
    registration.finish(Ending::Stopped {
        how: EndMethod::RemoteConfirmed,
        evidence: Evidence::verified(EndProof::RemoteConfirmed),
    });
}

/// Reports a call as stopped, because its task has the status `cancelled`.
pub(super) fn task_cancelled(mut registration: Registration) {
    registration.details_mut().note = Some(TASK_CANCELLED.into());
    confirmed(registration);
}

/// Note on the evidence of a cancelled task. Since revision 2025-11-25, the server must report this status even if the
/// execution cannot be ended at once.
const TASK_CANCELLED: &str = "the server reports the status `cancelled` of its task";

/// Reports a call whose end is not known.
pub(super) fn not_confirmed(mut registration: Registration, why: &str) {
    registration.details_mut().note = Some(why.to_owned().into());
    registration.finish(Ending::NotConfirmed);
}
