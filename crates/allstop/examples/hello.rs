// An agent with a tool, a session and a stop.

use allstop::prelude::*;
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    city: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let weather = tool("weather", "Weather of a city", async |place: Place, cx| {
        let seconds = if place.city == "Atlantis" { 600 } else { 0 };
        let slow_server = tokio::time::sleep(std::time::Duration::from_secs(seconds));
        cx.unless_stopped(slow_server).await?;
        Ok(format!("It is sunny in {}.", place.city))
    });
    // With a key in the environment: `let model = model::from_env("gpt-5-mini")?;`
    let model = model::from_fn("demo", async |request| match request.tool_results() {
        0 => Ok(Reply::text("").call("weather", json!({"city": request.user_text()}))),
        _ => Ok("Take sunglasses.".into()),
    });
    let agent = Agent::new(model)
        .tool(weather.read_only())
        .max_steps(25)
        .build();
    println!("{}", agent.ask("Lima").await?);

    let session = agent.session().follow_up(FollowUp::Enqueue).open().await?;
    let mut events = session.watch();
    let message = session.send("Atlantis")?;
    events.next_call().await.ok_or("the tool was not called")?;
    let stop = session.stop(&StopTarget::Turn, CauseKind::User);
    println!("{}", stop.await);
    assert!(matches!(message.await, Outcome::Stopped(_)));
    println!("{}", session.send("Cusco")?.await.into_result()?);
    Ok(())
}
