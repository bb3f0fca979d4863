//! Admission of a tool call, before the call runs. First the tool and the arguments are checked. Then the hooks
//! (callbacks of the embedding program) receive the request, then the permission policy or a person decides, then the
//! hooks receive the start. All calls of a step are admitted at the same time.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use allstop_core::message::{Arguments, DENIED};
use allstop_core::receipt::ItemKind;
use allstop_core::record::CallOutcome;
use allstop_core::{CallId, Effect, FinishReason, ToolCall, call_label};
use allstop_scope::{Placement, Scope, ScopeOptions, WorkSpec};
use allstop_tools::permission::Doubt;
use allstop_tools::{
    CallLink, CallObserver, Denial, McpMeta, PermissionAnswer, PermissionDecision,
    PermissionQuestion, RegisteredTool, Tool, ToolError, ToolInvocation, ToolSpec,
};
use futures::FutureExt as _;
use serde_json::Value;

use crate::error::{TurnError, TurnErrorKind};
use crate::event::AgentEvent;
use crate::hook::{HookCx, HookEvent};
use crate::hook_calls::{self, HookResult};
use crate::settings::RepeatUnknown;
use crate::toolbox::Tools;
use crate::turn::{RunningTurn, TurnCx, TurnInterrupt};
use crate::user_code::{self, UserCodeResult};

use super::question_order::QuestionOrder;

/// A call that may run.
pub(super) struct AdmittedCall {
    /// Position of the call in its step.
    pub(super) position: usize,
    pub(super) call: ToolCall,
    pub(super) tool: Arc<dyn Tool>,
    pub(super) invocation: ToolInvocation,
}

impl AdmittedCall {
    pub(super) fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }
}

/// Reason why a call does not run.
pub(super) enum NotAdmitted {
    /// The tool or the arguments are invalid.
    Rejected(String),
    /// A hook, the policy or a person denies the call, or the call was stopped alone.
    Denied(String),
    /// A stop covers the turn.
    TurnStopped,
}

/// A call with the decision whether it may run.
pub(super) struct DecidedCall {
    pub(super) position: usize,
    pub(super) decision: Result<AdmittedCall, (ToolCall, NotAdmitted)>,
}

/// Admission of one call. Holds no reference to the running turn, so that the calls of a step are admitted together,
/// while other calls of the step already run.
pub(super) struct CallAdmission<'a> {
    cx: TurnCx<'a>,
    /// Tools of the step.
    tools: Arc<Tools>,
    /// Scope of the work of the step. Hooks and questions run there.
    work: Scope,
    hook_cx: HookCx,
    /// Reason why the model ended the answer with the call.
    finish: FinishReason,
    /// Description of the uncertain call of an earlier turn that the call repeats.
    repeated: Option<Arc<str>>,
    questions: QuestionOrder,
    position: usize,
    call: ToolCall,
    invocation: ToolInvocation,
}

impl<'a> RunningTurn<'a> {
    /// Prepares the admission of the call at this position of the step.
    pub(super) fn admission(
        &self,
        position: usize,
        call: ToolCall,
        tools: &Arc<Tools>,
        questions: &QuestionOrder,
    ) -> Result<CallAdmission<'a>, TurnInterrupt> {
        let scope = self.scope_of(&call.id)?;
        let repeat_unknown = self.parts().settings.repeat_unknown;
        let repeated = (repeat_unknown != RepeatUnknown::Allow)
            .then(|| {
                let own = self.draft.repeats_uncertain(&call);
                own.or_else(|| self.cx.controls.repeats_uncertain(&call))
            })
            .flatten();
        let invocation = ToolInvocation {
            session_id: self.history.session_id().clone(),
            call_id: path_of(&scope, &call),
            name: Arc::clone(&call.name),
            arguments: Arc::default(),
            scope,
            trace: self.trace.clone(),
            link: self.cx.controls.link(&call.id),
            mcp_meta: McpMeta::default(),
        };
        Ok(CallAdmission {
            cx: self.cx,
            tools: Arc::clone(tools),
            work: self.work.clone(),
            hook_cx: self.hook_cx(&self.work),
            finish: self.finish,
            repeated: repeated.map(|before| before.to_string().into()),
            questions: questions.clone(),
            position,
            call,
            invocation,
        })
    }
}

impl CallAdmission<'_> {
    /// Decides whether the call may run.
    ///
    /// # Cancel safety
    /// Dropping this future does not end a question, because the scope of the step owns the question.
    pub(super) async fn decide(mut self) -> DecidedCall {
        let decided = match self.checked().await {
            Ok(tool) => self.permitted(&tool).await.map(|()| tool),
            Err(not) => Err(not),
        };
        let Self {
            position,
            call,
            invocation,
            ..
        } = self;
        let decision = match decided {
            Ok(tool) => Ok(AdmittedCall {
                position,
                call,
                tool,
                invocation,
            }),
            Err(not) => Err((call, not)),
        };
        DecidedCall { position, decision }
    }

    /// First the hooks receive the request, then the policy or a person decides, then the hooks receive the start.
    async fn permitted(&self, tool: &Arc<dyn Tool>) -> Result<(), NotAdmitted> {
        let has_hooks = !self.cx.parts.hooks.is_empty();
        let mut is_allowed = false;
        if has_hooks {
            let call = self.call.clone();
            is_allowed = Box::pin(self.ask_hooks(HookEvent::ToolRequested { call })).await?;
        }
        self.permission(tool, is_allowed).await?;
        if has_hooks {
            let call = self.call.clone();
            Box::pin(self.ask_hooks(HookEvent::ToolStart { call })).await?;
        }
        Ok(())
    }

    /// Returns true if a hook allows the call.
    async fn ask_hooks(&self, event: HookEvent) -> Result<bool, NotAdmitted> {
        match hook_calls::call_hooks(self.cx.parts, &self.hook_cx, &event).await {
            HookResult::Continue | HookResult::Changed(_) => Ok(false),
            HookResult::Allowed => Ok(true),
            HookResult::Denied(reason) => Err(NotAdmitted::Denied(reason)),
            HookResult::Stopped => Err(self.stopped()),
        }
    }

    /// Returns the tool, and keeps the arguments for it; or refuses the call with the error message for the model.
    async fn checked(&mut self) -> Result<Arc<dyn Tool>, NotAdmitted> {
        let rejected = |error: ToolError| NotAdmitted::Rejected(error.message);
        let registered = self.tools.registry.find(&self.call.name);
        let registered = registered.map_err(rejected)?;
        let arguments = match &self.call.arguments {
            Arguments::Malformed(text) => {
                return Err(NotAdmitted::Rejected(malformed(self.finish, text)));
            }
            Arguments::Json(arguments) => arguments,
        };
        if registered.is_long_check(arguments) {
            Box::pin(self.check_beside_the_engine(registered, arguments)).await?;
        } else {
            registered.check_arguments(arguments).map_err(rejected)?;
        }
        let (tool, arguments) = (Arc::clone(registered.tool()), Arc::clone(arguments));
        self.invocation.arguments = arguments;
        Ok(tool)
    }

    /// Checks large arguments on the runtime of the work, so that the check delays no stop and no deadline.
    async fn check_beside_the_engine(
        &self,
        registered: &RegisteredTool,
        arguments: &Arc<Value>,
    ) -> Result<(), NotAdmitted> {
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
            UserCodeResult::Answered(checked) => {
                checked.map_err(|error| NotAdmitted::Rejected(error.message))
            }
            UserCodeResult::Panicked => Err(NotAdmitted::Rejected(
                "the check of the arguments panicked, so the tool did not run".to_owned(),
            )),
            UserCodeResult::Stopped => Err(self.stopped()),
        }
    }

    /// Applies the policy, or asks a person. `is_allowed` is true if a hook has answered in place of a person.
    async fn permission(&self, tool: &Arc<dyn Tool>, is_allowed: bool) -> Result<(), NotAdmitted> {
        let denied = |reason: String| Err(NotAdmitted::Denied(reason));
        let permissions = self.cx.parts.permissions.as_ref();
        let decide = || match permissions {
            Some(permissions) => permissions.decide(tool.spec(), &self.invocation),
            None => PermissionDecision::Allow,
        };
        let asked = match decide() {
            PermissionDecision::Deny { reason } => return denied(reason),
            PermissionDecision::Allow => None,
            PermissionDecision::Ask(question) => Some(*question),
        };
        let doubt = asked.as_ref().and_then(|question| question.doubt.clone());
        let repeated = self.question_of_repetition(tool, doubt);
        let Some(question) = repeated.or(asked) else {
            return Ok(());
        };
        if question.doubt.is_none() && is_allowed {
            return Ok(());
        }
        if self.cx.parts.settings.repeat_unknown == RepeatUnknown::Deny
            && matches!(question.doubt, Some(Doubt::Repetition { .. }))
        {
            return denied(question.unanswered());
        }
        let waiting = self.invocation.scope.wait_for_permission();
        let asking = self.ask(question.clone(), tool);
        let Some(answer) = Box::pin(asking).await else {
            return Err(self.stopped());
        };
        drop(waiting);
        self.cx.events.send(|| AgentEvent::PermissionAnswered {
            call_id: question.call_id.clone(),
            allowed: answer.allows(),
        });
        // The permission mode may have changed while the permission question was open. An answer cannot allow a call
        // that the mode now denies.
        if answer.allows()
            && let PermissionDecision::Deny { reason } = decide()
        {
            return denied(reason);
        }
        match answer {
            PermissionAnswer::AllowOnce => Ok(()),
            PermissionAnswer::AllowForSession => {
                if let Some(permissions) = permissions {
                    permissions.allow_for_session(&question);
                }
                Ok(())
            }
            // Without a prompter, each question is denied.
            PermissionAnswer::Deny { reason: None } if question.doubt.is_some() => {
                denied(question.unanswered())
            }
            PermissionAnswer::Deny { reason } => denied(self.denial_text(reason.as_deref())),
            PermissionAnswer::Unanswered => {
                let texts = self.cx.parts.settings.call_texts.as_ref();
                let text = texts.filter(|_| question.doubt.is_none());
                denied(text.map_or_else(
                    || question.unanswered(),
                    |texts| texts.unanswered.to_string(),
                ))
            }
        }
    }

    /// Text for the model about a call that a person has denied.
    fn denial_text(&self, reason: Option<&str>) -> String {
        let own = self.cx.parts.settings.call_texts.as_ref();
        match (own, reason) {
            (Some(texts), None) => texts.denied.to_string(),
            (Some(texts), Some(reason)) => format!("{} {reason}", texts.denied),
            (None, None) => "permission was denied".to_owned(),
            (None, Some(reason)) => format!("permission was denied: {reason}"),
        }
    }

    /// The question about a call that repeats a call of an earlier turn, whose outcome is unknown.
    fn question_of_repetition(
        &self,
        tool: &Arc<dyn Tool>,
        doubt: Option<Doubt>,
    ) -> Option<PermissionQuestion> {
        let before = Arc::clone(self.repeated.as_ref()?);
        Some(PermissionQuestion::of_repetition(
            tool.spec(),
            &self.invocation,
            before,
            doubt,
        ))
    }

    /// Asks a person, and shows a preview of the call's effect in the current state. An answer to the question of
    /// another call may also allow this call, which withdraws the question. `None` if a stop came before the answer.
    async fn ask(
        &self,
        mut question: PermissionQuestion,
        tool: &Arc<dyn Tool>,
    ) -> Option<PermissionAnswer> {
        let place = self.questions.take_place(self.position);
        let (parts, events) = (Arc::clone(self.cx.parts), self.cx.events.clone());
        let (tool, mut invocation) = (Arc::clone(tool), self.invocation.clone());
        let of_call = invocation.scope.clone();
        // This work does not run in the scope of the call, because receipts would then report the end of this work as
        // the end of the call.
        invocation.scope = self.work.child("preview", ScopeOptions::default()).ok()?;
        let asking = async move {
            let asked = question.clone();
            let granted = async {
                match &parts.permissions {
                    Some(permissions) => permissions.granted(&asked).await,
                    None => std::future::pending().await,
                }
            };
            let answered = async {
                if parts.prompter.shows_questions() {
                    question.preview = tool.preview(invocation).await.map(Arc::new);
                }
                place.is_next().await;
                events.send(|| AgentEvent::PermissionAsked {
                    call_id: question.call_id.clone(),
                    text: question.text.clone(),
                });
                // The event may have led to a stop, and no question begins after a stop.
                if of_call.is_stopped() {
                    return std::future::pending().await;
                }
                let mut answer = parts.prompter.ask(question);
                // The first poll asks the question. The next question follows only then.
                let at_once = poll_fn(|cx| Poll::Ready(answer.poll_unpin(cx))).await;
                drop(place);
                match at_once {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => answer.await,
                }
            };
            tokio::select! {
                biased;
                () = of_call.stopped() => None,
                answer = answered => Some(answer),
                () = granted => Some(PermissionAnswer::AllowOnce),
            }
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
            UserCodeResult::Answered(answer) => answer,
            UserCodeResult::Panicked => Some(PermissionAnswer::Deny {
                reason: Some("the prompter panicked".into()),
            }),
            UserCodeResult::Stopped => None,
        }
    }

    /// Handles a stop before the start of the call: a stop of the turn, or of this call alone.
    fn stopped(&self) -> NotAdmitted {
        if self.work.is_stopped() {
            NotAdmitted::TurnStopped
        } else {
            NotAdmitted::Denied("it was stopped before it ran".to_owned())
        }
    }
}

impl RunningTurn<'_> {
    /// Opens the scope of a requested call. From then on the call can be stopped alone, at any stage.
    pub(super) fn open_call(&self, call: &ToolCall, tools: &Tools) -> Result<(), TurnInterrupt> {
        let tool = tools.registry.get(&call.name);
        let effect = tool.map_or(Effect::Irreversible, |tool| tool.spec().effect);
        let unit = WorkSpec::new(ItemKind::ToolCall, Arc::clone(&call.name))
            .id(call.id.as_str())
            .label(call_label(&call.arguments))
            .effect(effect);
        let options = ScopeOptions::default()
            .unit(unit)
            .placement(Placement::Shared);
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

    /// Answers a call that does not run.
    pub(super) fn answer_unrun(
        &mut self,
        call: &ToolCall,
        reason: NotAdmitted,
    ) -> Result<(), TurnInterrupt> {
        match reason {
            NotAdmitted::Rejected(problem) => self.reject(call, problem),
            NotAdmitted::Denied(reason) => self.deny(call, reason),
            NotAdmitted::TurnStopped => {
                self.engine.acknowledge();
                Err(TurnInterrupt::Stopped)
            }
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
        let scope = self.scope_of(&call.id)?;
        let path = path_of(&scope, call);
        scope.close();
        let content: Arc<str> = format!("{DENIED}{reason}").into();
        let records = self.draft.deny_call(&call.id, Arc::clone(&content), at)?;
        self.pending.extend(records);
        self.send_not_run(call, CallOutcome::Denied, content);
        let denial = Denial {
            call_id: path,
            tool: Arc::clone(&call.name),
            reason,
        };
        self.cx.controls.report_denial(&denial);
        self.denials.push(denial);
        Ok(())
    }
}

/// Error for a call whose arguments are not JSON.
fn malformed(finish: FinishReason, text: &str) -> String {
    match finish.cut_words() {
        Some(cut) => format!(
            "the answer {cut} before this call was complete, so the tool did not run: make it shorter, or split it"
        ),
        None => format!(
            "the arguments are not JSON, so the tool did not run: {}",
            excerpt(text)
        ),
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
