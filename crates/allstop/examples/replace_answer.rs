// A bot in several chats: a new message of a chat replaces the answer that still runs there.

use std::collections::HashMap;

use allstop::model::Pause;
use allstop::prelude::*;

/// The open session of each chat.
struct Bot {
    agent: Agent,
    chats: HashMap<&'static str, Session>,
}

impl Bot {
    async fn receive(
        &mut self,
        chat: &'static str,
        text: &str,
    ) -> Result<MessageHandle, Box<dyn std::error::Error>> {
        if !self.chats.contains_key(chat) {
            let session = self.agent.session().follow_up(FollowUp::Replace);
            self.chats.insert(chat, session.open().await?);
        }
        Ok(self.chats[chat].send(text)?)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // This model never finishes a long answer.
    let model = model::from_fn("demo", async |request| {
        let answer = Reply::text(format!("Answer to: {}", request.user_text()));
        let is_long = request.user_text().contains("long");
        Ok(if is_long {
            answer.pause(Pause::Forever)
        } else {
            answer
        })
    });
    let mut bot = Bot {
        agent: Agent::new(model).build(),
        chats: HashMap::new(),
    };
    let first = bot.receive("ann", "a long story").await?;
    let other = bot.receive("bob", "the time").await?;
    let second = bot.receive("ann", "a short one").await?;

    for (chat, message) in [("ann", first), ("bob", other), ("ann", second)] {
        match message.await {
            Outcome::Completed(answer) => println!("{chat}: {answer}"),
            // A reply that was replaced is never delivered.
            Outcome::Stopped(receipt) => println!("{chat}: {}", receipt.cause().kind),
            Outcome::Failed(failure) => println!("{chat}: failed: {failure}"),
        }
    }
    Ok(())
}
