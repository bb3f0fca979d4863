//! Scenarios with the official Copilot SDK for Rust, unmodified.
//!
//! Usage: copilot_rust [ARGUMENT...] -- SCENARIO...
//! The SDK drives the program that COPILOT_CLI_PATH names, with these arguments before `--server --stdio`. The model
//! follows `script.yaml` beside this folder. Prints a line for each scenario that has passed; the first that fails ends
//! the program with an error.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use github_copilot_sdk::Error;
use github_copilot_sdk::handler::{ApproveAllHandler, DenyAllHandler};
use github_copilot_sdk::types::{ResumeSessionConfig, SessionConfig};
use serde_json::json;

use support::{Handlers, Program, SdkSession};

/// Limit of one scenario. The test that runs this program has a higher one.
const SCENARIO_MAX: Duration = Duration::from_secs(20);

fn approving() -> SessionConfig {
    SessionConfig::default().with_permission_handler(Arc::new(ApproveAllHandler))
}

async fn send() -> Result<(), Error> {
    let program = Program::start().await?;
    let watched = SdkSession::of(program.client.create_session(approving()).await?);
    assert_eq!(watched.answer("hello").await?, "Hello.");
    let events = watched.session.get_events().await?;
    let kinds: Vec<_> = events.iter().map(|event| &*event.event_type).collect();
    assert!(kinds.ends_with(&[
        "user.message",
        "assistant.turn_start",
        "assistant.message",
        "assistant.turn_end"
    ]));
    program.end().await;
    Ok(())
}

async fn three_tools() -> Result<(), Error> {
    let program = Program::start().await?;
    let tools = Handlers::default().tools();
    let mut watched = SdkSession::of(
        program
            .client
            .create_session(approving().with_tools(tools))
            .await?,
    );
    assert_eq!(watched.answer("echo three").await?, "All echoed.");
    let mut contents = Vec::new();
    while contents.len() < 3 {
        let call = watched.next("tool.execution_complete").await;
        contents.push(
            call["result"]["content"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
    }
    contents.sort();
    assert_eq!(contents, ["echo a", "echo b", "echo c"]);
    program.end().await;
    Ok(())
}

/// A call that is rejected without a word ends the turn.
async fn permission() -> Result<(), Error> {
    let program = Program::start().await?;
    let config = SessionConfig::default().with_permission_handler(Arc::new(DenyAllHandler));
    let mut watched = SdkSession::of(program.client.create_session(config).await?);
    watched.session.send("touch a file").await?;
    let call = watched.next("tool.execution_complete").await;
    assert_eq!(
        (&call["success"], &call["error"]["code"]),
        (&json!(false), &json!("rejected"))
    );
    watched.next("session.idle").await;
    program.end().await;
    Ok(())
}

/// An abort ends the turn and its calls. The session accepts the next message.
async fn abort() -> Result<(), Error> {
    let program = Program::start().await?;
    let handlers = Handlers::default();
    let config = approving().with_tools(handlers.tools());
    let mut watched = SdkSession::of(program.client.create_session(config).await?);
    watched.session.send("wait for one").await?;
    handlers.wait_for_calls(1).await;
    watched.session.abort().await?;
    let call = watched.next("tool.execution_complete").await;
    assert_eq!(call["success"], json!(false), "{call}");
    assert_eq!(watched.next("session.idle").await["aborted"], json!(true));
    assert_eq!(watched.answer("hello again").await?, "Hello again.");
    program.end().await;
    Ok(())
}

/// One of three calls is cancelled; its receipt names this call only, and the others return their results.
async fn cancel_one_of_three() -> Result<(), Error> {
    let program = Program::start().await?;
    let handlers = Handlers::default();
    let config = approving().with_tools(handlers.tools());
    let mut watched = SdkSession::of(program.client.create_session(config).await?);
    watched.session.send("wait for three").await?;
    handlers.wait_for_calls(3).await;
    let call = handlers.call_named("b");
    let params = json!({"sessionId": watched.session.id(), "toolCallId": call});
    let answer = program
        .client
        .call("allstop.cancelToolCall", Some(params))
        .await?;
    assert_eq!(answer["cancelled"], json!(true), "{answer}");
    let items = answer["receipt"]["items"].as_array().expect("items");
    assert_eq!(
        items.iter().map(|item| &item["id"]).collect::<Vec<_>>(),
        [&json!(call)]
    );
    handlers.release();
    watched.next("session.idle").await;
    program.end().await;
    Ok(())
}

/// A killed program leaves a session that the next program resumes.
async fn server_killed() -> Result<(), Error> {
    let first = Program::start().await?;
    let handlers = Handlers::default();
    let config = approving().with_tools(handlers.tools());
    let watched = SdkSession::of(first.client.create_session(config).await?);
    assert_eq!(watched.answer("hello").await?, "Hello.");
    let id = watched.session.id().clone();
    watched.session.send("wait for one").await?;
    handlers.wait_for_calls(1).await;
    first.kill();
    let second = Program::start().await?;
    let config = ResumeSessionConfig::new(id).with_permission_handler(Arc::new(ApproveAllHandler));
    let again = SdkSession::of(second.client.resume_session(config).await?);
    assert_eq!(again.answer("hello again").await?, "Hello again.");
    second.end().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let names = std::env::args()
        .skip_while(|argument| argument != "--")
        .skip(1);
    for name in names {
        let begin = Instant::now();
        let scenario = async {
            match &*name {
                "send" => send().await,
                "three_tools" => three_tools().await,
                "permission" => permission().await,
                "abort" => abort().await,
                "cancel_one_of_three" => cancel_one_of_three().await,
                "server_killed" => server_killed().await,
                _ => panic!("no scenario {name}"),
            }
        };
        let ended = tokio::time::timeout(SCENARIO_MAX, scenario).await;
        ended.unwrap_or_else(|_| panic!("{name} takes longer than {:?}", begin.elapsed()))?;
        println!("passed {name}");
    }
    Ok(())
}
