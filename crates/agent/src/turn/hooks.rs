//! Calls of the hooks (callbacks of the embedding program) during a turn, and the changes that they request.

use std::sync::Arc;

use allstop_core::record::TurnOrigin;
use allstop_core::turn::TurnStart;
use allstop_core::{Images, MessageId};
use allstop_scope::Scope;

use super::{RunningTurn, TurnInterrupt};
use crate::error::{TurnError, TurnErrorKind};
use crate::hook::{HookCx, HookEvent, PROLONGATIONS_MAX};
use crate::hook_calls::{self, HookResult};

impl RunningTurn<'_> {
    pub(super) fn hook_cx(&self, scope: &Scope) -> HookCx {
        HookCx {
            session_id: self.history.session_id().clone(),
            turn: self.draft.state().number(),
            scope: scope.clone(),
        }
    }

    /// Calls the hooks; a denial ends the turn. Returns the change that the hooks request, if there is one.
    pub(super) async fn call_hooks_or_fail(
        &self,
        event: HookEvent,
    ) -> Result<Option<Arc<str>>, TurnInterrupt> {
        if self.parts().hooks.is_empty() {
            return Ok(None);
        }
        let hook_cx = self.hook_cx(&self.work);
        match Box::pin(hook_calls::call_hooks(self.parts(), &hook_cx, &event)).await {
            HookResult::Continue | HookResult::Allowed => Ok(None),
            HookResult::Changed(text) => Ok(Some(text)),
            HookResult::Denied(message) => Err(TurnInterrupt::Failed(TurnError {
                kind: TurnErrorKind::Hook,
                message,
                hint: None,
            })),
            HookResult::Stopped => {
                self.engine.acknowledge();
                Err(TurnInterrupt::Stopped)
            }
        }
    }

    /// Calls the hooks at the start of the turn. Returns the message of the user, which the hooks may replace.
    pub(super) async fn call_start_hooks(
        &mut self,
        start: &TurnStart,
    ) -> Result<Arc<str>, TurnInterrupt> {
        let event = HookEvent::TurnStart {
            input: Arc::clone(&start.input),
        };
        let replaced = self.call_hooks_or_fail(event).await?;
        // A turn of another origin has no message of the user.
        let Some(input) = replaced.filter(|_| start.origin == TurnOrigin::User) else {
            return Ok(Arc::clone(&start.input));
        };
        let start = TurnStart {
            input: Arc::clone(&input),
            ..start.clone()
        };
        self.draft.replace_start(&start);
        // The record of the start was not written yet: the first step writes this record.
        self.pending = vec![start.record()];
        Ok(input)
    }

    /// Calls the hooks before a final answer ends the turn. Returns true if a hook prolongs the turn.
    pub(super) async fn prolong(&mut self, text: &Arc<str>) -> Result<bool, TurnInterrupt> {
        let event = HookEvent::FinalAnswer {
            text: Arc::clone(text),
            prolonged: self.prolonged,
        };
        let message = self.call_hooks_or_fail(event).await?;
        let Some(message) = message.filter(|_| self.prolonged < PROLONGATIONS_MAX) else {
            return Ok(false);
        };
        self.prolonged += 1;
        let turn = self.draft.state().number();
        let id = MessageId::new(format!("turn_{turn}_prolonged_{}", self.prolonged));
        let at = self.now();
        let record = self.draft.steer(id, message, Images::default(), at)?;
        self.pending.push(record);
        Ok(true)
    }
}
