//! Sessions: a starting conversation, follow-up policies and failures.

use allstop::prelude::*;
use allstop::session::OpenSessionError;
use serde_json::json;

fn counts() -> impl Model {
    model::from_fn("test", async |request: ModelRequest| {
        Ok(format!("{} messages", request.messages.len()))
    })
}

fn message(value: serde_json::Value) -> Message {
    serde_json::from_value(value).expect("a message")
}

#[tokio::test]
async fn session_continues_a_conversation() {
    let agent = Agent::new(counts()).build();
    let earlier = [
        Message::user("What is the capital of Peru?"),
        message(json!({"role": "assistant", "text": "Lima."})),
    ];
    let session = agent
        .session()
        .conversation(earlier.clone())
        .open()
        .await
        .unwrap();
    let answer = session
        .send("And of Chile?")
        .unwrap()
        .await
        .into_result()
        .unwrap();
    assert_eq!(&*answer.text, "3 messages");
    assert_eq!(session.history().await.unwrap().turns, 2);

    let [_, answer] = earlier;
    let refused = agent.session().conversation([answer]).open().await;
    assert!(matches!(refused, Err(OpenSessionError::NoUserMessage)));
    let call = json!({"role": "assistant", "text": "",
        "tool_calls": [{"id": "call_1", "name": "x", "arguments": {"json": {}}}]});
    let open_call = [Message::user("Hi"), message(call)];
    let refused = agent.session().conversation(open_call).open().await;
    assert!(matches!(refused, Err(OpenSessionError::Conversation(_))));
}

#[tokio::test]
async fn failed_message_is_an_error_and_the_session_continues() {
    let fails_once = std::sync::atomic::AtomicBool::new(true);
    let model = model::from_fn("test", move |_request| {
        let fails = fails_once.swap(false, std::sync::atomic::Ordering::Relaxed);
        std::future::ready(if fails {
            let kind = allstop::model::ModelErrorKind::Invalid;
            Err(ModelError::new(kind, "refused"))
        } else {
            Ok("fine")
        })
    });
    let session = Agent::new(model).build().session().open().await.unwrap();
    let failed = session.send("one").unwrap().await;
    assert!(
        matches!(&failed, Outcome::Failed(failure) if failure.message == "refused"),
        "{failed:?}"
    );
    assert_eq!(
        session
            .send("two")
            .unwrap()
            .await
            .into_result()
            .unwrap()
            .to_string(),
        "fine"
    );
}

#[tokio::test]
async fn second_message_is_refused_or_waits_as_the_policy_says() {
    let hangs = || {
        model::from_fn("test", async |_request| {
            Ok(Reply::text("").pause(model::Pause::Forever))
        })
    };
    let rejecting = Agent::new(hangs()).build().session().open().await.unwrap();
    let _first = rejecting.send("one").unwrap();
    assert!(rejecting.send("two").is_err());

    let queueing = Agent::new(hangs())
        .build()
        .session()
        .follow_up(FollowUp::Enqueue);
    let queueing = queueing.open().await.unwrap();
    let (first, second) = (queueing.send("one").unwrap(), queueing.send("two").unwrap());
    let _receipt = queueing
        .stop(&StopTarget::Turn, CauseKind::User)
        .receipt()
        .await;
    assert!(matches!(first.await, Outcome::Stopped(_)));
    let _receipt = queueing
        .stop(&StopTarget::Turn, CauseKind::Shutdown)
        .receipt()
        .await;
    let second = second.await;
    assert_eq!(second.receipt().unwrap().cause().kind, CauseKind::Shutdown);
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn stored_session_takes_no_second_starting_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let agent = Agent::new(counts()).build();
    let open = || agent.session().id("one").persisted(&file);
    let session = open()
        .conversation([Message::user("Hi")])
        .open()
        .await
        .unwrap();
    session.close().await;
    let refused = open().conversation([Message::user("Hi")]).open().await;
    let refused = refused.err();
    assert!(
        matches!(refused, Some(OpenSessionError::HasConversation)),
        "{refused:?}"
    );
    let session = open().open().await.unwrap();
    assert_eq!(session.history().await.unwrap().messages.len(), 1);
    session.close().await;
}
