//! The answer to a stop: what stopped, what did not, and how that is known.
//!
//! Invariants, held by the constructors:
//! 1. An item that is `stopped` has `how`, `after_ms` and its [`Evidence`].
//! 2. `quiet` is true exactly when no item of the extent is `still_running`, `unreachable` or `refused`.
//! 3. `cancel_observed` is true exactly when the engine acknowledged at a checkpoint and no item of the extent is
//!    `still_running` or `unreachable`. It is computed from the items, never set.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::extent::Extent;
use crate::ids::StopId;
use crate::message::Effect;
use crate::process::ProcessIdentity;
use crate::time::Timestamp;
use crate::usage::Usage;

/// The version of the receipt's form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReceiptSchema {
    /// The first.
    #[default]
    #[serde(rename = "allstop.receipt/1")]
    V1,
}

/// Milliseconds with one decimal, as receipts give them.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Millis(f64);

impl Millis {
    /// The number.
    pub fn as_f64(self) -> f64 {
        self.0
    }
}

impl From<Duration> for Millis {
    fn from(duration: Duration) -> Self {
        Self((duration.as_secs_f64() * 10_000.0).round() / 10.0)
    }
}

/// What kind of work an item is.
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

/// How an ending is known: verified from outside, acknowledged by the work at a named checkpoint, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verified: Option<Verified>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    observed_at: Option<Cow<'static, str>>,
}

impl Evidence {
    /// Seen from outside.
    pub fn verified(way: Verified) -> Self {
        Self {
            verified: Some(way),
            observed_at: None,
        }
    }

    /// Acknowledged by the work at this checkpoint.
    pub fn observed_at(checkpoint: impl Into<Cow<'static, str>>) -> Self {
        Self {
            verified: None,
            observed_at: Some(checkpoint.into()),
        }
    }

    /// The same, also acknowledged at this checkpoint.
    #[must_use]
    pub fn and_observed_at(mut self, checkpoint: impl Into<Cow<'static, str>>) -> Self {
        self.observed_at = Some(checkpoint.into());
        self
    }

    /// The outside proof, if there is one.
    pub fn proof(&self) -> Option<Verified> {
        self.verified
    }

    /// The checkpoint, if the work acknowledged.
    pub fn checkpoint(&self) -> Option<&str> {
        self.observed_at.as_deref()
    }
}

/// Why an item still runs, or could not be stopped.
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
        }
    }
}

/// What became of an item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ItemState {
    /// It ended by itself before the stop reached it.
    Finished {
        /// Milliseconds from the request to its end; none where there was no request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_ms: Option<Millis>,
    },
    /// It was ended, and that is known.
    Stopped {
        /// By what.
        how: How,
        /// How that is known.
        #[serde(flatten)]
        evidence: Evidence,
        /// Milliseconds from the request to its end.
        after_ms: Millis,
    },
    /// Our side has verifiably ended; the outcome of its effect is not known.
    Unknown {
        /// By what our side was ended.
        how: How,
        /// Milliseconds from the request to the end of our side.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_ms: Option<Millis>,
    },
    /// It runs.
    StillRunning {
        /// Why it could not be, or was not, ended.
        why: Why,
    },
    /// A remote that was asked and may still work.
    Unreachable {
        /// What is missing.
        why: Why,
    },
    /// The one who holds it said no.
    Refused {
        /// What it said.
        why: Why,
    },
}

impl ItemState {
    /// The word used in JSON and in text.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Finished { .. } => "finished",
            Self::Stopped { .. } => "stopped",
            Self::Unknown { .. } => "unknown",
            Self::StillRunning { .. } => "still_running",
            Self::Unreachable { .. } => "unreachable",
            Self::Refused { .. } => "refused",
        }
    }

    /// Whether this item keeps a receipt from being quiet, if it is in the extent.
    pub fn breaks_quiet(&self) -> bool {
        matches!(
            self,
            Self::StillRunning { .. } | Self::Unreachable { .. } | Self::Refused { .. }
        )
    }

    fn is_outside_extent(&self) -> bool {
        matches!(
            self,
            Self::StillRunning {
                why: Why::OutsideExtent
            }
        )
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

/// One piece of work in a receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptItem {
    /// What it is.
    pub kind: ItemKind,
    /// Its id, unique in the receipt.
    pub id: Arc<str>,
    /// Its name, for people.
    pub name: Arc<str>,
    /// What became of it.
    #[serde(flatten)]
    pub state: ItemState,
    /// What repeating it would do, where that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// The level of containment, for child processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<Containment>,
    /// Processes that are known to run still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessIdentity>,
    /// Tokens that came in after the stop was accepted, for model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_received_after_stop: Option<u64>,
    /// What a reader should know or do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Cow<'static, str>>,
}

impl ReceiptItem {
    /// An item with nothing but its state.
    pub fn new(
        kind: ItemKind,
        id: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        state: ItemState,
    ) -> Self {
        Self {
            kind,
            id: id.into(),
            name: name.into(),
            state,
            effect: None,
            containment: None,
            processes: Vec::new(),
            tokens_received_after_stop: None,
            note: None,
        }
    }
}

/// What a stop left of the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConversationEffect {
    /// It equals what it was.
    #[default]
    Unchanged,
    /// The policy `keep`: the user's message, the completed steps and a marker were committed as one.
    KeptCompletedSteps,
}

/// The answer of a stop that found nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopOutcome {
    /// It had ended before.
    AlreadyEnded,
    /// There is no such thing.
    NotFound,
}

/// Who asked for what, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StopRequest {
    /// The id of the stop.
    pub stop_id: StopId,
    /// What was to be stopped: `session/01J…/turn/7`.
    pub target: Arc<str>,
    /// What it covers.
    pub extent: Extent,
    /// Why.
    pub cause: Cause,
    /// When it was accepted.
    pub requested_at: Timestamp,
}

/// The answer to a stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[must_use = "a receipt says what still runs"]
pub struct Receipt {
    schema: ReceiptSchema,
    #[serde(flatten)]
    request: StopRequest,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    preview: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<StopOutcome>,
    quiet: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quiet_after_ms: Option<Millis>,
    cancel_observed: bool,
    items: Vec<ReceiptItem>,
    conversation: ConversationEffect,
    usage: Usage,
}

/// What the one who carried a stop out knows of it.
#[derive(Debug, Clone, Default)]
pub struct StopFindings {
    /// Every item of the extent, and those outside it that are worth naming.
    pub items: Vec<ReceiptItem>,
    /// Whether the engine acknowledged the stop at a checkpoint.
    pub engine_acknowledged: bool,
    /// From the request to the last ending.
    pub elapsed: Duration,
}

impl Receipt {
    /// Makes the receipt of a stop that was carried out. `quiet` and `cancel_observed` follow from the findings.
    pub fn of_stop(request: StopRequest, findings: StopFindings) -> Self {
        let in_extent = || {
            findings
                .items
                .iter()
                .filter(|item| !item.state.is_outside_extent())
        };
        let quiet = !in_extent().any(|item| item.state.breaks_quiet());
        let something_left = in_extent().any(|item| {
            matches!(
                item.state,
                ItemState::StillRunning { .. } | ItemState::Unreachable { .. }
            )
        });
        Self {
            schema: ReceiptSchema::V1,
            request,
            preview: false,
            outcome: None,
            quiet,
            quiet_after_ms: quiet.then(|| findings.elapsed.into()),
            cancel_observed: findings.engine_acknowledged && !something_left,
            items: findings.items,
            conversation: ConversationEffect::Unchanged,
            usage: Usage::default(),
        }
    }

    /// The answer of a stop that found nothing to do: quiet, and nothing was observed.
    pub fn of_nothing(request: StopRequest, outcome: StopOutcome) -> Self {
        Self {
            outcome: Some(outcome),
            quiet_after_ms: None,
            ..Self::of_stop(request, StopFindings::default())
        }
    }

    /// What a stop would find, without doing it: every item of the extent as it runs now.
    pub fn of_preview(request: StopRequest, items: Vec<ReceiptItem>) -> Self {
        Self {
            preview: true,
            ..Self::of_stop(
                request,
                StopFindings {
                    items,
                    ..StopFindings::default()
                },
            )
        }
    }

    /// The same, with what became of the conversation.
    pub fn with_conversation(mut self, conversation: ConversationEffect) -> Self {
        self.conversation = conversation;
        self
    }

    /// The same, with the metered usage of the extent.
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// The same, with work outside the extent named as still running.
    pub fn with_bystanders(mut self, bystanders: impl IntoIterator<Item = ReceiptItem>) -> Self {
        self.items.extend(bystanders.into_iter().map(|mut item| {
            item.state = ItemState::StillRunning {
                why: Why::OutsideExtent,
            };
            item
        }));
        self
    }

    /// Who asked for what.
    pub fn request(&self) -> &StopRequest {
        &self.request
    }

    /// The id of the stop.
    pub fn stop_id(&self) -> &StopId {
        &self.request.stop_id
    }

    /// Why.
    pub fn cause(&self) -> &Cause {
        &self.request.cause
    }

    /// Set where the stop found nothing to do.
    pub fn outcome(&self) -> Option<StopOutcome> {
        self.outcome
    }

    /// Whether this only says what a stop would find.
    pub fn is_preview(&self) -> bool {
        self.preview
    }

    /// Whether nothing in the extent runs any more, verified for each item.
    pub fn quiet(&self) -> bool {
        self.quiet
    }

    /// Milliseconds from the request to quiet; `None` where it is not quiet.
    pub fn quiet_after_ms(&self) -> Option<Millis> {
        self.quiet_after_ms
    }

    /// Whether the engine acknowledged and nothing of the extent is left.
    pub fn cancel_observed(&self) -> bool {
        self.cancel_observed
    }

    /// Every item.
    pub fn items(&self) -> &[ReceiptItem] {
        &self.items
    }

    /// What became of the conversation.
    pub fn conversation(&self) -> ConversationEffect {
        self.conversation
    }

    /// The metered usage of the extent.
    pub fn usage(&self) -> Usage {
        self.usage
    }
}
