//! Questions of MCP servers in the tasks of `allstop serve`.

use serde_json::{Value, json};

use crate::serve::Server;
use crate::server_questions::{SCRIPT, answer, config};
use crate::support::Place;
use crate::support::wait::eventually;

fn serve(place: &Place, flags: &str) -> Server {
    let script = place.script(SCRIPT);
    Server::start_with(
        place,
        &format!("{} --model {script} {flags}", config(place)),
    )
}

fn send(server: &Server, id: &str, task: Option<&str>, part: &Value) -> Value {
    let mut message = json!({ "messageId": id, "role": "ROLE_USER", "parts": [part] });
    if let Some(task) = task {
        message["taskId"] = task.into();
    }
    let body = json!({ "message": message }).to_string();
    let sent = server.request("POST /message:send", &body);
    let (status, body) = sent.expect("an answer");
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    answer["task"].clone()
}

/// A task with an open question of its server.
fn asking(server: &Server) -> Value {
    let task = send(server, "m1", None, &json!({"text": "hello"}));
    assert_eq!(
        task["status"]["state"], "TASK_STATE_INPUT_REQUIRED",
        "{task}"
    );
    task
}

/// The question goes to the client of the task, also with an answer to permission questions in advance.
#[test]
fn client_of_a_task_fills_in_the_form() {
    for flags in ["", "--yes"] {
        let place = Place::new();
        let server = serve(&place, flags);
        let task = asking(&server);
        let parts = &task["status"]["message"]["parts"];
        let data = &parts[1]["data"];
        assert_eq!(data["server"], "s", "{task}");
        assert_eq!(data["requestedSchema"]["required"], json!(["name"]));
        let id = &parts[1]["metadata"]["question_id"];
        let values = json!({"action": "accept", "content": {"name": "Ada"}});
        let reply = json!({ "data": values, "metadata": { "question_id": id } });
        let task = send(&server, "m2", task["id"].as_str(), &reply);
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
        assert_eq!(
            answer(&place),
            r#"{"action": "accept", "content": {"colour": "green", "name": "Ada"}}"#
        );
    }
}

#[test]
fn cancel_of_a_task_that_asks_cancels_the_question() {
    let place = Place::new();
    let server = serve(&place, "");
    let task = asking(&server);
    let id = task["id"].as_str().expect("an id");
    let cancelled = server.request(&format!("POST /tasks/{id}:cancel"), "{}");
    let (status, body) = cancelled.expect("an answer");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("TASK_STATE_CANCELED"), "{body}");
    // The receipt lists the call, which the server may have carried out.
    assert!(body.contains("s__greet"), "{body}");
    let file = place.work().join("answer.json");
    eventually("the answer to the server", || {
        let text = std::fs::read_to_string(&file).ok()?;
        (text == r#"{"action": "cancel"}"#).then_some(())
    });
}
