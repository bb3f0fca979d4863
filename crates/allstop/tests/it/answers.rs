//! Outcomes of runs: an answer, a receipt, or a failure, and never an empty answer for a failure.

use allstop::agent::TurnErrorKind;
use allstop::model::ModelErrorKind;
use allstop::prelude::*;
use serde_json::json;

use crate::{Nothing, calls_work};

fn refused() -> impl Model {
    model::from_fn("test", async |_request| -> Result<Reply, ModelError> {
        Err(ModelError::new(ModelErrorKind::Unauthorized, "wrong key"))
    })
}

#[tokio::test]
async fn failed_run_is_an_error() {
    let agent = Agent::new(refused()).build();
    let outcome = agent.run("hello").await;
    let value = serde_json::to_value(&outcome).unwrap();
    assert_eq!(value["failed"]["reason"], "error");
    assert_eq!(value["failed"]["kind"], "unauthorized");
    let Outcome::Failed(failure) = &outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(failure.kind, Some(TurnErrorKind::Unauthorized));
    let error = outcome.into_result().unwrap_err();
    assert_eq!(error.to_string(), "wrong key");
    assert_eq!(agent.ask("hello").await.unwrap_err(), error);
}

#[tokio::test]
async fn step_limit_is_a_failure_with_its_reason() {
    let forever = model::from_fn("test", async |request: ModelRequest| {
        Ok(Reply::text("").call("work", json!({"step": request.tool_results()})))
    });
    let work = tool("work", "Works", async |_: Nothing, _cx| Ok("worked"));
    let agent = Agent::new(forever).tool(work).max_steps(2).build();
    let outcome = agent.run("go").await;
    let Outcome::Failed(failure) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(failure.reason, StopReason::MaxStepsReached);
    assert!(
        failure.message.starts_with("stopped by a limit"),
        "{failure}"
    );
}

#[tokio::test]
async fn answer_has_text_steps_and_usage() {
    let work = tool("work", "Works", async |_: Nothing, _cx| Ok("worked"));
    let agent = Agent::new(calls_work()).tool(work).build();
    let answer = agent.ask("go").await.unwrap();
    assert_eq!((answer.to_string().as_str(), answer.steps), ("done", 2));
    let value = serde_json::to_value(Outcome::Completed(answer)).unwrap();
    assert_eq!(value["completed"]["text"], "done");
}

/// No runtime of tokio exists here.
#[test]
fn agent_works_without_a_runtime() {
    let work = tool("work", "Works", async |_: Nothing, _cx| Ok("worked"));
    let agent = Agent::new(calls_work()).tool(work).build();
    let answer = futures::executor::block_on(agent.ask("go")).unwrap();
    assert_eq!(&*answer.text, "done");
    futures::executor::block_on(async {
        let session = agent.session().open().await.unwrap();
        let waited = session.send_and_wait("go", WAIT_DEFAULT).await.unwrap();
        assert!(!waited.timed_out);
        assert_eq!(waited.sent.await.into_result().unwrap().to_string(), "done");
        let waiting = Agent::new(model::from_fn("test", async |_request| {
            Ok(Reply::text("").pause(model::Pause::Forever))
        }));
        let run = waiting.build().run("wait");
        let receipt = run.stop(CauseKind::User).receipt().await;
        assert!(receipt.quiet(), "{receipt}");
        assert!(session.close().await.quiet());
    });
}
