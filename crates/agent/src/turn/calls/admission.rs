//! Admission of a tool call, before the call runs. First the tool and the arguments are checked. Then the hooks
//! (callbacks of the embedding program) receive the request, then the permission policy or a person decides, then the
//! hooks receive the start.

use std::sync::Arc;

use allstop_core::message::Arguments;
use allstop_core::receipt::ItemKind;
use allstop_core::record::CallOutcome;
use allstop_core::{CallId, Effect, ToolCall, call_label};
use allstop_scope::{Placement, Scope, ScopeOptions, WorkSpec};
use allstop_tools::permission::Doubt;
use allstop_tools::{
    CallLink, CallObserver, PermissionAnswer, PermissionDecision, PermissionQuestion,
    RegisteredTool, Tool, ToolError, ToolInvocation, ToolSpec,
};
use serde_json::Value;

use crate::error::{TurnError, TurnErrorKind};
use crate::event::AgentEvent;
use crate::hook::{self, HookEvent, HookResult};
use crate::outcome::Denial;
use crate::settings::RepeatUnknown;
use crate::turn::{RunningTurn, TurnInterrupt};
use crate::user_code::{self, UserCodeResult};

/// A call that may run.
pub(super) struct AdmittedCall {
    pub(super) call: ToolCall,
    pub(super) tool: Arc<dyn Tool>,
    pub(super) invocation: ToolInvocation,
}

impl AdmittedCall {
    pub(super) fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }
}

impl RunningTurn<'_> {
    /// Decides whether a call may run. `None` if the call was answered without running.
    pub(super) async fn admit(
        &mut self,
        call: ToolCall,
    ) -> Result<Option<AdmittedCall>, TurnInterrupt> {
        let (tool, arguments) = match Box::pin(self.check(&call)).await? {
            Ok(checked) => checked,
            Err(problem) => {
                self.reject(&call, problem)?;
                return Ok(None);
            }
        };
        let scope = self.scope_of(&call.id)?;
        let invocation = ToolInvocation {
            session_id: self.history.session_id().clone(),
            call_id: path_of(&scope, &call),
            name: Arc::clone(&call.name),
            arguments,
            scope,
            trace: self.trace.clone(),
            link: self.cx.controls.link(&call.id),
        };
        if let Err(reason) = self.permitted(&tool, &invocation, &call).await? {
            self.deny(&call, reason)?;
            return Ok(None);
        }
        Ok(Some(AdmittedCall {
            call,
            tool,
            invocation,
        }))
    }

    /// `Err(reason)` if the call may not run. First the hooks receive the request, then the policy or a person decides,
    /// then the hooks receive the start.
    async fn permitted(
        &self,
        tool: &Arc<dyn Tool>,
        invocation: &ToolInvocation,
        call: &ToolCall,
    ) -> Result<Result<(), String>, TurnInterrupt> {
        let has_hooks = !self.parts().hooks.is_empty();
        let mut is_allowed = false;
        if has_hooks {
            let requested = HookEvent::ToolRequested { call: call.clone() };
            match Box::pin(self.ask_hooks(requested)).await? {
                Ok(allowed) => is_allowed = allowed,
                Err(reason) => return Ok(Err(reason)),
            }
        }
        if let Some(reason) = self.denied(tool, invocation, call, is_allowed).await? {
            return Ok(Err(reason));
        }
        if !has_hooks {
            return Ok(Ok(()));
        }
        let start = HookEvent::ToolStart { call: call.clone() };
        let answer = Box::pin(self.ask_hooks(start)).await?;
        Ok(answer.map(|_allowed| ()))
    }

    /// True if a hook allows the call; `Err(reason)` if a hook denies the call, or if the call is stopped while the
    /// hooks run.
    async fn ask_hooks(&self, event: HookEvent) -> Result<Result<bool, String>, TurnInterrupt> {
        let cx = self.hook_cx(&self.work);
        match hook::call_hooks(&self.parts().hooks, &cx, &event).await {
            HookResult::Continue => Ok(Ok(false)),
            HookResult::Allowed => Ok(Ok(true)),
            HookResult::Denied(reason) => Ok(Err(reason)),
            HookResult::Stopped => self.stopped_before_its_start().map(Err),
        }
    }

    /// Returns the tool and the arguments, or the error message for the model.
    async fn check(
        &self,
        call: &ToolCall,
    ) -> Result<Result<(Arc<dyn Tool>, Arc<Value>), String>, TurnInterrupt> {
        let tools = self.parts().tools.now();
        let registered = match tools.registry.find(&call.name) {
            Ok(registered) => registered,
            Err(error) => return Ok(Err(error.message)),
        };
        let arguments = match &call.arguments {
            Arguments::Malformed(text) => return Ok(Err(self.malformed(text))),
            Arguments::Json(arguments) => arguments,
        };
        let checked = if registered.is_long_check(arguments) {
            self.check_beside_the_engine(registered, arguments).await?
        } else {
            registered.check_arguments(arguments)
        };
        Ok(match checked {
            Ok(()) => Ok((Arc::clone(registered.tool()), Arc::clone(arguments))),
            Err(error) => Err(error.message),
        })
    }

    /// Checks large arguments on the runtime of the work, so that the check delays no stop and no deadline.
    async fn check_beside_the_engine(
        &self,
        registered: &RegisteredTool,
        arguments: &Arc<Value>,
    ) -> Result<Result<(), ToolError>, TurnInterrupt> {
        let checking = {
            let (registered, arguments) = (registered.clone(), Arc::clone(arguments));
            async move { registered.check_arguments(&arguments) }
        };
        let name = "argument check";
        let checked = user_code::run(
            &self.work,
            ItemKind::Future,
            name,
            "argument_check",
            checking,
        );
        match checked.await {
            UserCodeResult::Answered(checked) => Ok(checked),
            UserCodeResult::Panicked => Ok(Err(ToolError::new(
                "the check of the arguments panicked, so the tool did not run",
            ))),
            UserCodeResult::Stopped => {
                let reason = self.stopped_before_its_start()?;
                Ok(Err(ToolError::new(format!(
                    "the call did not run: {reason}"
                ))))
            }
        }
    }

    /// Error for a call whose arguments are not JSON.
    fn malformed(&self, text: &str) -> String {
        match self.finish.cut_words() {
            Some(cut) => format!(
                "the answer {cut} before this call was complete, so the tool did not run: make it shorter, or split it"
            ),
            None => format!(
                "the arguments are not JSON, so the tool did not run: {}",
                excerpt(text)
            ),
        }
    }

    /// Opens the scope of a requested call. From then on the call can be stopped alone, at any stage.
    pub(super) fn open_call(&self, call: &ToolCall) -> Result<(), TurnInterrupt> {
        let tools = self.parts().tools.now();
        let tool = tools.registry.get(&call.name);
        let effect = tool.map_or(Effect::Irreversible, |tool| tool.spec().effect);
        let unit = WorkSpec::new(ItemKind::ToolCall, Arc::clone(&call.name))
            .id(call.id.as_str())
            .label(call_label(&call.arguments))
            .effect(effect);
        let options = ScopeOptions {
            unit: Some(unit),
            placement: Placement::Shared,
            ..ScopeOptions::default()
        };
        let label = format!("{}/call/{}", self.scope.label(), call.id);
        let scope = self.work.child(label, options).map_err(|_| {
            self.engine.acknowledge();
            TurnInterrupt::Stopped
        })?;
        let activity: Arc<dyn CallObserver> = Arc::clone(&self.activity) as _;
        let link = CallLink::new(call.id.clone(), activity);
        self.cx.controls.add_call(call.id.clone(), scope, link);
        Ok(())
    }

    fn scope_of(&self, id: &CallId) -> Result<Scope, TurnInterrupt> {
        self.cx.controls.call(id).ok_or_else(|| {
            TurnInterrupt::Failed(TurnError {
                kind: TurnErrorKind::Bug,
                message: format!("the call {id} has no scope"),
                hint: None,
            })
        })
    }

    /// `Some(reason)` if the policy or a person denies the call. `is_allowed` is true if a hook has answered in place
    /// of a person.
    async fn denied(
        &self,
        tool: &Arc<dyn Tool>,
        invocation: &ToolInvocation,
        call: &ToolCall,
        is_allowed: bool,
    ) -> Result<Option<String>, TurnInterrupt> {
        let permissions = self.parts().permissions.as_ref();
        let decide = || match permissions {
            Some(permissions) => permissions.decide(tool.spec(), invocation),
            None => PermissionDecision::Allow,
        };
        let asked = match decide() {
            PermissionDecision::Deny { reason } => return Ok(Some(reason)),
            PermissionDecision::Allow => None,
            PermissionDecision::Ask(question) => Some(*question),
        };
        let doubt = asked.as_ref().and_then(|question| question.doubt.clone());
        let repeated = self.question_of_repetition(tool, invocation, call, doubt);
        let Some(question) = repeated.or(asked) else {
            return Ok(None);
        };
        if question.doubt.is_none() && is_allowed {
            return Ok(None);
        }
        if self.parts().settings.repeat_unknown == RepeatUnknown::Deny
            && matches!(question.doubt, Some(Doubt::Repetition { .. }))
        {
            return Ok(Some(question.unanswered()));
        }
        self.cx.events.send(|| AgentEvent::PermissionAsked {
            call_id: question.call_id.clone(),
            text: question.text.clone(),
        });
        let asking = self.ask(question.clone(), tool, invocation);
        let Some(answer) = Box::pin(asking).await else {
            return self.stopped_before_its_start().map(Some);
        };
        self.cx.events.send(|| AgentEvent::PermissionAnswered {
            call_id: question.call_id.clone(),
            allowed: answer.allows(),
        });
        // The permission mode may have changed while the permission question was open. An answer cannot allow a call
        // that the mode now denies.
        if answer.allows()
            && let PermissionDecision::Deny { reason } = decide()
        {
            return Ok(Some(reason));
        }
        match answer {
            PermissionAnswer::AllowOnce => Ok(None),
            PermissionAnswer::AllowForSession => {
                if let Some(permissions) = permissions {
                    permissions.allow_for_session(&question);
                }
                Ok(None)
            }
            // Without a prompter, each question is denied.
            PermissionAnswer::Deny { reason: None } if question.doubt.is_some() => {
                Ok(Some(question.unanswered()))
            }
            PermissionAnswer::Deny { reason: None } => Ok(Some("permission was denied".to_owned())),
            PermissionAnswer::Deny {
                reason: Some(reason),
            } => Ok(Some(format!("permission was denied: {reason}"))),
            PermissionAnswer::Unanswered => Ok(Some(question.unanswered())),
        }
    }

    /// The question about a call that repeats a call of an earlier turn, whose outcome is unknown.
    fn question_of_repetition(
        &self,
        tool: &Arc<dyn Tool>,
        invocation: &ToolInvocation,
        call: &ToolCall,
        doubt: Option<Doubt>,
    ) -> Option<PermissionQuestion> {
        if self.parts().settings.repeat_unknown == RepeatUnknown::Allow {
            return None;
        }
        let before = self.draft.repeats_uncertain(call)?.to_string().into();
        Some(PermissionQuestion::of_repetition(
            tool.spec(),
            invocation,
            before,
            doubt,
        ))
    }

    /// Asks a person, and shows a preview of the call's effect in the current state. `None` if a stop came before the
    /// answer.
    async fn ask(
        &self,
        mut question: PermissionQuestion,
        tool: &Arc<dyn Tool>,
        invocation: &ToolInvocation,
    ) -> Option<PermissionAnswer> {
        let prompter = Arc::clone(&self.cx.parts.prompter);
        let (tool, mut invocation) = (Arc::clone(tool), invocation.clone());
        // This work does not run in the scope of the call, because receipts would then report the end of this work as
        // the end of the call.
        invocation.scope = self.work.child("preview", ScopeOptions::default()).ok()?;
        let asking = async move {
            if prompter.shows_questions() {
                question.preview = tool.preview(invocation).await.map(Arc::new);
            }
            prompter.ask(question).await
        };
        let name = "permission question";
        match user_code::run(
            &self.work,
            ItemKind::Permission,
            name,
            "permission_question",
            asking,
        )
        .await
        {
            UserCodeResult::Answered(answer) => Some(answer),
            UserCodeResult::Panicked => Some(PermissionAnswer::Deny {
                reason: Some("the prompter panicked".into()),
            }),
            UserCodeResult::Stopped => None,
        }
    }

    /// Handles a stop before the start of the call. A stop of the turn ends the turn; if only the call was stopped,
    /// returns the reason why the call did not run.
    fn stopped_before_its_start(&self) -> Result<String, TurnInterrupt> {
        if self.work.is_stopped() {
            self.engine.acknowledge();
            Err(TurnInterrupt::Stopped)
        } else {
            Ok("it was stopped before it ran".to_owned())
        }
    }

    fn reject(&mut self, call: &ToolCall, problem: String) -> Result<(), TurnInterrupt> {
        let at = self.now();
        self.scope_of(&call.id)?.close();
        let content: Arc<str> = problem.into();
        let records = self.draft.reject_call(&call.id, Arc::clone(&content), at)?;
        self.pending.extend(records);
        self.send_not_run(call, CallOutcome::Failed, content);
        Ok(())
    }

    fn deny(&mut self, call: &ToolCall, reason: String) -> Result<(), TurnInterrupt> {
        let at = self.now();
        self.scope_of(&call.id)?.close();
        let content: Arc<str> = format!("the call did not run: {reason}").into();
        let records = self.draft.deny_call(&call.id, Arc::clone(&content), at)?;
        self.pending.extend(records);
        self.send_not_run(call, CallOutcome::Denied, content);
        self.denials.push(Denial {
            call_id: call.id.clone(),
            tool: Arc::clone(&call.name),
            reason,
        });
        Ok(())
    }
}

/// Id of a call within its session. The id of a sub-agent's call is a path that begins with the call that runs the
/// sub-agent.
fn path_of(scope: &Scope, call: &ToolCall) -> CallId {
    scope
        .item_path()
        .map_or_else(|| call.id.clone(), CallId::new)
}

fn excerpt(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    let mut excerpt: String = text.chars().take(CHARS_MAX).collect();
    if excerpt.len() < text.len() {
        excerpt.push('…');
    }
    excerpt
}
