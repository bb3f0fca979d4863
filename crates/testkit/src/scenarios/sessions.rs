//! Sessions as people use them: messages that overlap, work in the background, and resumed sessions.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{AgentBuilder, AgentEvent};
use allstop_core::message::Arguments;
use allstop_core::record::{CallOutcome, SessionRecord, StartedCall, StartedCallKind, TurnOrigin};
use allstop_core::{Effect, Timestamp, TurnNumber};
use allstop_model::{Pause, Reply};
use allstop_session::{CompactionLimits, FollowUp, NewMessage, SessionEvent, SessionEventKind};
use allstop_tools::{PermissionAnswer, PermissionPolicy};
use serde_json::json;
use tokio::time::sleep;

use super::conversation_model::{ReplyTable, answerer};
use super::parts::listening;
use crate::explore::{RunStage, Scenario, ScriptedUser, Setup};

pub(super) fn all() -> [Scenario; 8] {
    [
        Scenario::new("session/queue", |stage| {
            talking(stage, async |user| {
                user.send("first");
                user.send("second");
                user.ask("third").await;
            })
        }),
        Scenario::new("session/interrupt_in_mid_stream", |stage| {
            talking(stage, async |user| {
                user.send("first");
                user.until(is_text).await;
                user.ask(now(FollowUp::Interrupt)).await;
            })
        }),
        Scenario::new("session/replace_in_a_tool", |stage| {
            working(stage, async |user| {
                user.send("work");
                user.until(is_tool).await;
                user.ask(now(FollowUp::Replace)).await;
            })
        }),
        Scenario::new("session/steer_between_steps", |stage| {
            working(stage, async |user| {
                user.send("work");
                user.until(is_tool).await;
                user.ask(now(FollowUp::Steer)).await;
            })
        }),
        Scenario::new("session/compaction", |stage| {
            let setup = talking(stage, async |user| {
                user.ask("a long question, or one that is taken for long")
                    .await;
                user.ask("another long question, to which there is an answer")
                    .await;
                user.ask("third").await;
            });
            setup.options(|options| {
                options.compaction = Some(CompactionLimits::default().tokens_max(20).turns_kept(1));
            })
        }),
        Scenario::new("session/question", |stage| {
            stage.session(
                async |user: ScriptedUser| {
                    user.send("work");
                    user.until(is_question).await;
                    sleep(Duration::from_millis(5)).await;
                    let session = user.session();
                    for question in session.questions() {
                        // A stop may have removed the permission question.
                        let _taken = session.answer(&question.id, PermissionAnswer::AllowOnce);
                    }
                },
                |stage, request| {
                    let prompter = stage.watch_prompter(Arc::clone(&request.prompter));
                    let asks = Arc::new(PermissionPolicy::default());
                    stage.build(worker(stage).permissions(asks, prompter))
                },
            )
        }),
        Scenario::new("session/sleep_and_wake", |stage| {
            let setup = talking(stage, async |user| {
                user.ask("first").await;
                sleep(Duration::from_secs(1)).await;
                user.ask("second").await;
            });
            setup.options(|options| options.sleep_after = Some(Duration::from_millis(30)))
        }),
        Scenario::new("session/resumed_after_a_crash", |stage| {
            let setup = talking(stage, async |user| {
                user.ask("second").await;
            });
            setup.earlier_records(crashed())
        }),
    ]
}

fn now(policy: FollowUp) -> NewMessage {
    NewMessage::from("now this").policy(policy)
}

fn is_text(event: &SessionEvent) -> bool {
    matches!(
        event.kind,
        SessionEventKind::Live(AgentEvent::TextDelta { .. })
    )
}

pub(super) fn is_tool(event: &SessionEvent) -> bool {
    matches!(
        event.kind,
        SessionEventKind::Live(AgentEvent::ToolStarted { .. })
    )
}

fn is_question(event: &SessionEvent) -> bool {
    matches!(event.kind, SessionEventKind::PermissionAsked(_))
}

pub(super) fn is_session_idle(event: &SessionEvent) -> bool {
    matches!(event.kind, SessionEventKind::SessionIdle { .. })
}

/// A session whose agent has no tools.
fn talking<F>(stage: &RunStage, script: impl Fn(ScriptedUser) -> F + Send + Sync + 'static) -> Setup
where
    F: Future<Output = ()> + Send + 'static,
{
    stage.session(script, |stage, _| {
        let first = Reply::text("One").pause(Pause::For(Duration::from_millis(20)));
        let lines: ReplyTable = vec![("first", vec![first.and_text(" and more.").usage(5, 4)])];
        stage.build(answerer(stage, lines))
    })
}

/// A session with a tool that takes a while.
fn working<F>(stage: &RunStage, script: impl Fn(ScriptedUser) -> F + Send + Sync + 'static) -> Setup
where
    F: Future<Output = ()> + Send + 'static,
{
    stage.session(script, |stage, _| stage.build(worker(stage)))
}

fn worker(stage: &RunStage) -> AgentBuilder {
    let lines: ReplyTable = vec![(
        "work",
        vec![
            Reply::text("I work.").call("work", json!({})).usage(8, 4),
            Reply::text("It is done.").usage(12, 2),
        ],
    )];
    let work = listening("work", Duration::from_millis(20), "worked");
    answerer(stage, lines).tools(stage.tools([stage.tool(work)]))
}

/// The records of a process that was killed during a tool call.
fn crashed() -> Vec<SessionRecord> {
    let (turn, at) = (TurnNumber(1), Timestamp::from_unix_ms(0));
    let call = |id: &str, name: &str, kind| SessionRecord::CallStarted {
        turn,
        at,
        call: StartedCall {
            id: id.into(),
            name: name.into(),
            kind,
        },
    };
    let tool = StartedCallKind::Tool {
        arguments: Arguments::Json(Arc::new(json!({}))),
        effect: Effect::Irreversible,
    };
    let reserved_tokens = 0;
    vec![
        SessionRecord::TurnStarted {
            turn,
            at,
            input: "first".into(),
            images: Vec::new(),
            owner: None,
            message: Some("m_0".into()),
            origin: TurnOrigin::User,
            reported: Vec::new(),
        },
        call("step_1", "talk", StartedCallKind::Model { reserved_tokens }),
        SessionRecord::CallFinished {
            turn,
            id: "step_1".into(),
            outcome: CallOutcome::Succeeded,
            usage: None,
            finish: None,
            exit_code: None,
            result: None,
        },
        call("call_1_1", "work", tool),
    ]
}
