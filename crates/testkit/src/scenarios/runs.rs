//! Runs of turns: answers, parallel tools, commands with simulated processes, and models that fail.

use std::time::Duration;

use allstop_agent::{Agent, AnswerSchema, Deadlines, Settings};
use allstop_core::turn::StopPolicy;
use allstop_model::{ModelError, ModelErrorKind, Pause, Reply};
use serde_json::json;

use super::parts::{agent, answering, deaf, listening};
use crate::explore::{RunStage, Scenario, Setup};
use crate::{Behaviour, ToolFn};

pub(super) fn all() -> [Scenario; 12] {
    [
        Scenario::new("streaming", |stage| {
            let reply = Reply::text("Once").and_reasoning("hm");
            let reply = reply.and_text(" upon a time.").usage(12, 34);
            stage.agent(agent(stage, vec![reply], []), "Tell me a story.")
        }),
        parallel_tools("parallel_tools", StopPolicy::Rollback),
        parallel_tools("parallel_tools_kept", StopPolicy::Keep),
        Scenario::new("retries", |stage| {
            let busy = ModelError::new(ModelErrorKind::Unavailable, "overloaded");
            let reply = Reply::text("At last.").usage(5, 2).failing_first(2, busy);
            stage.agent(agent(stage, vec![reply], []), "Are you there?")
        }),
        corrected_answer("corrected_answer", StopPolicy::Rollback),
        corrected_answer("corrected_answer_kept", StopPolicy::Keep),
        Scenario::new("provider_fails", |stage| {
            let replies = vec![
                Reply::text("I look.").call("look", json!({})).usage(5, 9),
                Reply::text("Half of an").usage(7, 3).disconnect(),
            ];
            stage.agent(agent(stage, replies, [answering("look", "seen")]), "Look.")
        }),
        Scenario::new("provider_times_out", |stage| {
            let settings = Settings::default()
                .deadlines(Deadlines::default().between_tokens(Duration::from_secs(5)));
            let reply = Reply::text("Wait").pause(Pause::Forever);
            stage.agent(agent(stage, vec![reply], []).settings(settings), "Go on.")
        }),
        Scenario::new("malformed_arguments", |stage| {
            let replies = vec![
                Reply::text("")
                    .malformed_call("write", r#"{"path": "/etc"#)
                    .call("unknown", json!({}))
                    .call("write", json!({"path": "a"})),
                Reply::text("Written."),
            ];
            let write = ToolFn::new(
                "write",
                |call| async move { call.arguments["path"].to_string() },
            );
            stage.agent(agent(stage, replies, [write]), "Write.")
        }),
        Scenario::new("shell", |stage| {
            let make = Behaviour {
                prints: vec![
                    (Duration::from_millis(5), "compiling\n".to_owned()),
                    (Duration::from_millis(50), "linking\n".to_owned()),
                ],
                exits: Some((Duration::from_millis(60), 0)),
                term_takes: Some(Duration::from_millis(4)),
                ..Behaviour::default()
            };
            stage.system().program("make", make);
            let make = Reply::text("").call("shell", json!({"command": "make"}));
            shelling(stage, vec![make, Reply::text("It builds.")], "Build.")
        }),
        Scenario::new("shell_that_ignores_sigterm", |stage| {
            let deaf = Behaviour {
                exits: None,
                term_takes: None,
                kill_takes: Duration::from_millis(2),
                children: vec![("helper".to_owned(), Behaviour::server("helping\n"))],
                ..Behaviour::default()
            };
            stage.system().program("deaf", deaf);
            let deaf = json!({"command": "deaf", "timeout_s": 1.5});
            let deaf = Reply::text("").call("shell", deaf);
            shelling(stage, vec![deaf, Reply::text("It did not end.")], "Try.")
        }),
        Scenario::new("background_shell", |stage| {
            let server = Behaviour::server("listening\n");
            stage.system().program("npm run dev", server);
            // This program ends, but its child process `watcher` does not end.
            let leaves = Behaviour {
                children: vec![("watcher".to_owned(), Behaviour::server(""))],
                ..Behaviour::default()
            };
            stage.system().program("watch &", leaves);
            let server = json!({"command": "npm run dev", "background": true});
            let replies = vec![
                Reply::text("").call("shell", server),
                Reply::text("").call("shell", json!({"command": "watch &"})),
                Reply::text("Both run."),
            ];
            shelling(stage, replies, "Serve and watch.")
        }),
    ]
}

/// An agent with a shell.
fn shelling(stage: &RunStage, replies: Vec<Reply>, prompt: &str) -> Setup {
    let agent = Agent::new(stage.model(replies));
    stage.agent(agent.tools(stage.tools([stage.shell()])), prompt)
}

/// The first final answer does not match the answer schema, so the model answers again in the same turn.
fn corrected_answer(name: &'static str, policy: StopPolicy) -> Scenario {
    Scenario::new(name, move |stage| {
        let replies = vec![
            Reply::text("I look.").call("look", json!({})).usage(5, 9),
            Reply::text("\"short\"").usage(7, 3),
            Reply::text("\"long enough\"").usage(9, 4),
        ];
        let schema = json!({"type": "string", "minLength": 10});
        let settings = Settings::default()
            .stop_policy(policy)
            .answer(AnswerSchema::from_schema(schema).expect("a valid schema"));
        let agent = agent(stage, replies, [answering("look", "seen")]);
        stage.agent(agent.settings(settings), "Answer in JSON.")
    })
}

/// Two tools run in parallel: one reacts to a stop, and the other ignores a stop and takes a while. Then a single tool
/// runs, and the model answers.
fn parallel_tools(name: &str, stop_policy: StopPolicy) -> Scenario {
    Scenario::new(name, move |stage| {
        let both = Reply::text("I look.").call("listens", json!({}));
        let replies = vec![
            both.call("deaf", json!({})).usage(10, 20),
            Reply::text("And again.")
                .call("alone", json!({}))
                .usage(30, 5),
            Reply::text("That is all.").usage(40, 7),
        ];
        let tools = [
            listening("listens", Duration::from_millis(20), "looked"),
            deaf("deaf", Duration::from_millis(30), "done"),
            deaf("alone", Duration::from_secs(5), "took long").alone(),
        ];
        let settings = Settings::default().stop_policy(stop_policy);
        stage.agent(
            agent(stage, replies, tools).settings(settings),
            "Look twice.",
        )
    })
}
