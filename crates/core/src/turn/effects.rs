//! Effects of tool calls that the conversation does not show: the calls of a turn that was rolled back, undone, or cut
//! off by a crash. The next turn reports them to the model, so that the model does not repeat them.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call_label::call_label;
use crate::ids::{CallId, TurnNumber};
use crate::message::{Arguments, Effect, Message};
use crate::receipt::ItemState;
use crate::record::{CallOutcome, StartedCall, StartedCallKind};
use crate::turn::summary::{INPUT_EXCERPT_CHARS, excerpt};

/// Maximum number of calls that are kept for each turn. Of more calls, those with an unknown outcome and the last ones
/// are kept.
const CALLS_MAX: usize = 64;

/// Maximum number of lost turns that wait for their report. Of more turns, those with an unknown outcome and the last ones
/// are kept.
const LOST_TURNS_MAX: usize = 32;

/// Maximum length of a kept result, in characters.
const RESULT_CHARS_MAX: usize = 300;

/// A tool call that may have changed something outside the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallEffect {
    /// Id of the call.
    pub id: CallId,
    /// Name of the tool.
    pub name: Arc<str>,
    /// The most informative argument, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Arc<str>>,
    /// Effect of repeating the call.
    pub effect: Effect,
    /// Outcome of the call. `None` while the call runs.
    pub outcome: Option<CallOutcome>,
    /// Beginning of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<str>>,
    /// True if the work of the call has moved to the background or was started there, and its end is not known. The
    /// result of the call does not tell whether the work has completed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub in_background: bool,
    /// True if the command of the call has exited, so that only its leftover processes can run in the background.
    #[serde(default, skip_serializing_if = "is_false")]
    has_exited: bool,
    /// Fingerprint of the tool and the arguments, which identifies a repetition of the call.
    #[serde(default)]
    fingerprint: u64,
}

/// The calls of one turn that may have changed something.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnEffects {
    /// The calls, in the order of their starts.
    pub calls: Vec<CallEffect>,
    /// Number of earlier calls that are not in the list.
    #[serde(default)]
    pub omitted: u32,
}

/// A turn with effects that the conversation does not show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LostTurn {
    /// Number of the turn.
    pub turn: TurnNumber,
    /// Beginning of the user's message. Empty if a guardrail refused the turn.
    pub input: Arc<str>,
    /// The calls.
    pub effects: TurnEffects,
    /// True if the conversation contains the message and the completed steps of the turn. Only these calls are missing.
    #[serde(rename = "partly_kept", default, skip_serializing_if = "is_false")]
    pub is_partly_kept: bool,
}

impl CallEffect {
    /// True if the outcome of the call, or of the command that the call has started in the background, is unknown.
    pub fn is_outcome_unknown(&self) -> bool {
        match self.outcome {
            None | Some(CallOutcome::Unknown) => true,
            Some(CallOutcome::Succeeded) => self.in_background,
            Some(_) => false,
        }
    }

    /// Records that the work of the call runs in the background.
    pub(super) fn work_started(&mut self) {
        self.in_background = !self.has_exited;
    }

    /// Records the end of the work in the background, which is the end of the call.
    pub(super) fn work_ended(&mut self, state: &ItemState) {
        if self.in_background {
            self.in_background = false;
            self.outcome = Some(match state {
                ItemState::Finished { .. } => CallOutcome::Succeeded,
                ItemState::Stopped { .. } => CallOutcome::Stopped,
                _ => CallOutcome::Unknown,
            });
        }
    }

    /// Name of the tool, and the most informative argument.
    pub fn title(&self) -> String {
        match &self.label {
            Some(label) => format!("{} `{label}`", self.name),
            None => self.name.to_string(),
        }
    }

    /// True if the call may have had its effect without a known outcome, and a repetition is not safe.
    pub fn is_uncertain(&self) -> bool {
        let is_known = !matches!(self.outcome, None | Some(CallOutcome::Unknown));
        !is_known && !self.effect.may_repeat()
    }
}

/// The call and its outcome in one line, for people and for the model.
impl std::fmt::Display for CallEffect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.title())?;
        f.write_str(match self.outcome {
            Some(CallOutcome::Succeeded) if self.in_background => {
                ": started in the background; outcome unknown"
            }
            Some(CallOutcome::Succeeded) => ": completed",
            Some(CallOutcome::Failed) => ": failed",
            Some(CallOutcome::TimedOut) => {
                ": ran into its time limit; a part of its effect may have happened"
            }
            Some(CallOutcome::Stopped) => ": was stopped; a part of its effect may have happened",
            Some(CallOutcome::Denied) => ": did not run",
            None | Some(CallOutcome::Unknown) if self.effect.may_repeat() => {
                ": outcome unknown; a repetition is safe"
            }
            None | Some(CallOutcome::Unknown) => ": outcome unknown; check before repeating it",
        })
    }
}

impl TurnEffects {
    /// Text for the model about the calls of a sub-agent without an answer. Empty if there are none.
    pub fn of_sub_agent(&self) -> String {
        let mut text = String::new();
        if !self.is_empty() {
            text.push_str("Its calls, which may have changed something:");
        }
        for call in &self.calls {
            let _never_fails = write!(text, "\n- {call}");
        }
        if self.omitted > 0 {
            let _never_fails = write!(text, "\n- and {} more", self.omitted);
        }
        text
    }

    /// Adds a call that starts, unless the call changes nothing.
    pub fn start(&mut self, call: &StartedCall) {
        let StartedCallKind::Tool { arguments, effect } = &call.kind else {
            return;
        };
        if *effect == Effect::ReadOnly {
            return;
        }
        if self.calls.len() == CALLS_MAX {
            // A call with a known outcome is less important than a call that may have had its effect.
            let known = self.calls.iter().position(|call| !call.is_uncertain());
            self.calls.remove(known.unwrap_or(0));
            self.omitted += 1;
        }
        self.calls.push(CallEffect {
            id: call.id.clone(),
            name: Arc::clone(&call.name),
            label: call_label(arguments),
            effect: *effect,
            outcome: None,
            result: None,
            in_background: starts_in_background(arguments),
            has_exited: false,
            fingerprint: fingerprint(&call.name, arguments),
        });
    }

    /// Records the end of a call. A denied call did not run, so it is removed. `has_exited` is true if the command of the
    /// call has exited.
    pub fn finish(
        &mut self,
        id: &CallId,
        outcome: CallOutcome,
        has_exited: bool,
        result: Option<&Arc<str>>,
    ) {
        let Some(at) = self.calls.iter().rposition(|call| call.id == *id) else {
            return;
        };
        if outcome == CallOutcome::Denied {
            self.calls.remove(at);
            return;
        }
        let call = &mut self.calls[at];
        call.result = result.cloned();
        if has_exited {
            call.has_exited = true;
            call.in_background = false;
        }
        // If the work of the call has already ended in the background, that end is the outcome.
        if has_exited || call.outcome.is_none() {
            call.outcome = Some(outcome);
        }
    }

    /// True if the call with this id may have changed something.
    pub(super) fn has(&self, id: &CallId) -> bool {
        self.calls.iter().any(|call| call.id == *id)
    }

    /// Changes the call with this id, if it may have changed something.
    pub(super) fn change_call(&mut self, id: &CallId, change: impl FnOnce(&mut CallEffect)) {
        if let Some(call) = self.calls.iter_mut().rfind(|call| call.id == *id) {
            change(call);
        }
    }

    /// Removes the calls of the sub-agent that this call has started, and returns them.
    pub(super) fn take_nested(&mut self, outer: &CallId) -> Vec<CallEffect> {
        self.calls
            .extract_if(.., |call| call.id.is_within(outer))
            .collect()
    }

    /// True if no call may have changed something.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.omitted == 0
    }

    /// Splits the calls into those whose results are in these messages, and the others.
    pub(super) fn split(
        &self,
        messages: impl ExactSizeIterator<Item = Arc<Message>>,
    ) -> (Self, Self) {
        if messages.len() == 0 || self.is_empty() {
            return (Self::default(), self.clone());
        }
        let answered: HashSet<CallId> = messages
            .filter_map(|message| match &*message {
                Message::Tool(result) => Some(result.call_id.clone()),
                _ => None,
            })
            .collect();
        // The result of a call also stands for the calls that its sub-agent has made.
        let is_shown = |call: &CallEffect| {
            let is_nested = || answered.iter().any(|outer| call.id.is_within(outer));
            answered.contains(&call.id) || is_nested()
        };
        let (shown, rest) = self.calls.iter().cloned().partition(is_shown);
        let shown = Self {
            calls: shown,
            omitted: self.omitted,
        };
        let rest = Self {
            calls: rest,
            omitted: 0,
        };
        (shown, rest)
    }

    /// The last call with this tool and these arguments.
    pub(super) fn last_like(&self, fingerprint: u64) -> Option<&CallEffect> {
        let mut calls = self.calls.iter().rev();
        calls.find(|call| call.fingerprint == fingerprint)
    }
}

fn starts_in_background(arguments: &Arguments) -> bool {
    match arguments {
        Arguments::Json(value) => value.get("background") == Some(&Value::Bool(true)),
        Arguments::Malformed(_) => false,
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde needs"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// Hash (FNV-1a) of a tool's name and arguments. The order of the fields of an object does not matter, and neither does a
/// field with the value null or false, because a model may write a missing argument so. An older version counted false,
/// so a repetition of a call in its sessions may not be found.
pub(super) fn fingerprint(name: &str, arguments: &Arguments) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    hash.add(name.as_bytes());
    match arguments {
        Arguments::Json(value) => hash.add_value(value),
        Arguments::Malformed(text) => hash.add(text.as_bytes()),
    }
    hash.0
}

struct Fnv(u64);

impl Fnv {
    /// Adds bytes, and a mark of their end.
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn add_value(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                self.add(b"{");
                let mut fields: Vec<_> = fields
                    .iter()
                    .filter(|(_, value)| !value.is_null() && **value != Value::Bool(false))
                    .collect();
                fields.sort_unstable_by_key(|(name, _)| *name);
                for (name, value) in fields {
                    self.add(name.as_bytes());
                    self.add_value(value);
                }
                self.add(b"}");
            }
            Value::Array(items) => {
                self.add(b"[");
                for item in items {
                    self.add_value(item);
                }
                self.add(b"]");
            }
            Value::String(text) => {
                self.add(b"s");
                self.add(text.as_bytes());
            }
            scalar => self.add(scalar.to_string().as_bytes()),
        }
    }
}

/// The beginning of a result, for [`CallEffect::result`].
pub(super) fn result_excerpt(content: &Arc<str>) -> Arc<str> {
    excerpt(content, RESULT_CHARS_MAX)
}

impl LostTurn {
    /// A turn with these effects. `None` if there are none. `is_refused` is true if a guardrail refused the turn: its
    /// texts must not reach the model.
    pub(super) fn new(
        turn: TurnNumber,
        input: &Arc<str>,
        mut effects: TurnEffects,
        is_refused: bool,
    ) -> Option<Self> {
        if effects.is_empty() {
            return None;
        }
        for call in &mut effects.calls {
            end_unknown(call);
            if is_refused {
                call.result = None;
            }
        }
        let input = if is_refused {
            "".into()
        } else {
            excerpt(input, INPUT_EXCERPT_CHARS)
        };
        Some(Self {
            turn,
            input,
            effects,
            is_partly_kept: false,
        })
    }

    /// Records the end of work that one of the calls has started in the background.
    pub fn work_ended(&mut self, call: &CallId, state: &ItemState) {
        self.change_call(call, |call| call.work_ended(state));
    }

    /// Changes one of the calls.
    pub(super) fn change_call(&mut self, id: &CallId, change: impl FnOnce(&mut CallEffect)) {
        self.effects.change_call(id, |call| {
            change(call);
            end_unknown(call);
        });
    }

    /// Sets [`is_partly_kept`](Self::is_partly_kept).
    #[must_use]
    pub(super) fn partly_kept(mut self, is_partly_kept: bool) -> Self {
        self.is_partly_kept = is_partly_kept;
        self
    }
}

/// The turn of a lost call has ended, so an end that is not known now is an unknown outcome.
fn end_unknown(call: &mut CallEffect) {
    if call.is_outcome_unknown() {
        call.outcome = Some(CallOutcome::Unknown);
    }
}

/// The calls in one line, for people.
impl std::fmt::Display for LostTurn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("calls that may have changed something, but are not in the conversation: ")?;
        for (at, call) in self.effects.calls.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{call}")?;
        }
        match self.effects.omitted {
            0 => Ok(()),
            omitted => write!(f, "; and {omitted} earlier calls"),
        }
    }
}

/// Limits the number of lost turns. The calls of the removed turns are only counted, with the oldest turn that is left.
pub(super) fn limit_lost(lost: &mut Vec<LostTurn>) {
    while lost.len() > LOST_TURNS_MAX {
        let is_known = |turn: &LostTurn| !turn.effects.calls.iter().any(CallEffect::is_uncertain);
        // The last turn has just ended, and its outcome names its calls.
        let (_last, earlier) = lost.split_last().expect("more than the maximum");
        let removed = lost.remove(earlier.iter().position(is_known).unwrap_or(0));
        let effects = &mut lost[0].effects;
        effects.omitted += removed.effects.omitted + removed.effects.calls.len() as u32;
    }
}
