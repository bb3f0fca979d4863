//! Runs that end because of a limit, or that almost reach a limit.

use std::time::Duration;

use allstop_agent::{AgentBuilder, Deadlines, Settings};
use allstop_core::turn::{Budget, LoopLimits, StopPolicy};
use allstop_model::Reply;
use serde_json::json;

use super::parts::{agent, answering, deaf};
use crate::ToolFn;
use crate::explore::{RunStage, Scenario};

pub(super) fn all() -> [Scenario; 7] {
    [
        // The second answer exceeds the budget. The next message exceeds the budget too.
        Scenario::new("budget_edge", |stage| {
            let settings = Settings::default()
                .budget(Budget::of_tokens(700))
                .output_tokens_max(300);
            let long = Reply::text("A long one.").call("work", json!({}));
            let replies = vec![
                long.usage(50, 400),
                Reply::text("Not any more.").usage(90, 100),
            ];
            let agent = agent(stage, replies, [answering("work", "done")]);
            let setup = stage.agent(agent.settings(settings), "Spend.");
            setup.next_may_be_refused()
        }),
        Scenario::new("loop_detection", |stage| {
            let settings = Settings::default().loop_limits(LoopLimits::default().repeats_max(2));
            stage.agent(busy(stage).settings(settings), "Work.")
        }),
        // Two calls exceed their own time limits. One tool reacts to the stop, and the other must be dropped. The turn
        // continues.
        Scenario::new("tool_timeout", |stage| {
            let both = Reply::text("").call("listens", json!({}));
            let replies = vec![
                both.call("deaf", json!({})),
                Reply::text("Both took too long."),
            ];
            let listens = ToolFn::new("listens", |call| async move {
                call.scope.stopped_at("in_the_middle").await.to_string()
            });
            let deaf = ToolFn::new("deaf", |_| std::future::pending());
            let tools = [listens, deaf].map(|tool| tool.timeout(Duration::from_secs(1)));
            stage.agent(agent(stage, replies, tools), "Try.")
        }),
        slow_tool("step_deadline", |limits, after| limits.step = after),
        slow_tool("inactivity", |limits, after| limits.inactivity = after),
        Scenario::new("step_limit", |stage| {
            let settings = Settings::default()
                .steps_max(2)
                .stop_policy(StopPolicy::Keep);
            stage.agent(busy(stage).settings(settings), "Work.")
        }),
        Scenario::new("turns_under_one_deadline", |stage| {
            let call = |text: &str| Reply::text(text).call("work", json!({}));
            let replies = vec![
                Reply::text("One.").usage(1, 1),
                call("Now two.").usage(2, 2),
                Reply::text("Two.").usage(3, 3),
                call("Now three.").usage(4, 4),
                Reply::text("Three.").usage(5, 5),
            ];
            let settings = Settings::default().deadlines(
                Deadlines::default()
                    // The deadline passes while the tool of the third turn runs.
                    .run(Duration::from_secs(5)),
            );
            let work = deaf("work", Duration::from_secs(3), "done");
            let agent = agent(stage, replies, [work]).settings(settings);
            let setup = stage.agent(agent, "One?");
            setup.and_prompt("Two?").and_prompt("Three?")
        }),
    ]
}

/// A tool that takes longer than a limit of two seconds.
fn slow_tool(name: &str, limit: fn(&mut Deadlines, Option<Duration>)) -> Scenario {
    Scenario::new(name, move |stage| {
        let quick = Reply::text("").call("quick", json!({}));
        let replies = vec![
            Reply::text("Quick.").call("quick", json!({})).usage(4, 2),
            quick.call("slow", json!({})).usage(6, 3),
            Reply::text("Never said."),
        ];
        let mut settings = Settings::default().stop_policy(StopPolicy::Keep);
        limit(&mut settings.deadlines, Some(Duration::from_secs(2)));
        let slow = deaf("slow", Duration::from_secs(9), "too late");
        let agent = agent(stage, replies, [answering("quick", "done"), slow]);
        stage.agent(agent.settings(settings), "Hurry.")
    })
}

/// An agent that calls the same tool repeatedly.
fn busy(stage: &RunStage) -> AgentBuilder {
    let again = Reply::text("Again.").call("work", json!({})).usage(6, 3);
    let mut replies = vec![again; 4];
    replies.push(Reply::text("Done."));
    agent(stage, replies, [answering("work", "done")])
}
