//! The words of receipts: what an item is, by what it was ended, how that is known, why it was not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of work of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// A call of a language model.
    ModelCall,
    /// A call of a tool.
    ToolCall,
    /// Background work that may outlive its turn.
    Background,
    /// A question to a person.
    Permission,
    /// A hook of the caller.
    Hook,
    /// A guardrail.
    Guardrail,
    /// An append to the log.
    Append,
    /// A future, of a program that uses scopes alone.
    Future,
    /// A blocking thread.
    Thread,
    /// A call of another machine.
    Remote,
    /// A child process and its descendants.
    Process,
    /// The engine that drives a turn: an item only while it has not acknowledged the stop.
    Engine,
}

impl ItemKind {
    /// The word used in JSON and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ModelCall => "model_call",
            Self::ToolCall => "tool_call",
            Self::Background => "background",
            Self::Permission => "permission",
            Self::Hook => "hook",
            Self::Guardrail => "guardrail",
            Self::Append => "append",
            Self::Future => "future",
            Self::Thread => "thread",
            Self::Remote => "remote",
            Self::Process => "process",
            Self::Engine => "engine",
        }
    }
}

/// By what an item was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It heard the token and ended itself.
    Acknowledged,
    /// Its stream was dropped and with it the connection.
    ConnectionClosed,
    /// Its future was dropped.
    Dropped,
    /// It had been accepted and had not begun, and never will: nothing of it has happened.
    NotBegun,
    /// SIGTERM was enough.
    Sigterm,
    /// SIGKILL was needed.
    Sigkill,
    /// The remote said that it ended.
    RemoteConfirmed,
    /// It ended by itself, with a failure, after the stop had reached it.
    Failed,
}

impl How {
    /// The word used in JSON and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::ConnectionClosed => "connection_closed",
            Self::Dropped => "dropped",
            Self::NotBegun => "not_begun",
            Self::Sigterm => "sigterm",
            Self::Sigkill => "sigkill",
            Self::RemoteConfirmed => "remote_confirmed",
            Self::Failed => "failed",
        }
    }
}

/// In what way an ending was verified from outside the work itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verified {
    /// The future's destructor has run.
    FutureDropped,
    /// The task has returned.
    TaskEnded,
    /// The thread has returned.
    ThreadEnded,
    /// The kernel has no established connection of this call any more.
    SocketClosed,
    /// The process group has no member, and a sweep by marker found nothing.
    ProcessGroupEmpty,
    /// The keeper, to which every descendant falls, has no child left.
    ProcessTreeEmpty,
    /// The remote confirmed it.
    RemoteConfirmed,
}

impl Verified {
    /// The word used in JSON and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FutureDropped => "future_dropped",
            Self::TaskEnded => "task_ended",
            Self::ThreadEnded => "thread_ended",
            Self::SocketClosed => "socket_closed",
            Self::ProcessGroupEmpty => "process_group_empty",
            Self::ProcessTreeEmpty => "process_tree_empty",
            Self::RemoteConfirmed => "remote_confirmed",
        }
    }
}

/// Reason that an item still runs, or could not be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The stop did not cover it.
    OutsideExtent,
    /// A thread that never looks at its scope cannot be forced.
    BlockingThread,
    /// Its future blocks the thread that polls it, so that it cannot be dropped.
    BlocksItsThread,
    /// Processes were still there when the bound of the force passed.
    ProcessesLeft,
    /// The remote was asked and did not confirm.
    NotConfirmed,
    /// It cannot be told whether it still runs: the one who watched it is gone.
    WatcherGone,
    /// The engine has not acknowledged the stop: it is busy, or it is writing the ending of its turn.
    NotAcknowledged,
}

impl Why {
    /// The word used in JSON and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OutsideExtent => "outside_extent",
            Self::BlockingThread => "blocking_thread",
            Self::BlocksItsThread => "blocks_its_thread",
            Self::ProcessesLeft => "processes_left",
            Self::NotConfirmed => "not_confirmed",
            Self::WatcherGone => "watcher_gone",
            Self::NotAcknowledged => "not_acknowledged",
        }
    }
}

/// With what level of containment a child process ran, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Containment {
    /// A keeper process of its own, to which every descendant falls and which outlives `kill -9` of its owner.
    Keeper,
    /// An own process group, a marker in the environment and a sweep of `/proc` for it.
    GroupAndMarker,
    /// An own process group only (macOS).
    Group,
}

impl Containment {
    /// The word used in JSON and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keeper => "keeper",
            Self::GroupAndMarker => "group_and_marker",
            Self::Group => "group",
        }
    }
}
