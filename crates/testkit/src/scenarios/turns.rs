//! Turns as most are: answers, tools side by side, several turns.

use std::time::Duration;

use allstop_agent::{Agent, Settings};
use allstop_core::turn::StopPolicy;
use allstop_model::Reply;
use serde_json::json;
use tokio::time::sleep;

use crate::ToolFn;
use crate::explore::Scenario;

pub(super) fn all() -> [Scenario; 3] {
    [
        Scenario::new("streaming", |stage| {
            let reply = Reply::text("Once")
                .and_reasoning("hm")
                .and_text(" upon a time.");
            let model = stage.model(vec![reply.usage(12, 34)]);
            stage.agent(Agent::builder(model), "Tell me a story.")
        }),
        parallel_tools("parallel_tools", StopPolicy::Rollback),
        parallel_tools("parallel_tools_kept", StopPolicy::Keep),
    ]
}

/// Two tools side by side: one hears a stop, the other does not and takes a while. Then one alone, and an answer.
fn parallel_tools(name: &str, stop_policy: StopPolicy) -> Scenario {
    Scenario::new(name, move |stage| {
        let model = stage.model(vec![
            Reply::text("I look.")
                .call("listens", json!({}))
                .call("deaf", json!({}))
                .usage(10, 20),
            Reply::text("And again.")
                .call("alone", json!({}))
                .usage(30, 5),
            Reply::text("That is all.").usage(40, 7),
        ]);
        let listens = ToolFn::new("listens", |call| async move {
            tokio::select! {
                biased;
                cause = call.scope.stopped_at("between_two_looks") => format!("stopped: {cause}"),
                () = sleep(Duration::from_millis(20)) => "looked".to_owned(),
            }
        });
        let deaf = ToolFn::new("deaf", |_| async {
            sleep(Duration::from_millis(30)).await;
            "done".to_owned()
        });
        let alone = ToolFn::new("alone", |_| async {
            sleep(Duration::from_secs(5)).await;
            "took long".to_owned()
        });
        let tools = [
            stage.tool(listens),
            stage.tool(deaf),
            stage.tool(alone.alone()),
        ];
        let settings = Settings {
            stop_policy,
            ..Settings::default()
        };
        let agent = Agent::builder(model).tools(stage.tools(tools));
        stage.agent(agent.settings(settings), "Look twice.")
    })
}
