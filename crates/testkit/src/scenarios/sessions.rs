//! Sessions as people use them: messages on top of each other, work in the background, and what they come back to.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{Agent, AgentEvent};
use allstop_core::message::Arguments;
use allstop_core::record::{CallOutcome, SessionRecord, StartedCall, StartedCallKind, TurnOrigin};
use allstop_core::{Effect, Timestamp, TurnNumber};
use allstop_model::{Pause, Reply};
use allstop_session::{
    Compaction, FollowUp, NewMessage, OnBackgroundEnd, Session, SessionEvent, SessionEventKind,
};
use allstop_tools::{Answer, PermissionPolicy};
use serde_json::json;
use tokio::time::sleep;

use super::elsewhere;
use super::talk::{Lines, TalkModel};
use crate::explore::{Scenario, Setup, Stage, Talk};
use crate::{Behaviour, ToolFn};

/// How long a user waits for everything: longer than anything takes that ends.
const PATIENCE: Duration = Duration::from_mins(1);

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario::new("session/queue", |stage| {
            talking(stage, async |talk| {
                talk.send("first");
                talk.send("second");
                talk.ask("third").await;
            })
        }),
        Scenario::new("session/interrupt_in_mid_stream", |stage| {
            talking(stage, async |talk| {
                talk.send("first");
                talk.until(is_text).await;
                talk.ask(now(FollowUp::Interrupt)).await;
            })
        }),
        Scenario::new("session/replace_in_a_tool", |stage| {
            working(stage, async |talk| {
                talk.send("work");
                talk.until(is_tool).await;
                talk.ask(now(FollowUp::Replace)).await;
            })
        }),
        Scenario::new("session/steer_between_steps", |stage| {
            working(stage, async |talk| {
                talk.send("work");
                talk.until(is_tool).await;
                talk.ask(now(FollowUp::Steer)).await;
            })
        }),
        Scenario::new("session/background_note", |stage| {
            shelling(stage, async |talk| {
                talk.ask("build behind").await;
                talk.until(is_session_idle).await;
                talk.ask("what came of it").await;
            })
        }),
        Scenario::new("session/background_wake", |stage| {
            let setup = shelling(stage, async |talk| {
                talk.ask("build behind").await;
                talk.until(is_woken).await;
            });
            setup.options(|options| options.on_background_end = OnBackgroundEnd::Wake)
        }),
        Scenario::new("session/background_outlives_turns", |stage| {
            shelling(stage, async |talk| {
                talk.ask("serve").await;
                talk.ask("second").await;
                talk.send_and_wait("third", PATIENCE).await;
            })
        }),
        Scenario::new("session/wait_for_background", |stage| {
            shelling(stage, async |talk| {
                talk.send_and_wait("build behind", PATIENCE).await;
            })
        }),
        Scenario::new("session/promote", |stage| {
            shelling(stage, async |talk| {
                talk.send("build in front");
                talk.until(is_tool).await;
                promote(talk.session());
                talk.ask("and now").await;
                talk.until(is_session_idle).await;
            })
        }),
        Scenario::new("session/compaction", |stage| {
            let setup = talking(stage, async |talk| {
                talk.ask("a long question, or one that is taken for long")
                    .await;
                talk.ask("another long question, to which there is an answer")
                    .await;
                talk.ask("third").await;
            });
            setup.options(|options| {
                options.compaction = Some(Compaction {
                    tokens_max: 20,
                    turns_kept: 1,
                });
            })
        }),
        Scenario::new("session/question", |stage| {
            stage.session(
                async |talk: Talk| {
                    talk.send("work");
                    talk.until(is_question).await;
                    sleep(Duration::from_millis(5)).await;
                    let session = talk.session();
                    for question in session.questions() {
                        // A stop may have taken it away.
                        let _taken = session.answer(&question.id, Answer::AllowOnce);
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
            let setup = talking(stage, async |talk| {
                talk.ask("first").await;
                sleep(Duration::from_secs(1)).await;
                talk.ask("second").await;
            });
            setup.options(|options| options.sleep_after = Some(Duration::from_millis(30)))
        }),
        Scenario::new("session/resumed_after_a_crash", |stage| {
            let setup = talking(stage, async |talk| {
                talk.ask("second").await;
            });
            setup.left_behind(crashed())
        }),
        elsewhere::external_tool(),
        elsewhere::sub_agent("session/sub_agent", false),
        elsewhere::sub_agent("session/sub_agent_behind", true),
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

fn is_tool(event: &SessionEvent) -> bool {
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

/// A turn that background work caused has ended.
fn is_woken(event: &SessionEvent) -> bool {
    let is_end = matches!(event.kind, SessionEventKind::AssistantIdle { .. });
    is_end && event.message.is_none()
}

/// Sends whatever runs to the background.
fn promote(session: &Session) {
    for call in session.running_calls() {
        // It may have ended.
        let _ = session.promote(&call);
    }
}

/// A session that only talks.
fn talking<F>(stage: &Stage, script: impl Fn(Talk) -> F + Send + Sync + 'static) -> Setup
where
    F: Future<Output = ()> + Send + 'static,
{
    stage.session(script, |stage, _| {
        let first = Reply::text("One").pause(Pause::For(Duration::from_millis(20)));
        let lines: Lines = vec![("first", vec![first.and_text(" and more.").usage(5, 4)])];
        stage.build(Agent::builder(stage.watch_model(TalkModel::new(lines))))
    })
}

/// A session with a tool that takes a while.
fn working<F>(stage: &Stage, script: impl Fn(Talk) -> F + Send + Sync + 'static) -> Setup
where
    F: Future<Output = ()> + Send + 'static,
{
    stage.session(script, |stage, _| stage.build(worker(stage)))
}

fn worker(stage: &Stage) -> allstop_agent::AgentBuilder {
    let work = ToolFn::new("work", |call| async move {
        tokio::select! {
            biased;
            cause = call.scope.stopped_at("working") => format!("stopped: {cause}"),
            () = sleep(Duration::from_millis(20)) => "worked".to_owned(),
        }
    });
    let lines: Lines = vec![(
        "work",
        vec![
            Reply::text("I work.").call("work", json!({})).usage(8, 4),
            Reply::text("It is done.").usage(12, 2),
        ],
    )];
    let agent = Agent::builder(stage.watch_model(TalkModel::new(lines)));
    agent.tools(stage.tools([stage.tool(work)]))
}

/// A session with a shell.
fn shelling<F>(stage: &Stage, script: impl Fn(Talk) -> F + Send + Sync + 'static) -> Setup
where
    F: Future<Output = ()> + Send + 'static,
{
    let make = Behaviour {
        prints: vec![(Duration::from_millis(5), "compiling\n".to_owned())],
        exits: Some((Duration::from_millis(300), 0)),
        term_takes: Some(Duration::from_millis(4)),
        ..Behaviour::default()
    };
    stage.system().program("make", make);
    let server = Behaviour::server("listening\n");
    stage.system().program("npm run dev", server);
    stage.session(script, |stage, request| {
        let shell = |arguments| Reply::text("").call("shell", arguments).usage(4, 4);
        let lines: Lines = vec![
            (
                "build behind",
                vec![
                    shell(json!({"command": "make", "background": true})),
                    Reply::text("It builds."),
                ],
            ),
            (
                "build in front",
                vec![shell(json!({"command": "make"})), Reply::text("It builds.")],
            ),
            (
                "serve",
                vec![
                    shell(json!({"command": "npm run dev", "background": true})),
                    Reply::text("It serves."),
                ],
            ),
        ];
        let agent = Agent::builder(stage.watch_model(TalkModel::new(lines)));
        stage.build(agent.tools(stage.tools([stage.shell_of(&request.background)])))
    })
}

/// What a process leaves that was killed in the middle of a tool's call.
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
            owner: None,
            message: Some("m_0".into()),
            origin: TurnOrigin::User,
            told: Vec::new(),
        },
        call("step_1", "talk", StartedCallKind::Model { reserved_tokens }),
        SessionRecord::CallFinished {
            turn,
            id: "step_1".into(),
            outcome: CallOutcome::Succeeded,
            usage: None,
        },
        call("call_1_1", "work", tool),
    ]
}
