//! Override of the vision of a model.

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::{Value, json};

use crate::support::TestServer;

/// An image of one pixel, as base64.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[tokio::test]
async fn model_without_vision_gets_no_images() {
    let model = OpenAiServer::start([ServerAnswer::text("Seen.")]);
    let server = TestServer::new("turns: [{replies: [{text: unused}]}]").await;
    let mut client = server.client();
    let vision = |vision: bool| json!({ "supports": { "vision": vision } });
    let options = json!({
        "model": "m",
        "provider": { "type": "openai", "baseUrl": format!("{}/v1", model.url()) },
        "modelCapabilities": vision(false),
    });
    client.create("s", &options).await;
    let message = json!({
        "sessionId": "s",
        "prompt": "look",
        "attachments": [{ "type": "blob", "data": PIXEL, "mimeType": "image/png" }],
    });
    client.request("session.send", &message).await;
    client.event("session.idle").await;
    let switch = json!({ "sessionId": "s", "modelId": "m", "modelCapabilities": vision(true) });
    client.request("session.model.switchTo", &switch).await;
    let message = json!({ "sessionId": "s", "prompt": "again" });
    client.request("session.send", &message).await;
    client.event("session.idle").await;

    let requests = model.seen().requests;
    let has_image = |body: &Value| body.to_string().contains("image_url");
    let images: Vec<_> = requests
        .iter()
        .map(|request| has_image(&request.body))
        .collect();
    // The conversation keeps the image, so the second request has it.
    assert_eq!(images, [false, true]);
}
