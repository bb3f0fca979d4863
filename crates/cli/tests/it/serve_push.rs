//! Push notifications of `allstop serve` as a process: `kill -9`, signals and flags.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::wait::eventually;
use crate::support::{Place, Running, Signal};

/// Number of tasks with a webhook.
const TASKS: usize = 12;

/// Number of events that the webhook accepts before it fails. At this time, the events of some tasks are delivered
/// completely, those of one task partly, and those of most tasks not at all.
const ACCEPTED_BEFORE_KILL: usize = 10;

/// Event that a webhook has accepted.
#[derive(Debug, Clone)]
struct AcceptedEvent {
    id: String,
    number: u64,
    task: String,
    kind: String,
}

/// A webhook in this process.
struct Webhook {
    listener: TcpListener,
    accepts: AtomicUsize,
    is_closed: AtomicBool,
    accepted: Mutex<Vec<AcceptedEvent>>,
}

impl Webhook {
    fn new(accepts: usize) -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").expect("a port"),
            accepts: AtomicUsize::new(accepts),
            is_closed: AtomicBool::new(false),
            accepted: Mutex::default(),
        }
    }

    fn address(&self) -> String {
        self.listener.local_addr().expect("an address").to_string()
    }

    fn accepted(&self) -> Vec<AcceptedEvent> {
        self.accepted.lock().expect("no panic").clone()
    }

    /// Answers requests one after the other, until the webhook is closed.
    fn run(&self) {
        for stream in self.listener.incoming() {
            if self.is_closed.load(Ordering::Acquire) {
                return;
            }
            // An error is ignored, because a killed server leaves an incomplete request.
            drop(self.answer(stream.expect("a connection")));
        }
    }

    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut reader = BufReader::new(stream);
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(": ") {
                headers.insert(name.to_lowercase(), value.trim().to_owned());
            }
        }
        let len = headers
            .get("content-length")
            .and_then(|len| len.parse().ok());
        let mut body = vec![0; len.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let take = |left: usize| left.checked_sub(1);
        let is_accepted = self
            .accepts
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .is_ok();
        let status = if is_accepted {
            "204 No Content"
        } else {
            "500 No"
        };
        if is_accepted {
            let json: Value = serde_json::from_slice(&body).expect("JSON");
            let (kind, update) = json
                .as_object()
                .expect("an object")
                .iter()
                .next()
                .expect("a field");
            let state = update["status"]["state"].as_str().unwrap_or(kind);
            self.accepted.lock().expect("no panic").push(AcceptedEvent {
                id: headers["webhook-id"].clone(),
                number: headers["x-a2a-event-number"].parse().expect("a number"),
                task: update["taskId"].as_str().expect("an id").to_owned(),
                kind: state.to_owned(),
            });
        }
        let mut stream = reader.into_inner();
        write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        drop(TcpStream::connect(self.address()));
    }
}

fn serve(place: &Place) -> (Running, String) {
    let serve = place
        .allstop()
        .args("serve --agent echo --push-allow 127.0.0.1 --listen 127.0.0.1:0 --store");
    let running = serve.arg(place.store()).start();
    let address = running.line_of_stdout("listening on http://");
    (running, address)
}

fn send(address: &str, id: usize, webhook: &str) -> (u16, Value) {
    let body = json!({
        "message": {"messageId": id.to_string(), "role": "ROLE_USER", "parts": [{"text": "hello"}]},
        "configuration": {"taskPushNotificationConfig": {"url": webhook, "token": "the-token"}},
    })
    .to_string();
    let mut stream = TcpStream::connect(address).expect("a connection");
    let request = format!(
        "POST /message:send HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).expect("a status");
    (
        status.parse().expect("a number"),
        serde_json::from_str(body).expect("JSON"),
    )
}

/// The server is killed while its webhook fails. After the next start, it delivers all remaining events in order.
#[test]
fn killed_server_delivers_every_event_after_its_restart() {
    let place = Place::new();
    let hook = Webhook::new(ACCEPTED_BEFORE_KILL);
    std::thread::scope(|threads| {
        threads.spawn(|| hook.run());
        let (mut running, address) = serve(&place);
        let url = format!("http://{}/hook", hook.address());
        for id in 0..TASKS {
            let (status, sent) = send(&address, id, &url);
            assert_eq!(status, 200, "{sent}");
        }
        eventually("the webhook has accepted some", || {
            (hook.accepted().len() == ACCEPTED_BEFORE_KILL).then_some(())
        });
        running.signal(Signal::KILL);
        drop(running);
        hook.accepts.store(usize::MAX, Ordering::Release);
        let (running, _) = serve(&place);
        let by_task = eventually("every task is delivered to its end", || {
            let mut by_task: BTreeMap<String, Vec<AcceptedEvent>> = BTreeMap::new();
            for event in hook.accepted() {
                by_task.entry(event.task.clone()).or_default().push(event);
            }
            let is_over = |events: &Vec<AcceptedEvent>| {
                events
                    .iter()
                    .any(|event| event.kind == "TASK_STATE_COMPLETED")
            };
            (by_task.len() == TASKS && by_task.values().all(is_over)).then_some(by_task)
        });
        for (task, events) in by_task {
            // An event may be delivered twice; a receiver detects this by the id. Without the repeated events, each
            // event must be present once, in the right order.
            let mut distinct: Vec<&AcceptedEvent> = Vec::new();
            for event in &events {
                if distinct.iter().all(|known| known.id != event.id) {
                    distinct.push(event);
                }
            }
            let kinds: Vec<_> = distinct.iter().map(|event| event.kind.as_str()).collect();
            let expected = [
                "TASK_STATE_WORKING",
                "artifactUpdate",
                "TASK_STATE_COMPLETED",
            ];
            assert_eq!(kinds, expected, "task {task}: {events:?}");
            assert!(
                distinct.is_sorted_by_key(|event| event.number),
                "{events:?}"
            );
        }
        assert_eq!(running.end_by(Signal::TERM).code, 143);
        // The restarted server must not send delivered events again. The only exception is an event whose delivery was
        // not stored before the end of the first server.
        let before = hook.accepted();
        let (running, _) = serve(&place);
        let ended = running.end_by(Signal::TERM);
        assert_eq!(ended.code, 143, "{}", ended.stderr);
        for repeat in &hook.accepted()[before.len()..] {
            assert!(
                before.iter().any(|event| event.id == repeat.id),
                "{repeat:?}"
            );
            assert_eq!(repeat.kind, "TASK_STATE_COMPLETED", "{repeat:?}");
        }
        assert!(!ended.stderr.contains("the-token"), "{}", ended.stderr);
        hook.close();
    });
}

/// A webhook that accepts connections and never answers.
#[test]
fn hanging_webhook_does_not_delay_the_exit() {
    let place = Place::new();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (running, address) = serve(&place);
    let url = format!("http://{}/", silent.local_addr().expect("an address"));
    let (status, sent) = send(&address, 1, &url);
    assert_eq!(
        (status, &sent["task"]["status"]["state"]),
        (200, &json!("TASK_STATE_COMPLETED"))
    );
    let _connection = silent.accept().expect("the delivery connects");
    let begin = Instant::now();
    let ended = running.end_by(Signal::TERM);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn only_allowed_networks_are_reached() {
    let place = Place::new();
    let (running, address) = serve(&place);
    for refused in [
        "http://127.0.0.2/",
        "http://[::1]/",
        "http://10.0.0.1/",
        "http://169.254.169.254/",
    ] {
        let (status, body) = send(&address, 1, refused);
        assert_eq!(status, 400, "{refused}: {body}");
    }
    assert_eq!(running.end_by(Signal::TERM).code, 143);
    let short = place.file("short", "too short\n");
    let short = short.to_str().expect("UTF-8").to_owned();
    for (wrong, reason) in [
        ("--push-allow nowhere".to_owned(), "not a network"),
        (format!("--push-secret-file {short}"), "needs 32 or more"),
        ("--push-secret-file /nowhere".to_owned(), "cannot be read"),
    ] {
        let serve = place
            .allstop()
            .args("serve --agent echo --listen 127.0.0.1:0 --store :memory:")
            .args(&wrong)
            .end();
        assert_eq!(serve.code, 2, "{wrong}: {}", serve.stderr);
        assert!(serve.stderr.contains(reason), "{wrong}: {}", serve.stderr);
    }
}
