//! The end of a turn because of a stop. The result of a stop is a receipt, which lists the work that ended and the work
//! that still runs.

use std::fmt::Write as _;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::{Cause, CauseKind};
use crate::ids::{CallId, TurnNumber};
use crate::image::Images;
use crate::message::{Message, ToolResult};
use crate::receipt::{ConversationEffect, EndMethod, ItemState, Receipt};
use crate::record::{CallOutcome, SessionRecord};
use crate::stop_reason::StopReason;
use crate::time::Timestamp;
use crate::turn::call_texts::CallTexts;
use crate::turn::conversation::{Conversation, EndedTurn};
use crate::turn::draft::Draft;
use crate::turn::effects::{LostTurn, TurnEffects};
use crate::turn::limits::StartRefusal;
use crate::turn::lost_note::note_about;
use crate::turn::state::{TurnEvent, TurnState};
use crate::turn::turn_start::TurnStart;
use crate::usage::Usage;

/// Policy for the part of a stopped turn that stays in the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopPolicy {
    /// Nothing stays.
    #[default]
    Rollback,
    /// The user's message, the completed steps and a marker of the stop are committed together. The marker contains the
    /// beginning of a cut answer. A message that no model call has seen is not kept, unless a newer message supersedes it.
    Keep,
}

impl StopPolicy {
    /// Name of the policy in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rollback => "rollback",
            Self::Keep => "keep",
        }
    }
}

/// Parameters of a turn's stop.
#[derive(Debug, Clone)]
pub struct TurnStop {
    /// The cause. If the turn was already stopped, the earlier cause is used instead.
    pub cause: Cause,
    /// The stop reason for this cause.
    pub reason: StopReason,
    /// The policy that decides which part of the turn stays in the conversation.
    pub policy: StopPolicy,
    /// Time of the stop.
    pub at: Timestamp,
    /// Receipt of the stop of the turn's scope (all work of the turn). `None` if there was no work to stop.
    pub receipt: Option<Receipt>,
    /// Partial text of the step that was stopped.
    pub partial: PartialStep,
    /// Wording about calls without a result; the wording of this crate if `None`.
    pub texts: Option<Arc<CallTexts>>,
    /// For the turn of a sub-agent: path of the calls that contain it. The items of the receipt have ids below it.
    pub path: Option<Arc<str>>,
}

/// Text that a step had received when it was stopped. Under [`StopPolicy::Keep`], the next request contains this text,
/// so that the model can continue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartialStep {
    /// Beginning of the model's answer, if the stop interrupted it.
    pub answer: Option<Arc<str>>,
    /// End of the output of each call.
    pub outputs: Vec<(CallId, Arc<str>)>,
}

impl TurnStop {
    /// A stop with this cause and without a receipt. The reason follows from the cause.
    pub fn new(cause: Cause, policy: StopPolicy, at: Timestamp) -> Self {
        let reason = cause.stop_reason();
        Self {
            cause,
            reason,
            policy,
            at,
            receipt: None,
            partial: PartialStep::default(),
            texts: None,
            path: None,
        }
    }

    /// A stop of a turn whose step or call was refused.
    pub fn refused(refusal: &StartRefusal, policy: StopPolicy, at: Timestamp) -> Self {
        Self {
            reason: refusal.reason(),
            ..Self::new(refusal.cause(), policy, at)
        }
    }

    /// Returns the stop with the receipt of the turn's scope.
    #[must_use]
    pub fn receipt(mut self, receipt: Receipt) -> Self {
        self.receipt = Some(receipt);
        self
    }
}

/// A stopped turn. Append the records together, then continue the session with the conversation.
#[derive(Debug)]
#[must_use = "its records are the turn's ending"]
pub struct StoppedTurn {
    /// First the ends of the open calls, then the turn's ending. Empty if another process has taken over the session
    /// (the cause `lease_lost`), because that process writes the ending.
    pub records: Vec<SessionRecord>,
    /// Conversation for the next turn, after the records are durable. If no messages were kept, this is the
    /// conversation before the turn.
    pub conversation: Arc<Conversation>,
    /// Effect on the conversation, after the records are durable.
    pub effect: ConversationEffect,
    /// Conversation before the turn. If the records could not be written, the next turn continues from this
    /// conversation.
    pub base: Arc<Conversation>,
    /// Reason for the end.
    pub reason: StopReason,
    /// The first cause.
    pub cause: Cause,
    /// The receipt, with the effect on the conversation and the metered usage of the turn.
    pub receipt: Option<Arc<Receipt>>,
    /// State of the turn: steps, metered usage, calls with an unknown outcome.
    pub state: TurnState,
    /// Calls that may have changed something and that the conversation does not show.
    pub lost: Option<LostTurn>,
    /// The user's message.
    pub(super) input: Arc<str>,
    /// True if recovery may keep messages of this turn in the conversation, because the log may contain them.
    pub(super) may_keep: bool,
    /// Messages of this turn that the log verifiably contains. Recovery would keep them in the conversation.
    pub(super) kept_in_log: Vec<Arc<Message>>,
}

impl Draft {
    /// Ends the turn with a stop. The first cause wins: if the turn was already stopped for another cause, the turn
    /// ends with the earlier cause and the stop reason of that cause.
    ///
    /// Open calls end together with the turn. If the receipt has an item with the id of an open call, and the item is
    /// stopped, the outcome of the call is `stopped`. Otherwise the outcome is `unknown`. If a guardrail caused the
    /// stop, no messages are kept, because the model must not receive the refused text with the next message. After the
    /// cause `lease_lost`, and after a failure before the first answer, no messages are kept either. A message that no
    /// model call has seen is kept only if a newer message supersedes it.
    pub fn stop(mut self, stop: TurnStop) -> StoppedTurn {
        let (cause, reason) = self.decide_stop(stop.cause, stop.reason);
        self.path = stop.path;
        let records = self.end_open_calls(stop.receipt.as_ref());
        let forbidden = reason == StopReason::Guardrail || cause.kind == CauseKind::LeaseLost;
        let kept_in_log = self.messages_in_log().to_vec();
        let has_kept = self.may_have_kept_messages();
        let (kept, usage) = if stop.policy == StopPolicy::Keep && !forbidden {
            let texts = stop.texts.as_deref();
            let kept = self.kept_messages(stop.receipt.as_ref(), &cause, &stop.partial, texts);
            (kept, self.answered_usage)
        } else {
            (Vec::new(), Usage::default())
        };
        let is_lost = cause.kind == CauseKind::LeaseLost;
        let mut stopped = StoppedTurn::new(
            (self.base, &self.input),
            self.state,
            records,
            StopEnding {
                at: stop.at,
                reason,
                cause,
                receipt: stop.receipt,
                kept,
                usage,
            },
        );
        stopped.may_keep = has_kept;
        stopped.kept_in_log = kept_in_log;
        if is_lost && has_kept {
            // The process that has taken over the session ends the turn, and keeps these messages.
            stopped.set_effect(ConversationEffect::Unknown);
        }
        stopped
    }

    fn decide_stop(&self, cause: Cause, reason: StopReason) -> (Cause, StopReason) {
        self.decision.stop(cause.clone());
        match self.decision.stopped_by() {
            Some(first) if *first != cause => (first.clone(), first.stop_reason()),
            _ if reason == StopReason::Completed => (cause.clone(), cause.stop_reason()),
            _ => (cause, reason),
        }
    }

    fn end_open_calls(&mut self, receipt: Option<&Receipt>) -> Vec<SessionRecord> {
        let open: Vec<CallId> = self
            .state
            .open_calls()
            .iter()
            .map(|call| call.id.clone())
            .collect();
        let ends = open.into_iter().map(|id| self.end_open_call(id, receipt));
        ends.collect()
    }

    /// Ends an open call that has no result.
    pub(super) fn end_open_call(&mut self, id: CallId, receipt: Option<&Receipt>) -> SessionRecord {
        let outcome = match self.item_of(receipt, &id) {
            Some(ItemState::Stopped { .. }) => CallOutcome::Stopped,
            _ => CallOutcome::Unknown,
        };
        let ended = if self.state.open_model_call().is_some() {
            self.drop_model(outcome)
        } else {
            self.end_tool_call(id, outcome, None)
        };
        ended.expect("the call is open, so it can end")
    }

    fn kept_messages(
        &mut self,
        receipt: Option<&Receipt>,
        cause: &Cause,
        partial: &PartialStep,
        texts: Option<&CallTexts>,
    ) -> Vec<Arc<Message>> {
        let mut kept = std::mem::take(&mut self.messages);
        if !keeps_unseen(cause) {
            kept.truncate(kept.len().saturating_sub(self.messages_unseen));
            if kept.is_empty() {
                return kept;
            }
        }
        if let Some(step) = self.step.take() {
            step.into_messages(&mut kept, |call| {
                let content = self
                    .missing_result_text(receipt, &call.id, cause, partial, texts)
                    .into();
                ToolResult {
                    call_id: call.id.clone(),
                    content,
                    is_error: true,
                    images: Images::default(),
                }
            });
        }
        // The user's message may itself have caused a failure before the first answer. If such a message were kept,
        // every later turn would fail.
        let is_answered = |message: &Arc<Message>| matches!(**message, Message::Assistant { .. });
        if cause.kind == CauseKind::Failure && !kept.iter().any(is_answered) {
            return Vec::new();
        }
        if cause.kind == CauseKind::Failure {
            leave_out_unanswered_images(&mut kept);
        }
        kept.push(stop_marker(cause, partial.answer.as_deref()));
        kept
    }

    /// Text for the model about a call without a result.
    fn missing_result_text(
        &self,
        receipt: Option<&Receipt>,
        id: &CallId,
        cause: &Cause,
        partial: &PartialStep,
        texts: Option<&CallTexts>,
    ) -> String {
        let cause = for_model(cause);
        let own = texts.map(|texts| &*texts.stopped);
        if !self.state.has_started(id) {
            let default = || format!("Not run: the turn was stopped before ({cause}).");
            return own.map_or_else(default, str::to_owned);
        }
        let mut text = own.map_or(String::new(), |own| format!("{own} "));
        match self.item_of(receipt, id) {
            Some(ItemState::Stopped { .. }) if own.is_some() => {}
            Some(ItemState::Stopped { how, .. }) => {
                let how = match how {
                    EndMethod::Sigterm => " by SIGTERM",
                    EndMethod::Sigkill => " by SIGKILL",
                    _ => "",
                };
                let _infallible = write!(
                    text,
                    "Stopped{how} before it had a result ({cause}). Nothing of it runs any more."
                );
            }
            Some(state) if state.breaks_quiet() => {
                let _infallible = write!(
                    text,
                    "The turn was stopped ({cause}), but this call could not be and may still run."
                );
            }
            _ => {
                let _infallible = write!(
                    text,
                    "Stopped without a result ({cause}); it may have completed. Check before repeating it."
                );
            }
        }
        let mut text = text.trim_end().to_owned();
        let output = partial.outputs.iter().find(|(call, _)| call == id);
        if let Some((_, output)) = output.filter(|(_, output)| !output.trim().is_empty()) {
            text.push_str(" Its output until then:\n");
            text.push_str(output);
        }
        text.push_str(&self.nested_calls_text(id));
        text
    }
}

/// Removes the images that no answer follows. The provider may have refused one of them, and would then refuse every
/// later request.
fn leave_out_unanswered_images(messages: &mut [Arc<Message>]) {
    let is_unanswered =
        |message: &&mut Arc<Message>| !matches!(***message, Message::Assistant { .. });
    for message in messages.iter_mut().rev().take_while(is_unanswered) {
        if !message.images().is_empty() {
            *message = Arc::new(message.without_images());
        }
    }
}

/// True if a stop with this cause keeps a message that no model call has seen. A user who stops such a message takes it
/// back. A user who sends a newer message wants an answer to both.
fn keeps_unseen(cause: &Cause) -> bool {
    cause.kind == CauseKind::Superseded
}

impl StartRefusal {
    /// Ends a turn that was refused before it began. The records are the start and the ending of the turn.
    ///
    /// No model call has seen the message, so no message is kept, with one exception: under the policy `keep`, a message
    /// that a newer message has superseded.
    pub fn stop(
        &self,
        start: &TurnStart,
        policy: StopPolicy,
        receipt: Option<Receipt>,
        base: Arc<Conversation>,
    ) -> StoppedTurn {
        let cause = self.cause();
        let forbidden = matches!(cause.kind, CauseKind::Guardrail | CauseKind::LeaseLost);
        let kept = match self {
            Self::Stopped(cause)
                if policy == StopPolicy::Keep && !forbidden && keeps_unseen(cause) =>
            {
                // The note about lost calls comes first, as in a turn that begins.
                let note = note_about(&base.lost);
                let messages = note.into_iter().chain(start.messages());
                messages.chain([stop_marker(cause, None)]).collect()
            }
            _ => Vec::new(),
        };
        let ending = StopEnding {
            at: start.at,
            reason: self.reason(),
            cause,
            receipt,
            kept,
            usage: Usage::default(),
        };
        StoppedTurn::new(
            (base, &start.input),
            TurnState::new(start.turn),
            vec![start.record()],
            ending,
        )
    }
}

/// Parameters of the ending of a turn that was stopped.
pub(super) struct StopEnding {
    pub(super) at: Timestamp,
    pub(super) reason: StopReason,
    pub(super) cause: Cause,
    pub(super) receipt: Option<Receipt>,
    pub(super) kept: Vec<Arc<Message>>,
    pub(super) usage: Usage,
}

impl StoppedTurn {
    /// Creates the stopped turn, and adds the turn's ending to these records. All calls of the turn must have ended.
    pub(super) fn new(
        (base, input): (Arc<Conversation>, &Arc<str>),
        mut state: TurnState,
        mut records: Vec<SessionRecord>,
        ending: StopEnding,
    ) -> Self {
        let StopEnding {
            at,
            reason,
            cause,
            receipt,
            kept,
            usage,
        } = ending;
        let turn = state.number();
        let conversation = Arc::clone(&base).after_turn(EndedTurn {
            turn,
            input,
            messages: kept.iter().cloned(),
            usage,
            effects: state.effects(),
            is_refused: reason == StopReason::Guardrail,
        });
        let lost = conversation.lost_calls_of(turn).cloned();
        let effect = if kept.is_empty() {
            ConversationEffect::Unchanged
        } else {
            ConversationEffect::KeptCompletedSteps
        };
        let metered = state.metered();
        let receipt =
            receipt.map(|receipt| Arc::new(receipt.with_conversation(effect).with_usage(metered)));
        state
            .apply(TurnEvent::Stopped(reason))
            .expect("no call is open, and a stop's reason is never `completed`");
        records.reserve_exact(1);
        records.push(SessionRecord::TurnStopped {
            turn,
            at,
            reason,
            cause: cause.clone(),
            receipt: receipt.clone(),
            kept,
            usage,
        });
        if cause.kind == CauseKind::LeaseLost {
            records.clear();
        }
        Self {
            records,
            conversation,
            effect,
            base,
            reason,
            cause,
            receipt,
            state,
            lost,
            input: Arc::clone(input),
            may_keep: false,
            kept_in_log: Vec::new(),
        }
    }

    fn set_effect(&mut self, effect: ConversationEffect) {
        self.effect = effect;
        if let Some(receipt) = &mut self.receipt {
            let corrected = Receipt::clone(receipt).with_conversation(effect);
            *receipt = Arc::new(corrected);
        }
    }

    /// Calls that may have changed something, and that the conversation does not show if the records are not written.
    pub fn lost_unless_written(&self) -> Option<LostTurn> {
        lost_unless_written(
            (self.state.number(), &self.input),
            self.state.effects(),
            &self.kept_in_log,
            self.reason == StopReason::Guardrail,
        )
    }

    /// Corrects the effect and the receipt after a failed append. `is_certain` is true if the store refused the
    /// records. In this case the conversation does not contain the kept messages, unless recovery will keep them.
    /// Otherwise the store may have accepted the records, and the effect is unknown.
    pub fn not_written(&mut self, is_certain: bool) {
        self.conversation = Arc::clone(&self.base);
        self.lost = self.lost_unless_written();
        if self.effect == ConversationEffect::Unchanged && !self.may_keep {
            return;
        }
        self.set_effect(if is_certain && !self.may_keep {
            ConversationEffect::Unchanged
        } else {
            ConversationEffect::Unknown
        });
    }
}

/// Calls that the conversation does not show if the ending of their turn is not written. The messages in the log stay in
/// the conversation in any case.
pub(super) fn lost_unless_written(
    (turn, input): (TurnNumber, &Arc<str>),
    effects: &TurnEffects,
    kept_in_log: &[Arc<Message>],
    is_refused: bool,
) -> Option<LostTurn> {
    let (_shown, rest) = effects.split(kept_in_log.iter().cloned());
    let lost = LostTurn::new(turn, input, rest, is_refused);
    lost.map(|lost| lost.partly_kept(!kept_in_log.is_empty()))
}

/// Message that marks a stop in a conversation that keeps the stopped turn. The marker quotes the beginning of an
/// interrupted answer, because a conversation may contain only complete messages of the model.
pub(super) fn stop_marker(cause: &Cause, cut_answer: Option<&str>) -> Arc<Message> {
    let mut text = format!("The turn was stopped here ({}).", for_model(cause));
    if let Some(answer) = cut_answer {
        text.push_str(" Your answer had begun with:\n");
        text.push_str(answer);
    }
    Arc::new(Message::StopMarker { text: text.into() })
}

/// The cause as text for the model. The text omits error messages of providers, and ids that the model does not know.
fn for_model(cause: &Cause) -> String {
    match cause.kind {
        CauseKind::Failure | CauseKind::Superseded => cause.kind.as_str().to_owned(),
        _ => cause.to_string(),
    }
}

impl Draft {
    fn item_of<'a>(&self, receipt: Option<&'a Receipt>, id: &CallId) -> Option<&'a ItemState> {
        let path = self.path.as_ref().map(|outer| format!("{outer}/{id}"));
        let path = path.as_deref().unwrap_or(id.as_str());
        let mut items = receipt?.items().iter();
        let item = items.find(|item| *item.id == *path);
        item.map(|item| &item.state)
    }
}
