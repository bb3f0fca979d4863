//! Sessions with a shell whose commands outlive their turns.

use std::time::Duration;

use allstop_model::Reply;
use allstop_session::{OnBackgroundEnd, Session, SessionEvent, SessionEventKind};
use serde_json::json;
use tokio::time::sleep;

use super::conversation_model::{ReplyTable, answerer};
use super::sessions::{is_session_idle, is_tool};
use crate::Behaviour;
use crate::explore::{RunStage, Scenario, ScriptedUser, Setup};

/// Maximum time that a user waits: longer than all work that ends by itself.
const PATIENCE: Duration = Duration::from_mins(1);

pub(super) fn all() -> [Scenario; 5] {
    [
        Scenario::new("session/background_note", |stage| {
            shelling(stage, async |user| {
                user.ask("build behind").await;
                user.until(is_session_idle).await;
                user.ask("what came of it").await;
            })
        }),
        Scenario::new("session/background_wake", |stage| {
            let setup = shelling(stage, async |user| {
                user.ask("build behind").await;
                user.until(is_woken).await;
            });
            setup.options(|options| options.on_background_end = OnBackgroundEnd::Wake)
        }),
        Scenario::new("session/background_outlives_turns", |stage| {
            shelling(stage, async |user| {
                user.ask("serve").await;
                user.ask("second").await;
                user.send_and_wait("third", PATIENCE).await;
            })
        }),
        Scenario::new("session/wait_for_background", |stage| {
            shelling(stage, async |user| {
                user.send_and_wait("build behind", PATIENCE).await;
            })
        }),
        Scenario::new("session/promote", |stage| {
            shelling(stage, async |user| {
                user.send("build in front");
                user.until(is_tool).await;
                promote(user.session()).await;
                user.ask("and now").await;
                user.until(is_session_idle).await;
            })
        }),
    ]
}

/// True if this event ends a turn that background work started.
fn is_woken(event: &SessionEvent) -> bool {
    let is_end = matches!(event.kind, SessionEventKind::AssistantIdle { .. });
    is_end && event.message.is_none()
}

/// Moves all running calls to the background, as soon as the calls have begun and accept the request.
pub(super) async fn promote(session: &Session) {
    sleep(Duration::from_millis(5)).await;
    for call in session.running_calls() {
        // The call may have ended before this request.
        let _ = session.promote(&call);
    }
}

/// A session with a shell.
fn shelling<F>(
    stage: &RunStage,
    script: impl Fn(ScriptedUser) -> F + Send + Sync + 'static,
) -> Setup
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
        let behind = |command| shell(json!({"command": command, "background": true}));
        let make = shell(json!({"command": "make"}));
        let lines: ReplyTable = vec![
            (
                "build behind",
                vec![behind("make"), Reply::text("It builds.")],
            ),
            ("build in front", vec![make, Reply::text("It builds.")]),
            (
                "serve",
                vec![behind("npm run dev"), Reply::text("It serves.")],
            ),
        ];
        let tools = stage.tools([stage.shell_of(&request.background)]);
        stage.build(answerer(stage, lines).tools(tools))
    })
}
