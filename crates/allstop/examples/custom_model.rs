// A model of the program that streams its answer. A stop drops the stream.

use allstop::core::FinishReason;
use allstop::model::{ModelEvent, ModelStream};
use allstop::prelude::*;
use futures::future::BoxFuture;
use futures::stream;

/// Answers with the words of the message in reverse order.
#[derive(Debug)]
struct ReverseModel;

impl Model for ReverseModel {
    fn name(&self) -> &'static str {
        "local::reverse"
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        // A model with connections would register them; this one has none.
        request.probe.no_connection();
        let words = request.user_text().split(' ').rev();
        let mut events: Vec<_> = words
            .map(|word| ModelEvent::Text(format!("{word} ").into()))
            .collect();
        events.push(ModelEvent::End(FinishReason::Done));
        let stream = ModelStream::new(stream::iter(events.into_iter().map(Ok)));
        Box::pin(async move { Ok(stream) })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = Agent::new(ReverseModel).build();
    let run = agent.run("stop you can this");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        match event {
            AgentEvent::TextDelta { text } => print!("[{text}]"),
            AgentEvent::TurnEnded { stop_reason, .. } => println!(" {stop_reason}"),
            _ => {}
        }
    }
    let answer = run.await.into_result()?;
    println!("{} in {} step", answer.text.trim(), answer.steps);
    Ok(())
}
