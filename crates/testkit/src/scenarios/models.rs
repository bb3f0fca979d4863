//! Models that fail, and answers that are wrong.

use std::time::Duration;

use allstop_agent::{Agent, Deadlines, Settings};
use allstop_model::{ModelError, ModelErrorKind, Pause, Reply};
use serde_json::json;

use crate::ToolFn;
use crate::explore::Scenario;

pub(super) fn all() -> [Scenario; 4] {
    [
        Scenario::new("retries", |stage| {
            let busy = ModelError::new(ModelErrorKind::Unavailable, "overloaded");
            let model = stage.model(vec![
                Reply::text("At last.").usage(5, 2).failing_first(2, busy),
            ]);
            stage.agent(Agent::builder(model), "Are you there?")
        }),
        Scenario::new("provider_fails", |stage| {
            let model = stage.model(vec![
                Reply::text("I look.").call("look", json!({})).usage(5, 9),
                Reply::text("Half of an").usage(7, 3).disconnect(),
            ]);
            let look = ToolFn::new("look", |_| async { "seen".to_owned() });
            let agent = Agent::builder(model).tools(stage.tools([stage.tool(look)]));
            stage.agent(agent, "Look.")
        }),
        Scenario::new("provider_times_out", |stage| {
            let model = stage.model(vec![Reply::text("Wait").pause(Pause::Forever)]);
            let settings = Settings {
                deadlines: Deadlines {
                    between_tokens: Some(Duration::from_secs(5)),
                    ..Deadlines::default()
                },
                ..Settings::default()
            };
            stage.agent(Agent::builder(model).settings(settings), "Go on.")
        }),
        Scenario::new("malformed_arguments", |stage| {
            let model = stage.model(vec![
                Reply::text("")
                    .malformed_call("write", r#"{"path": "/etc"#)
                    .call("unknown", json!({}))
                    .call("write", json!({"path": "a"})),
                Reply::text("Written."),
            ]);
            let write = ToolFn::new(
                "write",
                |call| async move { call.arguments["path"].to_string() },
            );
            let agent = Agent::builder(model).tools(stage.tools([stage.tool(write)]));
            stage.agent(agent, "Write.")
        }),
    ]
}
