//! Settings and states of a session that clients ask for.

use serde_json::json;

use crate::support::TestServer;

#[tokio::test]
async fn settings_are_answered_as_the_sdks_parse_them() {
    let script = "turns: [{replies: [{calls: [{tool: wait, arguments: {}}]}]}]";
    let server = TestServer::new(script).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "tools": [{ "name": "wait" }] }))
        .await;
    let session = json!({ "sessionId": "s" });
    let mode = client.request("session.mode.get", &session).await;
    assert_eq!(mode, "interactive");
    let interest = json!({ "sessionId": "s", "eventType": "mcp.oauth_required" });
    let registered = client
        .request("session.eventLog.registerInterest", &interest)
        .await;
    assert!(registered["handle"].is_string(), "{registered}");
    let model = client.request("session.model.getCurrent", &session).await;
    assert_eq!(model["modelId"], "script::test.yaml", "{model}");

    let left_out = json!({
        "sessionId": "s", "skipCustomInstructions": true, "customAgentsLocalOnly": true, "coauthorEnabled": false,
        "manageScheduleEnabled": false, "installedPlugins": [], "includedBuiltinSkills": [],
    });
    let updated = client.request("session.options.update", &left_out).await;
    assert_eq!(updated, json!({ "success": true }));
    // A success would claim a part that a session does not have.
    let asked = json!({ "sessionId": "s", "installedPlugins": [{ "name": "p" }] });
    let refused = client.answer("session.options.update", &asked).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");

    let activity = "session.metadata.activity";
    let idle = json!({ "abortable": false, "hasActiveWork": false });
    assert_eq!(client.request(activity, &session).await, idle);
    let message = json!({ "sessionId": "s", "prompt": "wait" });
    client.request("session.send", &message).await;
    client.event("external_tool.requested").await;
    let busy = json!({ "abortable": true, "hasActiveWork": true });
    assert_eq!(client.request(activity, &session).await, busy);
    let processing = client
        .request("session.metadata.isProcessing", &session)
        .await;
    assert_eq!(processing, json!({ "processing": true }));
    client.request("session.abort", &session).await;
    client.event("session.idle").await;
    assert_eq!(client.request(activity, &session).await, idle);
}
