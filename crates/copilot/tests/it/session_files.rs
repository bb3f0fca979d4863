//! Files of a session that its program stores.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{TestClient, TestServer};

const TWO_TURNS: &str = "turns: [{replies: [{text: One.}]}, {replies: [{text: Two.}]}]";

/// A program that keeps the files in memory.
struct StoringProgram {
    client: TestClient,
    files: BTreeMap<String, String>,
    /// True if the program refuses to write.
    is_full: bool,
}

impl StoringProgram {
    async fn new(server: &TestServer) -> Self {
        let mut client = server.client();
        let provider = json!({
            "initialCwd": "/", "sessionStatePath": "/state", "conventions": "posix",
        });
        let set = client.request("sessionFs.setProvider", &provider).await;
        assert_eq!(set, json!({ "success": true }));
        Self {
            client,
            files: BTreeMap::new(),
            is_full: false,
        }
    }

    fn answer(&mut self, method: &str, params: &Value) -> Value {
        let path = params["path"].as_str().expect("a path").to_owned();
        let content = params["content"].as_str().unwrap_or_default();
        let missing = json!({ "error": { "code": "ENOENT", "message": "missing" }, "content": "" });
        match method {
            "sessionFs.writeFile" | "sessionFs.appendFile" if self.is_full => {
                json!({ "code": "UNKNOWN", "message": "the disk is full" })
            }
            "sessionFs.exists" => json!({ "exists": self.files.contains_key(&path) }),
            "sessionFs.mkdir" => Value::Null,
            "sessionFs.writeFile" => {
                self.files.insert(path, content.to_owned());
                Value::Null
            }
            "sessionFs.appendFile" => {
                *self.files.entry(path).or_default() += content;
                Value::Null
            }
            "sessionFs.readFile" => match self.files.get(&path) {
                Some(content) => json!({ "content": content }),
                None => missing,
            },
            "sessionFs.rm" => match self.files.remove(&path) {
                Some(_) => Value::Null,
                None => missing["error"].clone(),
            },
            "sessionFs.readdirWithTypes" => {
                let below = format!("{path}/");
                let names = self
                    .files
                    .keys()
                    .filter_map(|name| name.strip_prefix(&below));
                let entries = names.map(|name| json!({ "name": name, "type": "file" }));
                json!({ "entries": entries.collect::<Vec<_>>() })
            }
            other => panic!("{other}"),
        }
    }

    /// Sends a request, and answers the requests of the server meanwhile.
    async fn answer_of(&mut self, method: &str, params: &Value) -> Value {
        let id = self.client.send(method, params).await;
        loop {
            let message = self.client.take("an answer or a request", |message| {
                let of_files = message["method"].as_str().unwrap_or_default();
                let is_answer = message["id"] == id && message.get("method").is_none();
                is_answer || of_files.starts_with("sessionFs.")
            });
            let message = message.await;
            let Some(method) = message["method"].as_str() else {
                return message;
            };
            let result = self.answer(method, &message["params"]);
            let response = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
            self.client.message(&response).await;
        }
    }

    async fn request(&mut self, method: &str, params: &Value) -> Value {
        let mut answer = self.answer_of(method, params).await;
        let result = answer.get_mut("result").map(Value::take);
        result.unwrap_or_else(|| panic!("{method}: {answer}"))
    }

    fn events(&self) -> Vec<Value> {
        let lines = self.files["/state/events.jsonl"].lines();
        let events = lines.map(|line| serde_json::from_str(line).expect("an event"));
        events.collect()
    }
}

fn of(mut params: Value) -> Value {
    params["sessionId"] = "s".into();
    params
}

#[tokio::test]
async fn program_stores_plan_files_and_a_copy_of_the_events() {
    let server = TestServer::new(TWO_TURNS).await;
    let mut program = StoringProgram::new(&server).await;
    let created = program.request("session.create", &of(json!({}))).await;
    assert_eq!(created["workspacePath"], "/state");
    assert!(program.files["/state/workspace.yaml"].starts_with("id: \"s\""));
    let prompt = of(json!({ "prompt": "Begin." }));
    program.request("session.sendAndWait", &prompt).await;
    let plan = of(json!({ "content": "# Plan" }));
    program.request("session.plan.update", &plan).await;
    assert_eq!(program.files["/state/plan.md"], "# Plan");
    let read = program.request("session.plan.read", &of(json!({}))).await;
    assert_eq!(
        read,
        json!({ "exists": true, "content": "# Plan", "path": "/state/plan.md" })
    );
    let file = of(json!({ "path": "./a.txt", "content": "text" }));
    program
        .request("session.workspaces.createFile", &file)
        .await;
    let list = program
        .request("session.workspaces.listFiles", &of(json!({})))
        .await;
    assert_eq!(list, json!({ "files": ["a.txt"] }));
    program.request("session.plan.delete", &of(json!({}))).await;
    assert!(!program.files.contains_key("/state/plan.md"));
    program.request("session.detach", &of(json!({}))).await;
    // The copy has the events of the history, with their ids.
    let first = program.events();
    assert!(
        first.iter().any(|event| event["data"]["content"] == "One."),
        "{first:?}"
    );
    assert_eq!(server.files_with("# Plan"), Vec::<String>::new());

    program.request("session.resume", &of(json!({}))).await;
    program.request("session.sendAndWait", &prompt).await;
    let history = program.request("session.getMessages", &of(json!({}))).await;
    program.request("session.detach", &of(json!({}))).await;
    let copied: Vec<Value> = program
        .events()
        .iter()
        .map(|event| event["id"].clone())
        .collect();
    let events = history["events"].as_array().expect("events");
    for event in events
        .iter()
        .filter(|event| event["type"] == "assistant.message")
    {
        let count = copied.iter().filter(|id| **id == event["id"]).count();
        assert_eq!(count, 1, "{event}");
    }
}

#[tokio::test]
async fn failures_of_the_program_are_reported() {
    let server = TestServer::new(TWO_TURNS).await;
    let mut program = StoringProgram::new(&server).await;
    program.is_full = true;
    let refused = program.answer_of("session.create", &of(json!({}))).await;
    assert!(
        refused["error"]["message"]
            .to_string()
            .contains("the disk is full"),
        "{refused}"
    );
    // Nothing of the refused session is left.
    let list = program.request("session.list", &json!({})).await;
    assert_eq!(list, json!({ "sessions": [] }));
    program.is_full = false;
    program
        .request("session.create", &json!({ "sessionId": "s2" }))
        .await;
    program.is_full = true;
    let refused = program
        .answer_of(
            "session.plan.update",
            &json!({ "sessionId": "s2", "content": "x" }),
        )
        .await;
    assert!(
        refused["error"]["message"]
            .to_string()
            .contains("the disk is full"),
        "{refused}"
    );
    program
        .request(
            "session.sendAndWait",
            &json!({ "sessionId": "s2", "prompt": "Begin." }),
        )
        .await;
    program
        .request("session.detach", &json!({ "sessionId": "s2" }))
        .await;
    let warnings = program.client.seen().iter().filter(|message| {
        let event = &message["params"]["event"];
        event["type"] == "session.warning" && event.to_string().contains("the disk is full")
    });
    assert_eq!(warnings.count(), 1);
}

#[tokio::test]
async fn provider_is_set_before_the_first_session() {
    let server = TestServer::new(TWO_TURNS).await;
    let mut client = server.client();
    let provider = |folder: &str| json!({ "sessionStatePath": folder, "conventions": "posix" });
    let relative = client
        .answer("sessionFs.setProvider", &provider("state"))
        .await;
    assert_eq!(relative["error"]["code"], -32602, "{relative}");
    client.create("s", &json!({})).await;
    let late = client
        .answer("sessionFs.setProvider", &provider("/state"))
        .await;
    assert_eq!(late["error"]["code"], -32602, "{late}");
}

/// A program that never answers does not delay the end of the server, and its own requests get errors.
#[tokio::test]
async fn shutdown_answers_the_requests_that_wait_for_the_program() {
    /// Far below the limit of the answers of a program.
    const STOP_MAX: Duration = Duration::from_secs(10);

    let server = TestServer::new(TWO_TURNS).await;
    let mut program = StoringProgram::new(&server).await;
    program.request("session.create", &of(json!({}))).await;
    let client = &mut program.client;
    let mut waiting = Vec::new();
    for (method, params, asked) in [
        ("session.plan.read", of(json!({})), "sessionFs.readFile"),
        (
            "session.create",
            json!({ "sessionId": "other" }),
            "sessionFs.exists",
        ),
    ] {
        waiting.push(client.send(method, &params).await);
        client
            .take(asked, |message| message["method"] == asked)
            .await;
    }
    client.request("runtime.shutdown", &json!({})).await;
    let answers = async {
        for id in waiting {
            let answer = client.answer_to(id).await;
            assert_eq!(answer["error"]["code"], -32000, "{answer}");
        }
    };
    let both = async { tokio::join!(server.stop(), answers) };
    timeout(STOP_MAX, both)
        .await
        .expect("the server ends in time");
    program.client.ended().await;
}
