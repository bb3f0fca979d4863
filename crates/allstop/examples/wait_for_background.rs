// A tool starts background work. `send_and_wait` returns when the turn has ended and no background work runs.

use std::time::Duration;

use allstop::prelude::*;
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let build = tool("build", "Starts a build", async |_: Nothing, cx: ToolCx| {
        let work = cx.start_background("build", |task| async move {
            tokio::select! {
                _cause = task.scope.stopped_at("compile") => Err("stopped".to_owned()),
                () = tokio::time::sleep(Duration::from_millis(50)) => Ok("3 crates built".to_owned()),
            }
        })?;
        Ok(format!("{work} runs in the background"))
    });
    let model = model::from_fn("demo", async |request| match request.tool_results() {
        0 => Ok(Reply::text("").call("build", json!({}))),
        _ => Ok("The build runs.".into()),
    });
    let agent = Agent::new(model).tool(build).build();
    let session = agent.session().open().await?;

    let waited = session.send_and_wait("build", WAIT_DEFAULT).await?;
    println!(
        "timed out: {}, still running: {}",
        waited.timed_out,
        waited.running.len()
    );
    println!("{}", waited.sent.await.into_result()?);
    for work in session.background() {
        let end = work.end().ok_or("it still runs")?;
        println!("{}: {}", work.id, end.answer.unwrap_or_default());
    }
    session.close().await;
    Ok(())
}
