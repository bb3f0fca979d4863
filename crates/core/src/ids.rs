//! Id types. This crate generates no random numbers: callers create new ids and pass them in.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(
            #[schemars(with = "String")]
            #[serde(deserialize_with = "crate::shared_text::deserialize")]
            Arc<str>,
        );

        impl $name {
            /// Creates the id without a check.
            pub fn new(id: impl Into<Arc<str>>) -> Self {
                Self(id.into())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self::new(id)
            }
        }

        impl From<String> for $name {
            fn from(id: String) -> Self {
                Self::new(id)
            }
        }
    };
}

string_id! {
    /// Id of one conversation.
    SessionId
}
string_id! {
    /// Id of one tool call, assigned by the model; unique within its turn. The id of a sub-agent's call is the path of the
    /// calls that contain it: `call_1/call_2`.
    CallId
}
string_id! {
    /// Id of one stop and its receipt.
    StopId
}
string_id! {
    /// Id of one piece of background work (`bg_1`), unique within its session.
    BackgroundId
}

string_id! {
    /// Id of one message that was sent to a session or a task.
    MessageId
}
string_id! {
    /// Id of one task.
    TaskId
}
string_id! {
    /// Id of one context: the tasks of one conversation.
    ContextId
}
string_id! {
    /// Id of one worker of a cluster, from its first lease until it loses or returns that lease.
    WorkerId
}
string_id! {
    /// Id of one permission question for a call.
    QuestionId
}

impl CallId {
    /// True if this is the id of a call of a sub-agent that runs in the call `outer`.
    pub fn is_within(&self, outer: &Self) -> bool {
        let rest = self.as_str().strip_prefix(outer.as_str());
        rest.is_some_and(|rest| rest.starts_with('/'))
    }
}

/// Number of a turn in its session: 1, 2, 3 …, including stopped turns.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct TurnNumber(pub u32);

impl fmt::Display for TurnNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
