//! Commands, on simulated processes: in the foreground, in the background, and with descendants that stay.

use std::time::Duration;

use allstop_agent::Agent;
use allstop_model::Reply;
use serde_json::json;

use crate::Behaviour;
use crate::explore::Scenario;

pub(super) fn all() -> [Scenario; 3] {
    [
        Scenario::new("shell", |stage| {
            stage.system().program(
                "make",
                Behaviour {
                    prints: vec![
                        (Duration::from_millis(5), "compiling\n".to_owned()),
                        (Duration::from_millis(50), "linking\n".to_owned()),
                    ],
                    exits: Some((Duration::from_millis(60), 0)),
                    term_takes: Some(Duration::from_millis(4)),
                    ..Behaviour::default()
                },
            );
            let model = stage.model(vec![
                Reply::text("").call("shell", json!({"command": "make"})),
                Reply::text("It builds."),
            ]);
            let agent = Agent::builder(model).tools(stage.tools([stage.shell()]));
            stage.agent(agent, "Build.")
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
            let call = json!({"command": "deaf", "timeout_s": 1.5});
            let model = stage.model(vec![
                Reply::text("").call("shell", call),
                Reply::text("It did not end."),
            ]);
            let agent = Agent::builder(model).tools(stage.tools([stage.shell()]));
            stage.agent(agent, "Try.")
        }),
        Scenario::new("background_shell", |stage| {
            stage
                .system()
                .program("npm run dev", Behaviour::server("listening\n"));
            let server = json!({"command": "npm run dev", "background": true});
            // It ends, and leaves a watcher that does not.
            let leaves = Behaviour {
                children: vec![("watcher".to_owned(), Behaviour::server(""))],
                ..Behaviour::default()
            };
            stage.system().program("watch &", leaves);
            let model = stage.model(vec![
                Reply::text("").call("shell", server),
                Reply::text("").call("shell", json!({"command": "watch &"})),
                Reply::text("Both run."),
            ]);
            let agent = Agent::builder(model).tools(stage.tools([stage.shell()]));
            stage.agent(agent, "Serve and watch.")
        }),
    ]
}
