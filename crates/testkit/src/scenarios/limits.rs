//! Runs that a limit ends, or nearly.

use std::time::Duration;

use allstop_agent::{Agent, AgentBuilder, Deadlines, Settings};
use allstop_core::turn::{Budget, LoopLimits, StopPolicy};
use allstop_model::Reply;
use serde_json::json;
use tokio::time::sleep;

use crate::ToolFn;
use crate::explore::{RunStage, Scenario};

pub(super) fn all() -> [Scenario; 7] {
    [
        budget_edge(),
        loop_detection(),
        tool_timeout(),
        slow_tool(
            "step_deadline",
            Deadlines {
                step: Some(Duration::from_secs(2)),
                ..Deadlines::default()
            },
        ),
        slow_tool(
            "inactivity",
            Deadlines {
                inactivity: Some(Duration::from_secs(2)),
                ..Deadlines::default()
            },
        ),
        Scenario::new("step_limit", |stage| {
            let settings = Settings {
                steps_max: Some(2),
                stop_policy: StopPolicy::Keep,
                ..Settings::default()
            };
            stage.agent(busy(stage).settings(settings), "Work.")
        }),
        Scenario::new("turns_under_one_deadline", |stage| {
            let model = stage.model(vec![
                Reply::text("One.").usage(1, 1),
                Reply::text("Now two.").call("work", json!({})).usage(2, 2),
                Reply::text("Two.").usage(3, 3),
                Reply::text("Now three.")
                    .call("work", json!({}))
                    .usage(4, 4),
                Reply::text("Three.").usage(5, 5),
            ]);
            let work = ToolFn::new("work", |_| async {
                sleep(Duration::from_secs(3)).await;
                "done".to_owned()
            });
            let settings = Settings {
                deadlines: Deadlines {
                    // It passes in the third turn's tool.
                    run: Some(Duration::from_secs(5)),
                    ..Deadlines::default()
                },
                ..Settings::default()
            };
            let agent = Agent::builder(model).tools(stage.tools([stage.tool(work)]));
            stage
                .agent(agent.settings(settings), "One?")
                .and_prompt("Two?")
                .and_prompt("Three?")
        }),
    ]
}

/// The second answer does not fit into the budget any more, and neither does the next message.
fn budget_edge() -> Scenario {
    Scenario::new("budget_edge", |stage| {
        let settings = Settings {
            budget: Some(Budget::of_tokens(700)),
            output_tokens_max: Some(300),
            ..Settings::default()
        };
        let model = stage.model(vec![
            Reply::text("A long one.")
                .call("work", json!({}))
                .usage(50, 400),
            Reply::text("Not any more.").usage(90, 100),
        ]);
        let work = ToolFn::new("work", |_| async { "done".to_owned() });
        let agent = Agent::builder(model).tools(stage.tools([stage.tool(work)]));
        stage
            .agent(agent.settings(settings), "Spend.")
            .next_may_be_refused()
    })
}

fn loop_detection() -> Scenario {
    Scenario::new("loop_detection", |stage| {
        let settings = Settings {
            loop_limits: LoopLimits {
                repeats_max: Some(2),
                ..LoopLimits::default()
            },
            ..Settings::default()
        };
        stage.agent(busy(stage).settings(settings), "Work.")
    })
}

/// Two calls run out of their own time: one hears it, the other has to be dropped. The turn goes on.
fn tool_timeout() -> Scenario {
    Scenario::new("tool_timeout", |stage| {
        let model = stage.model(vec![
            Reply::text("")
                .call("listens", json!({}))
                .call("deaf", json!({})),
            Reply::text("Both took too long."),
        ]);
        let listens = ToolFn::new("listens", |call| async move {
            call.scope.stopped_at("in_the_middle").await.to_string()
        });
        let deaf = ToolFn::new("deaf", |_| std::future::pending());
        let limit = Duration::from_secs(1);
        let tools = [
            stage.tool(listens.timeout(limit)),
            stage.tool(deaf.timeout(limit)),
        ];
        stage.agent(Agent::builder(model).tools(stage.tools(tools)), "Try.")
    })
}

/// A tool that takes longer than the turn is given.
fn slow_tool(name: &str, deadlines: Deadlines) -> Scenario {
    Scenario::new(name, move |stage| {
        let model = stage.model(vec![
            Reply::text("Quick.").call("quick", json!({})).usage(4, 2),
            Reply::text("")
                .call("quick", json!({}))
                .call("slow", json!({}))
                .usage(6, 3),
            Reply::text("Never said."),
        ]);
        let quick = ToolFn::new("quick", |_| async { "done".to_owned() });
        let slow = ToolFn::new("slow", |_| async {
            sleep(Duration::from_secs(9)).await;
            "too late".to_owned()
        });
        let settings = Settings {
            deadlines,
            stop_policy: StopPolicy::Keep,
            ..Settings::default()
        };
        let agent = Agent::builder(model).tools(stage.tools([stage.tool(quick), stage.tool(slow)]));
        stage.agent(agent.settings(settings), "Hurry.")
    })
}

/// An agent that calls the same tool again and again.
fn busy(stage: &RunStage) -> AgentBuilder {
    let again = || Reply::text("Again.").call("work", json!({})).usage(6, 3);
    let model = stage.model(vec![
        again(),
        again(),
        again(),
        again(),
        Reply::text("Done."),
    ]);
    let work = ToolFn::new("work", |_| async { "done".to_owned() });
    Agent::builder(model).tools(stage.tools([stage.tool(work)]))
}
