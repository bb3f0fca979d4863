// A turn under a budget is all or nothing: if the budget does not suffice, the conversation stays as it was.

use allstop::prelude::*;
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Page {
    number: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let read = tool(
        "read_page",
        "Reads a page of the book",
        async |page: Page, _cx| Ok(format!("text of page {}", page.number)),
    )
    .read_only();
    // Each call of this model costs 400 tokens, and it reads one page after another.
    let model = model::from_fn("demo", async |request| {
        let answer = match request.user_text() {
            "hello" => Reply::text("Hello!"),
            _ => Reply::text("").call("read_page", json!({"number": request.tool_results()})),
        };
        Ok(answer.usage(300, 100))
    });
    let budget = Budget::of_tokens(2_000);
    let agent = Agent::new(model).tool(read).budget(budget.clone()).build();
    let session = agent.session().open().await?;

    println!("{}", session.send("hello")?.await.into_result()?);
    let before = session.history().await?;
    let Outcome::Failed(failure) = session.send("Summarise the book")?.await else {
        return Err("the budget had no effect".into());
    };
    println!("{}: {failure}", failure.reason);
    println!(
        "conversation unchanged: {}",
        before.messages == session.history().await?.messages
    );
    println!(
        "spent within the budget: {}",
        budget.spent_tokens() <= 2_000
    );
    Ok(())
}
