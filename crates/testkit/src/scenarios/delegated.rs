//! Sessions that delegate work: to a handler at the other end of a channel, or to sub-agents.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{Agent, SubAgentBackground, SubAgents};
use allstop_core::{Cause, CauseKind, Effect, Message};
use allstop_model::{Model, ModelError, ModelRequest, ModelStream, Pause, Reply};
use allstop_session::StopTarget;
use allstop_tools::external::{ExternalEvent, ExternalOptions, ExternalRequests, external_tools};
use allstop_tools::{OutputFolder, ToolOutput, ToolSpec};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::background::promote;
use super::conversation_model::{ConversationModel, ReplyTable, answerer};
use super::sessions::{is_session_idle, is_tool};
use crate::explore::{RunStage, Scenario, ScriptedUser};

/// Maximum time that a handler waits for a request. A stop may have prevented the request.
const REQUEST_WITHIN: Duration = Duration::from_mins(1);

pub(super) fn all() -> [Scenario; 4] {
    [
        external_tool(),
        sub_agent("session/sub_agent", SubAgentPlacement::Foreground),
        sub_agent(
            "session/sub_agent_in_background",
            SubAgentPlacement::Background,
        ),
        sub_agent("session/sub_agent_promoted", SubAgentPlacement::Promoted),
    ]
}

/// Place where the work of a sub-agent runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SubAgentPlacement {
    Foreground,
    Background,
    /// First in the foreground, and then in the background.
    Promoted,
}

/// A call that is cancelled while its handler works. The handler still answers, but the answer comes too late.
fn external_tool() -> Scenario {
    Scenario::new("session/external_tool", |stage| {
        let spec = ToolSpec::new(
            "look_up",
            "looks it up",
            Arc::new(json!({"type": "object"})),
        )
        .effect(Effect::ReadOnly)
        .parallel(true);
        let (tools, requests) = external_tools(vec![spec], ExternalOptions::default());
        let requests = Mutex::new(Some(requests));
        let script = move |user: ScriptedUser| {
            let requests = requests.lock().take();
            async move {
                let requests = requests.expect("a script is played once");
                handle_late(user, requests).await;
            }
        };
        stage.session(script, move |stage, _| {
            let lines: ReplyTable = vec![(
                "look",
                vec![
                    Reply::text("I look.")
                        .call("look_up", json!({}))
                        .usage(6, 3),
                    Reply::text("It was cancelled.").usage(9, 2),
                ],
            )];
            let tools = tools.iter().map(|tool| stage.watch_tool(Arc::clone(tool)));
            stage.build(answerer(stage, lines).tools(stage.tools(tools)))
        })
    })
}

async fn handle_late(user: ScriptedUser, mut requests: ExternalRequests) {
    user.send("look");
    let handler = requests.handler();
    let Ok(Some(ExternalEvent::Call(request))) = timeout(REQUEST_WITHIN, requests.next()).await
    else {
        return;
    };
    sleep(Duration::from_millis(10)).await;
    let cause = Cause::new(CauseKind::User);
    let stopping = user
        .session()
        .stop(&StopTarget::Call(request.call_id.clone()), cause);
    stopping.receipt().await;
    let answer = ToolOutput::from("found");
    let _late = handler.answer(request.request_id, Ok(answer));
    user.until(is_session_idle).await;
}

/// An agent that delegates a part of its work to a sub-agent. The agent either waits for the sub-agent or continues.
fn sub_agent(name: &str, place: SubAgentPlacement) -> Scenario {
    Scenario::new(name, move |stage| {
        let script = move |user: ScriptedUser| async move {
            if place == SubAgentPlacement::Promoted {
                user.send("delegate");
                user.until(is_tool).await;
                promote(user.session()).await;
            } else {
                user.ask("delegate").await;
            }
            user.until(is_session_idle).await;
            user.ask("and").await;
        };
        stage.session(script, move |stage, request| {
            let background = SubAgentBackground {
                host: Arc::clone(&request.background) as _,
                output_folder: Arc::new(OutputFolder::new("/dev/null/output")),
            };
            let options = SubAgents {
                background: (place != SubAgentPlacement::Foreground).then_some(background),
                ..SubAgents::default()
            };
            let agent = stage.build(Agent::new(delegating(stage, place)));
            agent
                .with_sub_agents(options)
                .expect("it has no other tool")
        })
    })
}

fn delegating(stage: &RunStage, place: SubAgentPlacement) -> Arc<dyn Model> {
    let arguments = if place == SubAgentPlacement::Background {
        json!({"prompt": "the part", "background": true})
    } else {
        json!({"prompt": "the part"})
    };
    let part = Reply::text("Half")
        .pause(Pause::For(Duration::from_millis(40)))
        .and_text(" and half.");
    let lines: ReplyTable = vec![
        (
            "delegate",
            vec![
                Reply::text("Divided.").call("agent", arguments).usage(9, 4),
                Reply::text("And put together.").usage(14, 3),
            ],
        ),
        ("the part", vec![part.usage(5, 5)]),
    ];
    let model = ConversationModel::shared(lines);
    let watched = stage.watch_model(Arc::clone(&model));
    match place {
        SubAgentPlacement::Foreground => watched,
        SubAgentPlacement::Background | SubAgentPlacement::Promoted => {
            Arc::new(ForegroundOnlyModel { watched, model })
        }
    }
}

/// Watches all model calls except the calls of the sub-agent in the background. The excepted calls belong to no turn.
/// If these calls were watched, a checker would treat them as calls of the running turn.
#[derive(Debug)]
struct ForegroundOnlyModel {
    watched: Arc<dyn Model>,
    model: Arc<dyn Model>,
}

impl Model for ForegroundOnlyModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        let is_part = |message: &Arc<Message>| matches!(&**message, Message::User { text, .. } if &**text == "the part");
        if request.messages.iter().any(is_part) {
            self.model.stream(request)
        } else {
            self.watched.stream(request)
        }
    }
}
