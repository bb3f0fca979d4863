// A session in a file: a later process continues it. A stopped turn changes nothing in the file.

use allstop::model::Pause;
use allstop::prelude::*;

fn agent() -> Agent {
    let model = model::from_fn("demo", async |request| {
        let turns = request.messages.len() / 2 + 1;
        Ok(match request.user_text() {
            "wait" => Reply::text("…").pause(Pause::Forever),
            text => Reply::text(format!("Answer {turns} to `{text}`")),
        })
    });
    Agent::new(model).build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("chats.db");

    let session = agent()
        .session()
        .id("chat-1")
        .persisted(&file)
        .open()
        .await?;
    println!("{}", session.send("one")?.await.into_result()?);
    let waiting = session.send("wait")?;
    let stop = session.stop(&StopTarget::Turn, CauseKind::User);
    let receipt = stop.await;
    println!("conversation: {:?}", receipt.conversation());
    assert!(waiting.await.into_result().is_err());
    session.close().await;

    // As a new process would do.
    let session = agent()
        .session()
        .id("chat-1")
        .persisted(&file)
        .open()
        .await?;
    println!("{}", session.send("two")?.await.into_result()?);
    println!("messages: {}", session.history().await?.messages.len());
    session.close().await;
    Ok(())
}
