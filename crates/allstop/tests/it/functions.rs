//! Functions as tools, hooks and guardrails.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use allstop::prelude::*;
use serde_json::json;

use crate::{FOREVER, Nothing, calls_work, impatient};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Sum {
    /// First number.
    left: i64,
    right: i64,
}

/// Calls `work` with these arguments, and answers with the result.
fn calls_with(arguments: serde_json::Value) -> impl Model {
    model::from_fn("test", move |request: ModelRequest| {
        let last = request.messages.last().map(|last| (**last).clone());
        let arguments = arguments.clone();
        std::future::ready(Ok(match last {
            Some(Message::Tool(result)) => Reply::text(result.content),
            _ => Reply::text("").call("work", arguments),
        }))
    })
}

async fn answer(tool: FnTool, arguments: serde_json::Value) -> String {
    let agent = Agent::new(calls_with(arguments))
        .tool(tool)
        .scope(impatient());
    let answer = agent.build().ask("go").await;
    answer.expect("an answer").to_string()
}

fn sum() -> FnTool {
    tool("work", "Adds", async |sum: Sum, _cx| {
        let sum = sum
            .left
            .checked_add(sum.right)
            .ok_or("the sum is too large")?;
        Ok(sum.to_string())
    })
}

#[tokio::test]
async fn function_gets_typed_arguments() {
    let sum = sum();
    let schema = &sum.spec().input_schema;
    assert_eq!(schema["properties"]["left"]["description"], "First number.");
    assert_eq!(schema["required"], json!(["left", "right"]));
    assert_eq!(answer(sum, json!({"left": 2, "right": 3})).await, "5");
}

#[tokio::test]
async fn wrong_arguments_and_errors_are_results() {
    let wrong = answer(sum(), json!({"left": 2})).await;
    assert!(
        wrong.starts_with("wrong arguments for `work`: missing field `right`"),
        "{wrong}"
    );
    assert!(wrong.ends_with("; it was not run"), "{wrong}");
    let failed = answer(sum(), json!({"left": i64::MAX, "right": 1})).await;
    assert_eq!(failed, "the sum is too large");
}

#[tokio::test]
async fn timeout_ends_only_the_call() {
    let slow = tool("work", "Waits", async |_: Nothing, cx: ToolCx| {
        cx.unless_stopped(tokio::time::sleep(FOREVER)).await?;
        Ok("worked")
    });
    let text = answer(
        slow.read_only().timeout(Duration::from_millis(20)),
        json!({}),
    )
    .await;
    assert!(
        text.starts_with("the call was stopped: deadline (tool timeout of 20ms)"),
        "{text}"
    );
}

#[tokio::test]
async fn panic_of_a_blocking_tool_is_a_result() {
    let broken = blocking_tool(
        "work",
        "Fails",
        |_: Nothing, _cx| -> Result<&str, ToolError> { panic!("on purpose") },
    );
    assert_eq!(answer(broken, json!({})).await, "the work panicked");
}

#[tokio::test]
async fn declared_effects_reach_the_agent() {
    assert_eq!(sum().spec().effect, Effect::Irreversible);
    assert_eq!(sum().read_only().spec().effect, Effect::ReadOnly);
    assert_eq!(sum().idempotent().spec().effect, Effect::Idempotent);
    assert!(sum().spec().parallel && !sum().parallel(false).spec().parallel);
}

#[test]
#[should_panic(expected = "a tool named \"work\" is registered already")]
fn second_tool_of_a_name_is_a_mistake() {
    let _agent = Agent::new(calls_work()).tool(sum()).tool(sum());
}

#[tokio::test]
async fn hooks_and_guardrails_are_functions() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let names = Arc::clone(&seen);
    let audit = hook("audit", move |_cx, event: HookEvent| {
        names.lock().unwrap().push(event.name());
        std::future::ready(HookVerdict::Continue)
    })
    .only(|event| {
        matches!(
            event,
            HookEvent::ToolStart { .. } | HookEvent::ToolEnd { .. }
        )
    });
    let polite = guardrail(
        "polite",
        GuardrailStage::Output,
        async |_cx, text: Arc<str>| match &*text {
            "done" => GuardrailVerdict::Refuse {
                reason: "too short".to_owned(),
            },
            _ => GuardrailVerdict::Pass,
        },
    );
    let work = tool("work", "Works", async |_: Nothing, _cx| Ok("worked"));
    let agent = Agent::new(calls_work())
        .tool(work)
        .hook(audit)
        .guardrail(polite);
    let outcome = agent.build().run("go").await;
    assert_eq!(*seen.lock().unwrap(), ["tool_start", "tool_end"]);
    let Outcome::Failed(failure) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(failure.reason, StopReason::Guardrail);
    assert_eq!(failure.message, "stopped by a guardrail (too short)");
}

/// Regression: the agent sent a schema that every provider refuses.
#[test]
fn arguments_that_are_no_object_are_refused() {
    fn refused<A: serde::de::DeserializeOwned + schemars::JsonSchema + Send + 'static>() -> String {
        let work = tool("work", "Works", async |_: A, _cx| Ok("worked"));
        let mut registry = allstop::tools::ToolRegistry::new();
        let refused = registry.register(Arc::new(work));
        refused.expect_err("no object").to_string()
    }
    for error in [refused::<u32>(), refused::<Vec<u8>>(), refused::<()>()] {
        assert!(
            error.ends_with("but arguments are an object: use a struct with named fields"),
            "{error}"
        );
    }
    let any = tool("work", "Works", async |_: serde_json::Value, _cx| {
        Ok("worked")
    });
    let agent = Agent::new(calls_work()).tool(any).build();
    drop(agent);
}

/// Regression: the settings reached the model, or a provider refused them after the request was sent.
#[tokio::test]
async fn settings_without_meaning_end_the_run() {
    let unknown = RequestSettings::default().tool_choice(model::ToolChoice::Tool("nope".into()));
    let nan = RequestSettings::default().temperature(f64::NAN);
    for (settings, message) in [
        (
            unknown,
            "the setting `tool_choice` names the unknown tool `nope`",
        ),
        (
            nan,
            "the setting `temperature` is NaN, which is no finite number",
        ),
    ] {
        let agent = Agent::new(calls_work()).request(settings).build();
        let Outcome::Failed(failure) = agent.run("go").await else {
            panic!("the settings have a meaning");
        };
        assert_eq!(failure.kind, Some(allstop::agent::TurnErrorKind::Invalid));
        assert_eq!(failure.message, message);
    }
}
