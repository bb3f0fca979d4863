//! `allstop tasks`, as a client of an `allstop serve` process.

use std::time::Duration;

use serde_json::{Value, json};

use crate::serve::Server;
use crate::support::{Ended, FACT_MAX, Place, Running, Signal};

struct Client<'a> {
    place: &'a Place,
    server: &'a Server,
}

impl Client<'_> {
    fn start(&self, args: &str) -> Running {
        let url = format!("http://{}", self.server.address);
        let tasks = self.place.allstop().args("tasks --server").arg(url);
        tasks.args(args).start()
    }

    fn end(&self, args: &str) -> Ended {
        self.start(args).end(FACT_MAX)
    }

    fn send(&self, id: &str, text: &str) -> Value {
        let body = json!({
            "configuration": {"returnImmediately": true},
            "message": {
                "messageId": id, "role": "ROLE_USER", "contextId": "c1",
                "parts": [{"text": text}],
            },
        });
        let sent = self.server.request("POST /message:send", &body.to_string());
        let (status, body) = sent.expect("an answer");
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        answer["task"]["id"].clone()
    }
}

const SCRIPT: &str = "turns:\n- when: stall\n  replies: [{text: Never, stall: mid_stream}]\n\
                      - when: slowly\n  replies: [{text: \"1 2 3 4 5 6 7 8 9 10 11 12\", delay: 70ms}]\n\
                      replies: [{text: \"An answer\\nin two lines.\"}]\n";

fn serve(place: &Place) -> Server {
    Server::start_with(place, &format!("--model {}", place.script(SCRIPT)))
}

#[test]
fn task_is_listed_watched_and_shown() {
    let place = Place::new();
    let server = serve(&place);
    let client = Client {
        place: &place,
        server: &server,
    };
    let none = client.end("list").ok();
    assert_eq!(none.stdout, "no tasks\n");
    let id = client.send("m1", "hello");
    let id = id.as_str().expect("an id");
    let watched = client.end(&format!("watch {id}"));
    assert_eq!(watched.code, 0, "{}", watched.stderr);
    assert!(
        watched
            .stdout
            .contains("answer: An answer\n  in two lines.\n"),
        "{}",
        watched.stdout
    );
    let shown = client.end(&format!("show {}", &id[20..])).ok().stdout;
    assert!(shown.contains(&format!("task {id} completed")), "{shown}");
    assert!(shown.contains("user: hello\n"), "{shown}");
    let listed = client.end("list --state completed").ok().stdout;
    assert!(
        listed.contains(&id[18..]) && listed.contains("hello"),
        "{listed}"
    );
    assert_eq!(client.end("list --state working").ok().stdout, "no tasks\n");
    let json = client.end("list --json").ok().stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["tasks"][0]["id"], id);
    let missing = client.end("show nothing");
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.contains("task `nothing` not found"));
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

/// The events contain the answer while it arrives. People see the complete answer.
#[test]
fn answer_streams_in_pieces_and_is_shown_once() {
    let place = Place::new();
    let server = serve(&place);
    let client = Client {
        place: &place,
        server: &server,
    };
    let id = client.send("m1", "count slowly");
    let id = id.as_str().expect("an id");
    let watching = [format!("watch {id} --json"), format!("watch {id}")];
    let [events, shown] = watching.map(|args| client.start(&args));
    let (events, shown) = (events.end(FACT_MAX).ok(), shown.end(FACT_MAX).ok());
    let answer = "1 2 3 4 5 6 7 8 9 10 11 12";
    assert_eq!(
        shown.stdout.matches("answer: ").count(),
        1,
        "{}",
        shown.stdout
    );
    assert!(
        shown.stdout.contains(&format!("answer: {answer}\n")),
        "{}",
        shown.stdout
    );
    let (mut text, mut pieces) = (String::new(), 0);
    for event in events.stdout.lines() {
        let event: Value = serde_json::from_str(event).expect("JSON");
        let update = &event["artifactUpdate"];
        let Some(piece) = update["artifact"]["parts"][0]["text"].as_str() else {
            continue;
        };
        if update["append"] != true {
            text.clear();
        }
        text.push_str(piece);
        pieces += usize::from(update["lastChunk"] != true);
    }
    assert_eq!(text, answer);
    assert!(pieces > 1, "{}", events.stdout);
    let again = client.end(&format!("show {id} --json")).ok().stdout;
    assert!(again.contains(answer), "{again}");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

#[test]
fn stop_has_a_receipt_that_a_watcher_sees_too() {
    let place = Place::new();
    let server = serve(&place);
    let client = Client {
        place: &place,
        server: &server,
    };
    let id = client.send("m1", "stall");
    let id = id.as_str().expect("an id");
    let watching = client.start(&format!("watch {id}"));
    let preview = client.end(&format!("preview {id}")).ok().stdout;
    assert!(preview.contains("Would stop"), "{preview}");
    let stopped = client.end(&format!("stop {id} --reason lunch"));
    assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    for said in ["script::", "lunch", "Nothing is left"] {
        assert!(stopped.stdout.contains(said), "{said}: {}", stopped.stdout);
    }
    let watched = watching.end(FACT_MAX);
    assert_eq!(watched.code, 130, "{}", watched.stderr);
    assert!(watched.stdout.contains("lunch"), "{}", watched.stdout);
    // A repeated stop returns the same receipt.
    let again = client.end(&format!("stop {id} --json"));
    assert_eq!(again.code, 0, "{}", again.stderr);
    let again: Value = serde_json::from_str(&again.stdout).expect("JSON");
    assert_eq!(again["receipt"]["quiet"], true);
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

#[test]
fn watch_continues_after_a_server_restart() {
    let place = Place::new();
    let server = serve(&place);
    let address = server.address.clone();
    let client = Client {
        place: &place,
        server: &server,
    };
    let id = client.send("m1", "stall");
    let id = id.as_str().expect("an id").to_owned();
    let watching = client.start(&format!("watch {id} --json"));
    watching.line_of_stdout("\"schema\":\"allstop.task-event/1\",\"task\"");
    server.running.end_by(Signal::KILL);
    let flags = format!("--model {} --listen {address}", place.script(SCRIPT));
    let serve = place.allstop().args("serve --store").arg(place.store());
    let again = serve.args(&flags).start();
    again.line_of_stdout("listening on http://");
    let watched = watching.end(FACT_MAX);
    assert_eq!(watched.code, 1, "{}", watched.stderr);
    assert!(
        watched.stderr.contains("connected again"),
        "{}",
        watched.stderr
    );
    let last = watched.stdout.lines().last().expect("a line");
    assert!(last.contains("TASK_STATE_FAILED"), "{}", watched.stdout);
    let snapshots = watched
        .stdout
        .matches("\"schema\":\"allstop.task-event/1\",\"task\"")
        .count();
    assert_eq!(
        snapshots, 1,
        "it went on behind the last event: {}",
        watched.stdout
    );
    assert_eq!(again.end_by(Signal::TERM).code, 143);
}

/// Regression: the watch tried again for ever, and printed the text of a library.
#[test]
fn watch_gives_up_when_the_server_has_gone() {
    let place = Place::new();
    let server = serve(&place);
    let client = Client {
        place: &place,
        server: &server,
    };
    let id = client.send("m1", "stall");
    let id = id.as_str().expect("an id").to_owned();
    let watching = client.start(&format!("watch {id} --json"));
    watching.line_of_stdout("\"schema\":\"allstop.task-event/1\",\"task\"");
    let address = server.address.clone();
    server.running.end_by(Signal::KILL);
    watching.wait_stderr("the server does not answer; trying again for 30 s");
    let watched = watching.end(Duration::from_secs(45));
    assert_eq!(watched.code, 1, "{watched:#?}");
    let error = "error: the server does not answer, for 30 s: the state of the task is unknown";
    assert!(watched.stderr.contains(error), "{watched:#?}");
    let hint = format!("allstop tasks --server http://{address} watch {id}");
    assert!(watched.stderr.contains(&hint), "{watched:#?}");
}

#[test]
fn ctrl_c_leaves_a_watch_and_stops_nothing() {
    let place = Place::new();
    let server = serve(&place);
    let client = Client {
        place: &place,
        server: &server,
    };
    let id = client.send("m1", "stall");
    let id = id.as_str().expect("an id");
    let watching = client.start(&format!("watch {id} --json"));
    watching.line_of_stdout("\"schema\":\"allstop.task-event/1\",\"task\"");
    let left = watching.end_by(Signal::INT);
    assert_eq!(left.code, 130);
    assert!(
        left.stderr.contains("the task continues"),
        "{}",
        left.stderr
    );
    let state = server.get(&format!("/tasks/{id}"))["status"]["state"].clone();
    assert_ne!(state, "TASK_STATE_CANCELED");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

#[test]
fn wrong_server_is_named() {
    let place = Place::new();
    let list = |server: &str| {
        let tasks = place.allstop().args("tasks list --server").arg(server);
        tasks.end()
    };
    let refused = list("http://127.0.0.1:1");
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("no answer from http://127.0.0.1:1"));
    let hint = "hint: start a server with";
    assert!(refused.stderr.contains(hint), "{}", refused.stderr);
    // There is a server, but without TLS.
    let server = serve(&place);
    let no_tls = list(&format!("https://{}", server.address));
    assert_eq!(no_tls.code, 1);
    assert!(!no_tls.stderr.contains(hint), "{}", no_tls.stderr);
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    for wrong in ["nowhere", "ftp://127.0.0.1", "http://user:pass@127.0.0.1"] {
        assert_eq!(list(wrong).code, 2, "{wrong}");
    }
}
