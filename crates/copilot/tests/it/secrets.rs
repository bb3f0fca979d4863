//! Secret values of a program: the server removes them from the log, from events and from answers.

use serde_json::json;

use crate::support::TestServer;

const SECRET: &str = "hunter2-\"x\"/y";

/// The commands print the value, and their texts do not contain it.
const SCRIPT: &str = r#"
turns:
  - when: in the background
    replies:
      - calls: [{tool: bash, arguments: {command: "printf 'hun%s-\"x\"/y' ter2", background: true}}]
      - text: Started.
  - replies:
      - calls: [{tool: bash, arguments: {command: "printf 'hun%s-\"x\"/y' ter2"}}]
      - text: Done.
"#;

#[tokio::test]
async fn secret_values_are_removed_from_log_events_and_answers() {
    let server = TestServer::on_disk(SCRIPT).await;
    let mut client = server.client();
    let refused = client
        .answer("secrets.addFilterValues", &json!({ "values": ["abc"] }))
        .await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    client.create("s", &json!({})).await;
    client
        .request(
            "session.permissions.setApproveAll",
            &json!({ "sessionId": "s", "enabled": true }),
        )
        .await;
    let added = client
        .request("secrets.addFilterValues", &json!({ "values": [SECRET] }))
        .await;
    assert_eq!(added, json!({ "ok": true }));
    let prompt = format!("The password is {SECRET}.");
    let sent = client
        .request(
            "session.sendAndWait",
            &json!({ "sessionId": "s", "prompt": prompt }),
        )
        .await;
    assert_eq!(sent["outcome"], "completed", "{sent}");
    let history = client
        .request("session.getMessages", &json!({ "sessionId": "s" }))
        .await;
    let history = history.to_string();
    assert!(history.contains("The password is [key]."), "{history}");
    assert!(history.contains("\"content\":\"[key]\""), "{history}");
    let outside = client.seen().iter().filter(|message| {
        let text = message.to_string();
        text.contains("hunter2")
    });
    assert_eq!(outside.count(), 0, "{:?}", client.seen());
    client
        .request("session.detach", &json!({ "sessionId": "s" }))
        .await;
    assert_eq!(server.files_with("hunter2"), Vec::<String>::new());
}

/// The output of background work reaches the model in a note at the start of a later turn.
#[tokio::test]
async fn secret_values_are_removed_from_notes_about_background_work() {
    let server = TestServer::on_disk(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let of_session = json!({ "sessionId": "s", "enabled": true });
    client
        .request("session.permissions.setApproveAll", &of_session)
        .await;
    let values = json!({ "values": [SECRET] });
    client.request("secrets.addFilterValues", &values).await;
    for prompt in ["Print it in the background.", "And now?"] {
        let message = json!({ "sessionId": "s", "prompt": prompt });
        let sent = client.request("session.sendAndWait", &message).await;
        assert_eq!(sent["outcome"], "completed", "{sent}");
    }
    let of_session = json!({ "sessionId": "s" });
    client.request("session.detach", &of_session).await;
    assert_ne!(
        server.files_with("has ended with exit code 0"),
        Vec::<String>::new()
    );
    // The file with the output of the command keeps it, as documented.
    let mut found = server.files_with("hunter2");
    found.retain(|file| !file.contains("/output/"));
    assert_eq!(found, Vec::<String>::new());
}
