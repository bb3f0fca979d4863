//! `allstop serve` as a process: requests of clients, signals, and `kill -9` under load.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::fault::Fault;
use crate::support::wait::eventually;
use crate::support::{Allstop, FACT_MAX, Place, Running, Signal};

/// Number of kills in the test under load.
const KILLS: u32 = 5;

/// Number of clients that send concurrently.
const CLIENTS: u32 = 4;

/// Minimum number of messages that are answered before a kill.
const ANSWERED_MIN: usize = 25;

pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) address: String,
}

impl Server {
    fn start(place: &Place) -> Self {
        Self::start_with(place, "--agent echo")
    }

    /// Starts a server with these flags and with the store of `place`.
    pub(crate) fn start_with(place: &Place, flags: &str) -> Self {
        Self::start_by(place, flags, |serve| serve)
    }

    /// Like [`Server::start_with`], with changes to the command.
    pub(crate) fn start_by<'a>(
        place: &'a Place,
        flags: &str,
        change: impl FnOnce(Allstop<'a>) -> Allstop<'a>,
    ) -> Self {
        let serve = place.allstop().args("serve --listen 127.0.0.1:0 --store");
        let running = change(serve.arg(place.store()).args(flags)).start();
        let address = running.line_of_stdout("listening on http://");
        Self { running, address }
    }

    /// Sends a request, and returns status and body of the answer; `None` if the server is gone.
    pub(crate) fn request(&self, head: &str, body: &str) -> Option<(u16, String)> {
        request(&self.address, head, body)
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) = self.request(&format!("GET {path}"), "").expect("an answer");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    }

    /// Every task in the store.
    pub(crate) fn tasks(&self) -> Vec<Value> {
        let (mut tasks, mut token) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!(
                "/tasks?pageSize=100&historyLength=1&pageToken={token}"
            ));
            tasks.extend(page["tasks"].as_array().cloned().unwrap_or_default());
            page["nextPageToken"]
                .as_str()
                .unwrap_or_default()
                .clone_into(&mut token);
            if token.is_empty() {
                return tasks;
            }
        }
    }
}

fn request(address: &str, head: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!(
        "{head} HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

pub(crate) fn send(address: &str, id: &str) -> Option<Value> {
    let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": id}]});
    let body = json!({"message": message}).to_string();
    let (status, body) = request(address, "POST /message:send", &body)?;
    (status == 200).then(|| serde_json::from_str(&body).expect("JSON"))
}

#[test]
fn served_task_outlives_the_server() {
    let place = Place::new();
    let mut server = Server::start(&place);
    let (status, ready) = server.request("GET /readyz", "").expect("an answer");
    assert_eq!((status, ready.as_str()), (200, "ready\n"));
    let card = server.get("/.well-known/agent-card.json");
    assert_eq!(
        card["supportedInterfaces"][0]["url"],
        format!("http://{}", server.address)
    );
    let sent = send(&server.address, "hello").expect("an answer");
    assert_eq!(sent["task"]["artifacts"][0]["parts"][0]["text"], "hello");
    server.running.signal(Signal::TERM);
    let ended = server.running.end_by(Signal::TERM);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("nothing is left running"),
        "{}",
        ended.stderr
    );

    let server = Server::start(&place);
    let id = sent["task"]["id"].as_str().expect("an id");
    assert_eq!(server.get(&format!("/tasks/{id}")), sent["task"]);
    assert_eq!(server.running.end_by(Signal::INT).code, 130);
}

#[test]
fn second_server_of_a_store_is_refused() {
    let place = Place::new();
    let first = Server::start(&place);
    let serve = place
        .allstop()
        .args("serve --agent echo --listen 127.0.0.1:0 --store");
    let second = serve.arg(place.store()).end();
    assert_eq!(second.code, 1);
    assert!(
        second.stderr.contains("another process manages the tasks"),
        "{}",
        second.stderr
    );
    drop(first);
    for wrong in ["0.0.0.0:0", "[::]:0", "nowhere"] {
        let refused = place
            .allstop()
            .args("serve --agent echo --listen")
            .arg(wrong)
            .end();
        assert_eq!(refused.code, 2, "{wrong}: {}", refused.stderr);
    }
}

/// The killed server loses no task that it has acknowledged. No task ends twice, and no task stays in the state
/// `working` for ever.
#[test]
fn killed_server_loses_nothing_that_it_has_acknowledged() {
    let place = Place::new();
    let mut acknowledged = BTreeSet::new();
    for round in 0..KILLS {
        let mut server = Server::start(&place);
        let is_over = AtomicBool::new(false);
        let answered: BTreeSet<String> = std::thread::scope(|threads| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let (address, is_over) = (server.address.clone(), &is_over);
                    threads.spawn(move || {
                        let mut answered = BTreeSet::new();
                        for number in 0.. {
                            let id = format!("r{round}-c{client}-{number}");
                            if send(&address, &id).is_none() || is_over.load(Ordering::Relaxed) {
                                break;
                            }
                            answered.insert(id);
                        }
                        answered
                    })
                })
                .collect();
            // The clients send messages until the kill, and return their answers only afterwards. So the test asks the
            // server for the number of tasks.
            eventually("enough messages are answered", || {
                let total = server.get("/tasks?pageSize=1")["totalSize"].as_u64()?;
                (total as usize >= acknowledged.len() + ANSWERED_MIN).then_some(())
            });
            server.running.signal(Signal::KILL);
            is_over.store(true, Ordering::Relaxed);
            clients
                .into_iter()
                .flat_map(|client| client.join().expect("no panic"))
                .collect()
        });
        acknowledged.extend(answered);
    }
    let server = Server::start(&place);
    let tasks = eventually("every task has ended", || {
        let tasks = server.tasks();
        let is_over = tasks
            .iter()
            .all(|task| task["status"]["state"] == "TASK_STATE_COMPLETED");
        is_over.then_some(tasks)
    });
    let found: Vec<String> = tasks
        .iter()
        .filter_map(|task| task["history"][0]["messageId"].as_str().map(str::to_owned))
        .collect();
    let distinct: BTreeSet<String> = found.iter().cloned().collect();
    assert_eq!(found.len(), distinct.len(), "a message has two tasks");
    let lost: Vec<_> = acknowledged.difference(&distinct).collect();
    assert!(lost.is_empty(), "{lost:?} of {}", acknowledged.len());
    println!(
        "{} acknowledged, {} found",
        acknowledged.len(),
        distinct.len()
    );
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

/// SHA-256 of the token `secret`.
const HASH_OF_SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

#[test]
fn token_file_decides_who_is_served() {
    let place = Place::new();
    let tokens = place.file("tokens", format!("alice {HASH_OF_SECRET}\n"));
    let serve = place
        .allstop()
        .args("serve --agent echo --listen 127.0.0.1:0 --store");
    let serve = serve.arg(place.store()).arg("--token-file").arg(&tokens);
    let running = serve.env("ALLSTOP_LOG", "warn").start();
    let address = running.line_of_stdout("listening on http://");
    let get = |path: &str, token: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nauthorization: Bearer {token}\r\nx: ");
        request(&address, &head, "").map(|(status, _)| status)
    };
    let with = |token: &str| get("/tasks", token);
    let without = |path: &str| request(&address, &format!("GET {path}"), "").map(|answer| answer.0);
    // The agent card can be read without a token. It states that all other requests need a token.
    let (_, card) = request(&address, "GET /.well-known/agent-card.json", "").expect("a card");
    let card: Value = serde_json::from_str(&card).expect("JSON");
    let scheme = &card["securitySchemes"]["token"]["httpAuthSecurityScheme"];
    assert_eq!(scheme["scheme"], "Bearer");
    let required = &card["securityRequirements"];
    assert_eq!(required[0]["schemes"], json!({"token": {"list": []}}));
    assert_eq!(with("secret"), Some(200));
    assert_eq!(with("wrong"), Some(401));
    let (_, said) = request(&address, "GET /tasks", "").expect("an answer");
    assert!(
        said.contains("send a valid bearer token") && !said.contains("localhost"),
        "{said}"
    );
    assert_eq!(get("/metrics", "secret"), Some(200));
    assert_eq!(get("/metrics", "wrong"), Some(401));
    assert_eq!(without("/metrics"), Some(401));
    assert_eq!(without("/healthz"), Some(200));
    assert_eq!(without("/readyz"), Some(200));
    // After the file is replaced by a file with another token, the server must refuse the old token.
    place.file("tokens", format!("bob {}\n", "0".repeat(64)));
    eventually("the old token is refused", || {
        (with("secret") == Some(401)).then_some(())
    });
    std::fs::remove_file(&tokens).expect("a file");
    running.wait_stderr("the token file gives no tokens: all its tokens are revoked");
    assert_eq!(running.end_by(Signal::TERM).code, 143);
    let broken = place.file("broken", "alice 12\n");
    let refused = place
        .allstop()
        .args("serve --agent echo --token-file")
        .arg(broken)
        .end();
    assert_eq!(refused.code, 2);
    assert!(
        refused.stderr.contains("64 hexadecimal digits"),
        "{}",
        refused.stderr
    );
}

/// The server reads the file within a second, and then ends the stream at once.
#[test]
fn stream_of_a_removed_user_ends_with_an_error() {
    let place = Place::new();
    let tokens = place.file("tokens", format!("alice {HASH_OF_SECRET}\n"));
    let script = place.script("replies: [{text: \"Never ends\", stall: mid_stream}]\n");
    let serve = place.allstop().args("serve --listen 127.0.0.1:0 --store");
    let serve = serve.arg(place.store()).arg("--token-file").arg(&tokens);
    let running = serve.args(&format!("--model {script}")).start();
    let address = running.line_of_stdout("listening on http://");
    let head = "POST /message:stream HTTP/1.1\r\nauthorization: Bearer secret\r\nx: ";
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hello"}]});
    let body = json!({"message": message}).to_string();
    let (read, streamed) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // The request ends with the stream.
            let (_, stream) = request(&address, head, &body).expect("an answer");
            read.send((stream, Instant::now())).expect("a receiver");
        });
        eventually("the task works", || {
            let get = "GET /tasks HTTP/1.1\r\nauthorization: Bearer secret\r\nx: ";
            let (_, listed) = request(&address, get, "")?;
            listed.contains("TASK_STATE_WORKING").then_some(())
        });
        let removed_at = Instant::now();
        place.file("tokens", format!("bob {}\n", "0".repeat(64)));
        let (stream, ended_at) = streamed.recv_timeout(FACT_MAX).expect("the stream ends");
        let last = stream.rsplit("event: ").next().expect("an event");
        assert!(
            last.starts_with("error\n") && last.contains("UNAUTHENTICATED"),
            "{stream}"
        );
        // 2 s, and one more for a busy machine.
        let after = ended_at.duration_since(removed_at);
        assert!(after < Duration::from_secs(3), "{after:?}");
    });
    assert_eq!(running.end_by(Signal::TERM).code, 143);
}

#[test]
fn readyz_proves_that_the_store_can_be_written() {
    let place = Place::new();
    let fault = Fault::new(&place, "");
    let server = Server::start_by(&place, "--agent echo", |serve| fault.below(serve));
    let readyz = || server.request("GET /readyz", "").expect("an answer");
    assert_eq!(readyz().0, 200);
    fault.set("write store.db ENOSPC");
    let full = eventually("the full disk is noticed", || {
        let (status, body) = readyz();
        (status == 503).then_some(body)
    });
    assert!(full.contains("not ready: "), "{full}");
    assert!(full.contains("space"), "{full}");
    fault.set("");
    eventually("there is space again", || (readyz().0 == 200).then_some(()));
    let ended = server.running.end_by(Signal::TERM);
    for line in ["the task store cannot be written", "can be written again"] {
        assert!(ended.stderr.contains(line), "{ended:#?}");
    }
}

/// Regression: the exit code was that of a stop whose receipts are stored.
#[test]
fn exit_code_reports_ends_that_are_not_stored() {
    let place = Place::new();
    let fault = Fault::new(&place, "");
    let model = place.script("replies: [{text: Never, stall: mid_stream}]");
    let flags = format!("--model {model}");
    let server = Server::start_by(&place, &flags, |serve| fault.below(serve));
    let body = json!({
        "configuration": {"returnImmediately": true},
        "message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]},
    });
    let sent = server.request("POST /message:send", &body.to_string());
    assert_eq!(sent.expect("an answer").0, 200);
    eventually("the task works", || {
        let task = server.tasks().pop()?;
        (task["status"]["state"] == "TASK_STATE_WORKING").then_some(())
    });
    fault.set("write store.db ENOSPC");
    let ended = server.running.end_by(Signal::TERM);
    assert_eq!(ended.code, 1, "{ended:#?}");
    assert!(
        ended
            .stderr
            .contains("the store lacks ends of stopped tasks"),
        "{ended:#?}"
    );
}

/// Each context has a session, and each open session holds a descriptor.
#[test]
fn more_contexts_than_file_descriptors_are_served() {
    let place = Place::new();
    let model = place.script("turns: [{replies: [{text: Yes.}]}]");
    let flags = format!("--model {model}");
    let server = Server::start_by(&place, &flags, |serve| serve.by("prlimit --nofile=160"));
    for number in 0..300 {
        let body = json!({"message": {
            "messageId": format!("m{number}"), "contextId": format!("c{number}"),
            "role": "ROLE_USER", "parts": [{"text": "hello"}],
        }});
        let answer = server.request("POST /message:send", &body.to_string());
        let (status, body) = answer.expect("an answer");
        assert_eq!(status, 200, "context {number}: {body}");
        assert!(
            body.contains("TASK_STATE_COMPLETED"),
            "context {number}: {body}"
        );
    }
}

/// A server without enough descriptors refuses a message before its task begins.
#[test]
fn no_task_fails_for_lack_of_file_descriptors() {
    let place = Place::new();
    let model = place.script("turns: [{replies: [{text: Never, stall: mid_stream}]}]");
    let flags = format!("--model {model}");
    let server = Server::start_by(&place, &flags, |serve| serve.by("prlimit --nofile=200"));
    let mut answers = BTreeMap::<u16, usize>::new();
    for number in 0..100 {
        let body = json!({
            "configuration": {"returnImmediately": true},
            "message": {
                "messageId": format!("m{number}"), "contextId": format!("c{number}"),
                "role": "ROLE_USER", "parts": [{"text": "hello"}],
            },
        });
        let answer = server.request("POST /message:send", &body.to_string());
        let (status, _body) = answer.expect("an answer");
        *answers.entry(status).or_default() += 1;
    }
    assert!(
        answers.contains_key(&200) && answers.contains_key(&429),
        "{answers:?}"
    );
    assert_eq!(answers.len(), 2, "{answers:?}");
    let listed = server.get("/tasks?pageSize=100");
    let failed = listed.to_string().matches("TASK_STATE_FAILED").count();
    assert_eq!(failed, 0, "{listed}");
    drop(server.running.end_by(Signal::TERM));
    place.assert_nothing_runs();
}

#[test]
fn full_server_asks_its_clients_to_try_again() {
    let place = Place::new();
    let model = place.script("turns: [{replies: [{text: Never, stall: mid_stream}]}]");
    let server = Server::start_with(&place, &format!("--max-tasks 1 --model {model}"));
    let message = |id: &str| {
        json!({
            "configuration": {"returnImmediately": true},
            "message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": "hello"}]},
        })
    };
    let send = |id: &str| server.request("POST /message:send", &message(id).to_string());
    assert_eq!(send("m1").expect("an answer").0, 200);
    let (status, body) = send("m2").expect("an answer");
    assert_eq!(status, 429, "{body}");
    let error: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(error["error"]["status"], "RESOURCE_EXHAUSTED", "{body}");
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("m3")});
    let (status, body) = server
        .request("POST /", &call.to_string())
        .expect("an answer");
    assert_eq!(status, 200, "{body}");
    let error: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(error["error"]["code"], -32_050, "{body}");
    assert!(body.contains("retryAfterSeconds"), "{body}");
}
