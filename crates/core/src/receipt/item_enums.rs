//! Enumerations in receipts: kinds of work, methods that ended the work, proofs of an end, and reasons for work that
//! still runs. A receipt is the result of a stop.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of work of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// A language model call.
    ModelCall,
    /// A tool call.
    ToolCall,
    /// Background work that may outlive its turn.
    Background,
    /// A permission question to a person.
    Permission,
    /// A hook of the application.
    Hook,
    /// A guardrail.
    Guardrail,
    /// An append to the log.
    Append,
    /// A future of a program that uses scopes without the engine.
    Future,
    /// A blocking thread.
    Thread,
    /// A call to another machine.
    Remote,
    /// A child process and its descendants.
    Process,
    /// The engine that drives a turn; listed only while it has not acknowledged the stop.
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

/// Method that ended an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndMethod {
    /// The work saw the cancellation and ended itself.
    Acknowledged,
    /// The stream was dropped, which closed the connection.
    ConnectionClosed,
    /// The future was dropped.
    Dropped,
    /// The work was accepted, but never starts: it had no effect.
    NotBegun,
    /// SIGTERM sufficed.
    Sigterm,
    /// SIGKILL was needed.
    Sigkill,
    /// The remote system reported the end of the work.
    RemoteConfirmed,
    /// The work failed by itself after the stop had reached it.
    Failed,
    /// The process that owned the work has died.
    OwnerDied,
}

impl EndMethod {
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
            Self::OwnerDied => "owner_died",
        }
    }
}

/// Evidence of an ending from outside the work itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndProof {
    /// The future's destructor has run.
    FutureDropped,
    /// The task has returned.
    TaskEnded,
    /// The thread has returned.
    ThreadEnded,
    /// The kernel no longer has an established connection of this call.
    SocketClosed,
    /// The process group is empty, and a search of `/proc` for the marker found nothing.
    ProcessGroupEmpty,
    /// The keeper, which adopts every descendant, has no children left.
    ProcessTreeEmpty,
    /// The remote system confirmed the end.
    RemoteConfirmed,
}

impl EndProof {
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

    /// Work that this evidence can miss; `None` if it misses none.
    pub(super) fn may_miss(self) -> Option<MissedWork> {
        match self {
            Self::ProcessGroupEmpty => Some(MissedWork::EscapedProcesses),
            Self::FutureDropped
            | Self::TaskEnded
            | Self::ThreadEnded
            | Self::SocketClosed
            | Self::ProcessTreeEmpty
            | Self::RemoteConfirmed => None,
        }
    }
}

/// Work that a verification can miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissedWork {
    /// A process that has left the group and the session, has cleared its environment, and has lost its parent.
    EscapedProcesses,
}

impl MissedWork {
    /// The word used in JSON and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EscapedProcesses => "escaped_processes",
        }
    }
}

/// Reason why an item still runs, or could not be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotStoppedReason {
    /// The stop did not cover the work.
    OutsideExtent,
    /// A thread that never checks its scope cannot be forced to end.
    BlockingThread,
    /// The future blocks the thread that polls it, so the future cannot be dropped.
    BlocksItsThread,
    /// Processes still ran when the time limit for forced ending passed.
    ProcessesLeft,
    /// The remote system was asked to stop the work and did not confirm.
    NotConfirmed,
    /// The watcher of the work is gone, so its state is unknown.
    WatcherGone,
    /// The engine has not acknowledged the stop: it is busy, or it is writing the ending of its turn.
    NotAcknowledged,
    /// A dry run found the work running and did not ask it to stop.
    NotAsked,
}

impl NotStoppedReason {
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
            Self::NotAsked => "not_asked",
        }
    }
}

/// Reason why requested work has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// The work waits for the answer to a permission question.
    Permission,
}

impl WaitReason {
    /// The word used in JSON and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permission => "permission",
        }
    }
}

/// Level of containment of a child process, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Containment {
    /// A separate keeper process, which adopts every descendant and survives a `kill -9` of its owner.
    Keeper,
    /// A process group, a marker in the environment, and a search of `/proc` for the marker.
    GroupAndMarker,
    /// A process group only (macOS).
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
