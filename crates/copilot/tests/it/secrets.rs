//! Secret values of a program: the server removes them from the log, from events and from answers.

use serde_json::json;

use crate::support::TestServer;

const SECRET: &str = "hunter2-\"x\"/y";

/// The command prints the value, and its text does not contain it.
const SCRIPT: &str = r#"
turns:
  - replies:
      - calls: [{tool: bash, arguments: {command: "printf 'hun%s-\"x\"/y' ter2"}}]
      - text: Done.
"#;

#[tokio::test]
async fn secret_values_are_removed_from_log_events_and_answers() {
    let server = TestServer::new(SCRIPT).await;
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
