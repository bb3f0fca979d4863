// A tool with typed arguments: their type makes the JSON schema, and wrong arguments never reach the function.

use std::time::Duration;

use allstop::prelude::*;
use serde_json::json;

/// Arguments of `convert`.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Conversion {
    /// Amount in euros.
    euros: f64,
    /// Currency of the result.
    to: Currency,
}

#[derive(serde::Deserialize, schemars::JsonSchema, Debug)]
#[serde(rename_all = "lowercase")]
enum Currency {
    Dollar,
    Yen,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let convert = tool(
        "convert",
        "Converts euros",
        async |asked: Conversion, _cx| {
            let rate = match asked.to {
                Currency::Dollar => 1.1,
                Currency::Yen => 160.0,
            };
            // Any error becomes the result of the call, with `?`.
            let amount = Some(asked.euros).filter(|euros| *euros >= 0.0);
            let amount = amount.ok_or("the amount is negative")? * rate;
            Ok(format!("{amount:.2} {:?}", asked.to))
        },
    )
    .read_only()
    .timeout(Duration::from_secs(5))
    .parallel(false);
    println!("{}", convert.spec().input_schema);

    // This model first sends an unknown currency, reads the error, and corrects its call.
    let model = model::from_fn("demo", async |request| {
        let convert = |to| Reply::text("").call("convert", json!({"euros": 2, "to": to}));
        let last = request.messages.last().map(|last| (**last).clone());
        Ok(match (request.tool_results(), last) {
            (0, _) => convert("rupee"),
            (2, Some(Message::Tool(result))) => Reply::text(result.content),
            _ => convert("yen"),
        })
    });
    let agent = Agent::new(model).tool(convert).build();
    println!("{}", agent.ask("How many yen are 2 euros?").await?);
    Ok(())
}
