// Cancels one of two running calls. The turn continues, and the model sees that the call was cancelled.

use std::time::Duration;

use allstop::prelude::*;
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Download {
    seconds: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let download = tool(
        "download",
        "Downloads a file",
        async |file: Download, cx| {
            let transfer = tokio::time::sleep(Duration::from_secs(file.seconds));
            cx.unless_stopped(transfer).await?;
            Ok("downloaded")
        },
    );
    let model = model::from_fn("demo", async |request| {
        if request.tool_results() == 0 {
            let both = Reply::text("")
                .call("download", json!({"seconds": 0}))
                .call("download", json!({"seconds": 600}));
            return Ok(both);
        }
        let results = request
            .messages
            .iter()
            .filter_map(|message| match &**message {
                Message::Tool(result) => result.content.lines().next().map(str::to_owned),
                _ => None,
            });
        Ok(Reply::text(results.collect::<Vec<_>>().join(" | ")))
    });
    let agent = Agent::new(model).tool(download).build();

    let run = agent.run("Download both files");
    let mut events = run.events();
    events.next_call().await.ok_or("no call has started")?;
    let slow = &events.next_call().await.ok_or("one call has started")?;
    println!("first request: {}", run.cancel_call(slow));
    println!("second request: {}", run.cancel_call(slow));
    println!("unknown call: {}", run.cancel_call(&"call_99".into()));
    println!("{}", run.await.into_result()?);
    Ok(())
}
