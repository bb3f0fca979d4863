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
    let model = model::from_fn("demo", async |request| match request.tool_results() {
        0 => Ok(Reply::text("").call("weather", json!({"city": request.user_text()}))),
        _ => Ok("Take sunglasses.".into()),
    });
    let agent = Agent::new(model).tool(weather.read_only()).build();
    let session = agent.session().open().await?;
    println!("{}", session.send("Lima")?.await.into_result()?);
    let mut events = session.watch();
    let message = session.send("Atlantis")?;
    events.next_call().await.ok_or("the tool was not called")?;
    println!("{}", session.stop(&StopTarget::Turn, CauseKind::User).await);
    assert!(matches!(message.await, Outcome::Stopped(_)));
    Ok(())
}
