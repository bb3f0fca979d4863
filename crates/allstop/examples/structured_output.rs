// An answer as a value: the model gets the JSON schema of the type, and every answer is checked before the turn commits.

use allstop::prelude::*;

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Recipe {
    title: String,
    /// Minutes from the first step to the meal.
    minutes: u32,
    ingredients: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // This model first gives the time as a text. It reads the problem, and corrects its answer in the same turn.
    let model = model::from_fn("demo", async |request| {
        let minutes = match request.messages.last().map(|last| (**last).clone()) {
            Some(Message::Note { text }) => {
                println!("model reads: {text}");
                "20"
            }
            _ => "\"twenty\"",
        };
        Ok(Reply::text(format!(
            r#"{{"title": "Pesto", "minutes": {minutes}, "ingredients": ["basil", "oil"]}}"#
        )))
    });
    // Providers get these settings with each request; a function ignores them.
    let settings = RequestSettings::default().temperature(0.2).seed(7);
    let agent = Agent::new(model).request(settings).build();

    let recipe: Recipe = agent.ask_as("A quick recipe with basil").await?;
    let Recipe {
        title,
        minutes,
        ingredients,
    } = recipe;
    println!("{title}, {minutes} minutes: {}", ingredients.join(" and "));

    // A second wrong answer is a failure that names the field, never an empty or wrong value.
    let stubborn = model::from_fn("stubborn", async |_| Ok(Reply::text("Pesto!")));
    let failed = Agent::new(stubborn).build().ask_as::<Recipe>("Again").await;
    if let Err(error) = failed {
        println!("{error}");
    }
    Ok(())
}
